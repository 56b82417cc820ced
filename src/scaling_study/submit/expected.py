"""How long runs are expected to take, from the performance model's closed form; None where nothing is known of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from scaling_study.errors import UserError
from scaling_study.predict.library import Library
from scaling_study.predict.ours import setup_of_run
from scaling_study.predict.predictions import step_times
from scaling_study.spec import Catalogue, Run, TrainingRun, run_id, steps_of


def expected_seconds(runs: Sequence[Run], catalogue: Catalogue, config_root: Path) -> dict[str, float]:
    """Seconds of all iterations of each training run whose part the model knows, by run id; none without its tables."""
    if not (config_root / "calibration").is_dir():
        return {}
    library, known, setups = Library(config_root), [], []
    for run in runs:
        if not isinstance(run, TrainingRun):
            continue
        try:
            setup = setup_of_run(run, catalogue.models[run.model], catalogue.hardware[run.hardware], library)
        except UserError:
            continue
        known.append(run)
        setups.append(setup)
    if not setups:
        return {}
    seconds = step_times(setups, lambda family: library.parameter_set(family).values())
    return {run_id(run): float(one) * steps_of(run) for run, one in zip(known, seconds, strict=True)}
