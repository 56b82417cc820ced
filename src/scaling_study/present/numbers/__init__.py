"""Every number that the paper's text uses, computed from records and carried with the runs it comes from.

One small module a part of the text. Words that depend on a sign (`rises`, `falls`), and whether percentile ranges
overlap, are numbers too, so that the text stays true whatever was measured. A number that the records do not give is
left out; the paper then fails to build and says which one is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
import polars as pl

from scaling_study.present.numbers.batches import of_fixed_batch, of_pretraining
from scaling_study.present.numbers.collectives import of_collectives
from scaling_study.present.numbers.core import Number
from scaling_study.present.numbers.layouts import of_large_scale, of_layouts, of_small_batch
from scaling_study.present.numbers.pacing import of_fabric, of_pacing
from scaling_study.present.numbers.precision import of_precisions
from scaling_study.present.numbers.predicted import of_predictions
from scaling_study.present.numbers.roofs import of_roofs
from scaling_study.present.numbers.runs import of_runs, of_sweeps
from scaling_study.present.numbers.scaling import of_scaling
from scaling_study.present.numbers.sensitivity import of_sensitivity
from scaling_study.present.numbers.sequence import of_sequences
from scaling_study.present.numbers.size import of_sizes
from scaling_study.present.numbers.validation import of_validation
from scaling_study.present.rows import without_invalid
from scaling_study.spec import Provenance, Study

__all__ = ["Number", "as_json", "paper_numbers"]

#: From a sweep to the function that computes numbers of its measured records.
PARTS: dict[str, Callable[[pl.DataFrame], dict[str, Number]]] = {
    "collectives": of_collectives,
    "data_parallel": of_scaling,
    "model_parallel": of_layouts,
    "model_parallel_small_batch": of_small_batch,
    "model_parallel_large_scale": of_large_scale,
    "fixed_batch": of_fixed_batch,
    "fixed_batch_pretraining": of_pretraining,
    "generations": of_precisions,
    "model_size": of_sizes,
    "context_length": of_sequences,
    "coordination": of_pacing,
}


#: From a table of the performance model to the function that computes its numbers.
OF_MODEL: dict[str, Callable[[pl.DataFrame], dict[str, Number]]] = {
    "validation": of_validation,
    "sensitivity": of_sensitivity,
    "fabric": of_fabric,
}

#: From what figures show of definitions alone to the function that computes its numbers.
OF_DEFINITIONS: dict[str, Callable[[pl.DataFrame], dict[str, Number]]] = {"roofs": of_roofs}


def paper_numbers(
    study: Study,
    frames: Mapping[str, pl.DataFrame],
    tables: Mapping[str, pl.DataFrame] | None = None,
    definitions: Mapping[str, pl.DataFrame] | None = None,
) -> dict[str, Number]:
    """Every number by name, from the measured and predicted records of a study and from what else its figures show.

    Args:
        study: gives the sweeps of figures and tables.
        frames: records by the name of their sweep.
        tables: of the performance model by name; their numbers are those of a study that is predicted.
        definitions: what figures show of definitions alone, by name.
    """
    measured, predicted = (_of(study, frames, kind) for kind in (Provenance.MEASURED, Provenance.PREDICTED))
    found = of_runs(measured) | of_sweeps(study, measured) if measured else {}
    for name, compute in PARTS.items():
        if name in measured:
            found |= compute(measured[name])
    found |= of_predictions(study, predicted)
    for name, compute_table in OF_MODEL.items():
        if predicted and tables and name in tables:
            found |= compute_table(tables[name])
    for name, shown in (definitions or {}).items():
        found |= OF_DEFINITIONS[name](shown)
    return dict(sorted(found.items()))


def _of(study: Study, frames: Mapping[str, pl.DataFrame], kind: Provenance) -> dict[str, pl.DataFrame]:
    """The records of one provenance that can be true, by sweep; sweeps without any are left out."""
    true = {name: without_invalid(frame)[0] for name, frame in sorted(frames.items()) if name in study.sweeps}
    parts = {name: frame.filter(provenance=kind) for name, frame in true.items()}
    return {name: frame for name, frame in parts.items() if not frame.is_empty()}


def as_json(numbers: Mapping[str, Number]) -> bytes:
    """The numbers as the JSON that the paper reads."""
    return msgspec.json.format(msgspec.json.encode(dict(numbers), order="sorted"), indent=1) + b"\n"
