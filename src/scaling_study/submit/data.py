"""Prepared data as a driver sees them: there, made from today's definition, and large enough, before a rank starts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

import msgspec

from scaling_study.errors import UserError
from scaling_study.spec import Catalogue, Dataset, TokenManifest, TrainingRun


def prepared(dataset: Dataset, folder: Path, runs: Iterable[TrainingRun], catalogue: Catalogue) -> TokenManifest:
    """The manifest of a data set that fits all these runs.

    Raises:
        UserError: it is not prepared, is damaged, was prepared from another definition, or does not fit a run.
    """
    path = folder / f"{dataset.name}.json"
    again = f"Delete {path} and run `make study` again, or run: scaling-study prepare {dataset.name}"
    try:
        manifest = msgspec.json.decode(path.read_bytes(), type=TokenManifest)
        with (folder / f"{dataset.name}.bin").open("rb") as tokens:
            sha256 = hashlib.file_digest(tokens, "sha256").hexdigest()
    except FileNotFoundError as error:
        raise UserError(f"the data set {dataset.name!r} is not prepared", where=str(folder), remedy=again) from error
    except msgspec.DecodeError as error:
        raise UserError(f"the manifest is damaged: {error}", where=str(path), remedy=again) from error
    if manifest.dataset != dataset:
        what = f"the data set {dataset.name!r} was prepared from another definition"
        raise UserError(what, where=str(path), remedy=again)
    if sha256 != manifest.sha256:
        raise UserError(f"the tokens of {dataset.name!r} are not those of its manifest", where=str(path), remedy=again)
    for run in runs:
        _check_fit(run, manifest, catalogue.models[run.model].vocabulary)
    return manifest


def _check_fit(run: TrainingRun, manifest: TokenManifest, vocabulary: int) -> None:
    available, dataset = manifest.sequences(run.sequence_length), manifest.dataset
    if available < run.global_batch:
        raise UserError(
            f"it holds {available} sequences of {run.sequence_length} tokens, one iteration needs {run.global_batch}",
            where=f"data set {dataset.name}",
            remedy="Use a larger data set or a smaller global batch.",
        )
    if dataset.vocabulary > vocabulary:
        raise UserError(
            f"the data have {dataset.vocabulary:,} kinds of tokens, the model {run.model} {vocabulary:,}",
            where=f"data set {dataset.name}",
            remedy="Use data of a smaller vocabulary.",
        )
