"""A run's workload twice, side by side: the closed forms, and the training code itself under fake tensors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from scaling_study.console import advancing, printer
from scaling_study.errors import UserError
from scaling_study.predict.agreement import first_difference
from scaling_study.predict.memory import MemoryEstimate, memory_of
from scaling_study.predict.operations import Communication, Operation, OperationKind, Step
from scaling_study.predict.workload import workload_of
from scaling_study.spec import Config, find_training_run

if TYPE_CHECKING:
    from scaling_study.predict.extract import Extraction

MEMORY_TOLERANCE = 0.05


class OperationRow(msgspec.Struct, frozen=True):
    """Operations of one kind in one pass, as predicted and as extracted."""

    kind: str
    backward: bool
    predicted_count: int
    extracted_count: int
    predicted_flops: int
    extracted_flops: int


class CommunicationRow(msgspec.Struct, frozen=True):
    """Communications that are alike, as predicted and as extracted; `message_bytes` and `dtype_bytes` of each."""

    op: str
    direction: str | None
    axis: str | None
    ranks: int
    message_bytes: int
    dtype_bytes: int
    predicted_count: int
    extracted_count: int


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Both accounts of one rank's iteration.

    Attributes:
        run_id: of the run.
        stage: the pipeline rank; tensor- and data-parallel ranks are the first ones.
        agrees: whether all steps are equal, in order, and memory is within 5%.
        difference: the first step that differs, or None.
        operations, communications: sums, in order of appearance.
        predicted_memory_bytes, extracted_memory_bytes: peaks; of tensors alone.
        predicted_memory_by_kind, extracted_memory_by_kind: at the peak, each in its own words.
    """

    run_id: str
    stage: int
    agrees: bool
    difference: str | None
    operations: list[OperationRow]
    communications: list[CommunicationRow]
    predicted_memory_bytes: int
    extracted_memory_bytes: int
    predicted_memory_by_kind: dict[str, int]
    extracted_memory_by_kind: dict[str, int]

    @property
    def memory_error(self) -> float:
        """Predicted over extracted peak, less one."""
        return self.predicted_memory_bytes / self.extracted_memory_bytes - 1


def compare(config: Config, study_name: str, name: str, stage: int) -> Comparison:
    """Predict and extract the workload of a run of a study.

    Args:
        config: where studies and models are.
        study_name: whose run.
        name: the run's id.
        stage: the pipeline rank.

    Raises:
        UserError: there is no such training run or stage, or torch is not installed.
    """
    run = find_training_run(config.study(study_name), name, config.catalogue)
    model = config.catalogue.models[run.model]
    if stage not in range(run.pp):
        raise UserError(
            f"there is no stage {stage}",
            where=f"run {name}",
            remedy=f"Stages: 0 to {run.pp - 1}." if run.pp > 1 else "It has one stage, 0.",
        )
    try:
        from scaling_study.predict.extract import Place, extract
    except ModuleNotFoundError as error:
        raise UserError(
            f"extraction runs the training code, and {error.name} is not installed",
            remedy="Install the extra `train`: pip install -e '.[train]'.",
        ) from error
    predicted = list(workload_of(run, model, stage).steps())
    with advancing("running the training code on fake tensors", 2 * len(predicted)) as advance:
        extraction = extract(run, model, Place(pipeline=stage), advance=advance)
    return _comparison(name, stage, predicted, memory_of(run, model, stage), extraction)


def _comparison(
    name: str, stage: int, predicted: list[Step], memory: MemoryEstimate, extraction: Extraction
) -> Comparison:
    extracted, peak_bytes = extraction.steps, extraction.peak_memory_bytes
    assert peak_bytes is not None
    difference = first_difference(predicted, extracted)
    close = abs(memory.peak_bytes / peak_bytes - 1) <= MEMORY_TOLERANCE
    return Comparison(
        run_id=name,
        stage=stage,
        agrees=difference is None and close,
        difference=difference,
        operations=_operations(predicted, extracted),
        communications=_communications(predicted, extracted),
        predicted_memory_bytes=memory.peak_bytes,
        extracted_memory_bytes=peak_bytes,
        predicted_memory_by_kind={str(kind): size for kind, size in memory.by_kind.items()},
        extracted_memory_by_kind=extraction.memory_by_kind,
    )


