"""What is found out before anything starts, and whether a result still means what its run names."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from scaling_study.errors import UserError, write_atomically
from scaling_study.spec import (
    Catalogue,
    Hardware,
    Model,
    Platform,
    Run,
    RunResult,
    TokenManifest,
    TrainingRun,
    can_measure,
    run_id,
)

NEEDED_FREE_BYTES = 64 * 2**20


def check_hardware(runs: Iterable[Run], platform: Platform, hardware: Hardware) -> None:
    """Refuse runs of other hardware than the platform's, and hardware that does not exist.

    Args:
        hardware: the platform's.

    Raises:
        UserError: names the first.
    """
    if hardware.part is not None and not hardware.device_names:
        raise UserError(
            f"the hardware {hardware.name} is predicted only: no device has its name (device_names)",
            where=f"platform {platform.name}",
            remedy="Choose hardware that exists.",
        )
    for run in runs:
        if run.hardware != platform.hardware:
            raise UserError(
                f"{run_id(run)} needs {run.hardware}",
                where=f"platform {platform.name}, which measures {platform.hardware} only",
                remedy="Choose the platform that has this hardware.",
            )
        if not can_measure(run, hardware):
            raise UserError(
                f"{run_id(run)} observes synchronisations, which ranks on GPUs do not yet",
                where=f"platform {platform.name}",
                remedy="Predict the sweep, or measure it on CPUs.",
            )


def check_writable(folder: Path) -> None:
    """Find out now, not after an hour, that a folder cannot be written or has no room.

    Raises:
        UserError: says which.
    """
    probe = folder / f".probe-{os.getpid()}"
    write_atomically(probe, b"")
    probe.unlink(missing_ok=True)
    free = shutil.disk_usage(folder).free
    if free < NEEDED_FREE_BYTES:
        raise UserError(
            f"{free / 2**20:.1f} MiB are free, {NEEDED_FREE_BYTES / 2**20:.0f} MiB are needed",
            where=str(folder),
            remedy="Free some space, or put the folder on another disk.",
        )


def changed_since(result: RunResult, catalogue: Catalogue, manifests: Mapping[str, TokenManifest]) -> str | None:
    """What a run's names meant when it was measured and no longer mean, or None.

    A run names its model and its data; the result knows what they were.
    """
    run = result.run
    if not isinstance(run, TrainingRun):
        return None
    model = catalogue.models[run.model]
    if result.model is not None and _dimensions(result.model) != _dimensions(model):
        return f"of a model {run.model} with other dimensions"
    manifest = manifests.get(run.protocol.data)
    if manifest and result.environment and result.environment.data_sha256 != manifest.sha256:
        return f"of data {run.protocol.data} with other tokens"
    return None


def _dimensions(model: Model) -> Model:
    return msgspec.structs.replace(model, source="")