def _operations(predicted: Iterable[Step], extracted: Iterable[Step]) -> list[OperationRow]:
    counts = [Counter(map(_kind, _compared(steps))) for steps in (predicted, extracted)]
    flops: list[Counter[tuple[OperationKind, bool]]] = [Counter(), Counter()]
    for sums, steps in zip(flops, (predicted, extracted), strict=True):
        for step in _compared(steps):
            sums[_kind(step)] += step.flops
    keys = sorted({**counts[0], **counts[1]}, key=lambda key: key[1])
    return [
        OperationRow(str(key[0]), key[1], counts[0][key], counts[1][key], flops[0][key], flops[1][key]) for key in keys
    ]


def _kind(step: Operation) -> tuple[OperationKind, bool]:
    return step.kind, step.backward


def _compared(steps: Iterable[Step]) -> Iterable[Operation]:
    """Operations that both accounts have."""
    return (s for s in steps if isinstance(s, Operation) and s.kind is not OperationKind.ELEMENTWISE)


def _communications(predicted: Iterable[Step], extracted: Iterable[Step]) -> list[CommunicationRow]:
    counts = [Counter(_message(s) for s in steps if isinstance(s, Communication)) for steps in (predicted, extracted)]
    return [CommunicationRow(*key, counts[0][key], counts[1][key]) for key in {**counts[0], **counts[1]}]


def _message(step: Communication) -> tuple[str, str | None, str | None, int, int, int]:
    direction = None if step.direction is None else str(step.direction)
    axis = None if step.axis is None else str(step.axis)
    return str(step.op), direction, axis, step.ranks, step.message_bytes, step.dtype_bytes


def print_comparison(comparison: Comparison) -> None:
    """Both accounts for people: operations, communications, memory, and the verdict."""
    console = printer()
    console.print(f"run {comparison.run_id}, stage {comparison.stage}: one rank, one iteration", soft_wrap=True)
    for table in (_operation_table(comparison), _communication_table(comparison), _memory_table(comparison)):
        console.print(table)
    console.print(_verdict(comparison), soft_wrap=True)


def _verdict(comparison: Comparison) -> str:
    if comparison.agrees:
        return "The closed forms and the training code agree, step by step and in order."
    if comparison.difference is not None:
        return f"They differ. {comparison.difference}"
    return f"Every step agrees, the peak of memory does not: {comparison.memory_error:+.1%}."


def _operation_table(comparison: Comparison) -> object:
    from rich.table import Table

    table = Table("what", "pass", title="computation (element-wise operations are predicted only)")
    for column in ("predicted", "extracted", "TFLOP predicted", "TFLOP extracted"):
        table.add_column(column, justify="right")
    for row in comparison.operations:
        counts = [f"{count:,}" for count in (row.predicted_count, row.extracted_count)]
        work = [f"{flops / 1e12:,.6g}" for flops in (row.predicted_flops, row.extracted_flops)]
        table.add_row(row.kind, "backward" if row.backward else "forward", *counts, *work)
    return table


def _communication_table(comparison: Comparison) -> object:
    from rich.table import Table

    table = Table("what", "axis", title="communication")
    for column in ("ranks", "dtype bytes", "message bytes", "predicted", "extracted"):
        table.add_column(column, justify="right")
    for row in comparison.communications:
        name = (row.direction or row.op).replace("_", "-")
        numbers = (row.ranks, row.dtype_bytes, row.message_bytes, row.predicted_count, row.extracted_count)
        table.add_row(name, row.axis or "all", *(f"{number:,}" for number in numbers))
    return table


def _memory_table(comparison: Comparison) -> object:
    from rich.table import Table

    table = Table("memory at the peak", title="memory of tensors")
    for column in ("GiB predicted", "GiB extracted"):
        table.add_column(column, justify="right")
    peaks = (comparison.predicted_memory_bytes, comparison.extracted_memory_bytes)
    table.add_row("all", *(f"{size / 2**30:,.3f}" for size in peaks), end_section=True)
    for kind, size in comparison.predicted_memory_by_kind.items():
        table.add_row(kind, f"{size / 2**30:,.3f}", "")
    for kind, size in comparison.extracted_memory_by_kind.items():
        table.add_row(f"{kind} (the tracker's word)", "", f"{size / 2**30:,.3f}")
    return table
