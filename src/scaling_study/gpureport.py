"""The report of `gpu-check`: predicted beside measured, what is right and what is not, as JSON and as a page."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from rich.markup import escape
from rich.table import Table

from scaling_study.console import printer
from scaling_study.records import reason_for
from scaling_study.spec import (
    AttentionBackend,
    AttentionReport,
    ClockReport,
    MachineReport,
    Outcome,
    PowerReport,
    RunResult,
    TrainingRun,
    run_id,
)

#: What is set beside its prediction.
COMPARED = ("iteration_s", "words_per_second_per_gpu", "mfu", "peak_memory_gib", "power_w_per_gpu", "tokens_per_joule")
#: What must have run where a backend was asked for by name.
_KERNELS = {
    AttentionBackend.SDPA_FLASH: "FlashAttention-2",
    AttentionBackend.SDPA_EFFICIENT: "CUTLASS",
    AttentionBackend.SDPA_CUDNN: "cuDNN",
    AttentionBackend.SDPA_MATH: "unfused",
}


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """A run that was not measured, and why."""

    run_id: str
    sweeps: list[str]
    reason: str


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """Something that must hold."""

    name: str
    passed: bool
    detail: str


class CheckedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run beside its prediction.

    Attributes:
        label: model, sequence length, layout, precision and attention, as they tell runs of this study apart.
        measured, predicted: metrics of the two records, units in their names; null where a metric is not there.
        null_reasons: why a measured metric is null.
        relative_error: predicted over measured, less 1.
        predicted_interval_s: of an iteration; it holds four of five measurements of sources not fitted on.
        power, clocks: of every rank's GPU.
        loss_scale, skipped_updates: of fp16.
    """

    run_id: str
    sweeps: list[str]
    label: str
    attention: AttentionBackend
    outcome: Outcome
    reason: str | None
    evidence: str | None
    predicted_outcome: Outcome
    measured: dict[str, float | None]
    predicted: dict[str, float | None]
    null_reasons: dict[str, str]
    relative_error: dict[str, float]
    predicted_interval_s: tuple[float, float] | None
    extrapolated: bool
    attention_operator: str | None
    iteration_s_cv: float | None
    peak_reserved_gib: float | None
    allocation_retries: int | None
    power: list[PowerReport]
    clocks: list[ClockReport]
    loss_scale: float | None
    skipped_updates: int | None

    @staticmethod
    def of(
        run: TrainingRun,
        sweeps: Sequence[str],
        result: RunResult,
        measured: Mapping[str, Any],
        predicted: Mapping[str, Any],
    ) -> CheckedRun:
        """A run from its result, and the records of the measurement and of the prediction."""
        ours, model = ({name: record[name] for name in COMPARED} for record in (measured, predicted))
        ok = measured["outcome"] == Outcome.OK
        missing = [name for name in COMPARED if ours[name] is None]
        gpus = [rank.gpu for rank in result.ranks if rank.gpu is not None]
        low, high = predicted["iteration_s_low"], predicted["iteration_s_high"]
        first = result.ranks[0] if result.ranks else None
        return CheckedRun(
            run_id=run_id(run),
            sweeps=list(sweeps),
            label=label(run),
            attention=run.attention,
            outcome=Outcome(measured["outcome"]),
            reason=measured["reason"],
            evidence=result.evidence,
            predicted_outcome=Outcome(predicted["outcome"]),
            measured=ours,
            predicted=model,
            null_reasons={name: reason_for(measured, name) or "" for name in missing} if ok else {},
            relative_error=_errors(ours, model),
            predicted_interval_s=None if low is None or high is None else (low, high),
            extrapolated=bool(predicted["extrapolated"]),
            attention_operator=measured["attention_operator"],
            iteration_s_cv=measured["iteration_s_cv"],
            peak_reserved_gib=max((gpu.peak_reserved_gib for gpu in gpus), default=None),
            allocation_retries=sum(gpu.allocation_retries for gpu in gpus) if gpus else None,
            power=[gpu.power for gpu in gpus if gpu.power is not None],
            clocks=[gpu.clocks for gpu in gpus if gpu.clocks is not None],
            loss_scale=first.loss_scale if first else None,
            skipped_updates=first.skipped_updates if first else None,
        )


class GpuReportFile(msgspec.Struct, frozen=True, kw_only=True):
    """All that `gpu-check` found; the content of `gpu-check.json`.

    Attributes:
        seconds: wall time so far, of `budget_s`.
        attention: every backend against fp32.
        left_out: runs that were not measured.
        checks: what must hold.
        notes: what else is to be known.
    """

    schema_version: int = 1
    started_at: str
    hardware: str
    platform: str
    machine: MachineReport
    budget_s: float
    seconds: float = 0.0
    attention: list[AttentionReport] = []
    runs: list[CheckedRun] = []
    left_out: list[LeftOut] = []
    checks: list[Check] = []
    notes: list[str] = []


def label(run: TrainingRun) -> str:
    """What tells a run of this study from the others."""
    layout = "" if run.ranks == 1 else f" dp{run.dp} tp{run.tp} pp{run.pp}"
    return f"{run.model} s{run.sequence_length}{layout} {run.precision} {run.attention}"


def checks_of(report: GpuReportFile) -> list[Check]:
    """What must hold of a report: attention is right, runs end, no rate is above the peak, the asked kernel ran."""
    return [*_attention_checks(report.attention), *(check for run in report.runs for check in _run_checks(run))]


def _attention_checks(found: Sequence[AttentionReport]) -> list[Check]:
    if not any(one.agrees is not None for one in found):
        return [Check(name="attention", passed=False, detail="no backend could be compared with fp32")]
    return [
        Check(
            name=f"attention {one.backend} {one.precision} {one.shape.tokens} tokens",
            passed=bool(one.agrees),
            detail=f"error {one.error:.2e}, allowed {one.allowed:.2e}",
        )
        for one in found
        if one.agrees is not None
    ]


def _run_checks(run: CheckedRun) -> list[Check]:
    invalid = run.outcome is Outcome.INVALID
    ended = run.outcome.is_result or invalid
    found = [Check(name=f"{run.label} ends with a result", passed=ended, detail=run.reason or run.outcome.value)]
    if invalid:
        return [*found, Check(name=f"{run.label} can be true", passed=False, detail=run.reason or "")]
    if run.outcome is not Outcome.OK:
        return found
    mfu = run.measured["mfu"]
    detail = f"MFU {mfu:.1%}" if mfu is not None else f"no MFU: {run.null_reasons.get('mfu', '')}"
    found.append(Check(name=f"{run.label} can be true", passed=True, detail=detail))
    kernel = _KERNELS.get(run.attention)
    if kernel is not None:
        ran = run.attention_operator or "no attention operator was seen"
        found.append(Check(name=f"{run.label} runs {kernel}", passed=ran.startswith(kernel), detail=ran))
    return found


def _errors(measured: Mapping[str, float | None], predicted: Mapping[str, float | None]) -> dict[str, float]:
    errors = {}
    for name in COMPARED:
        ours, model = measured[name], predicted[name]
        if ours and model is not None:
            errors[name] = model / ours - 1
    return errors


# -- the page ---------------------------------------------------------------------------------------------------------


def markdown(report: GpuReportFile) -> str:
    """The report as a page: predicted beside measured, attention, power, what was left out, what failed."""
    machine = report.machine
    lines = [
        f"# {len(machine.gpus)} x {machine.gpus[0].name}",
        "",
        f"{report.started_at}, {report.seconds:.0f} s of {report.budget_s:.0f} s. torch {machine.torch}, CUDA"
        f" {_or(machine.cuda)}, driver {_or(machine.driver)}, NCCL {_or(machine.nccl)}, xformers"
        f" {_or(machine.xformers, 'not installed')}.",
        *([f"NVML: {machine.no_nvml}."] if machine.no_nvml else []),
        "",
        "## Measured beside predicted",
        "",
        *_table(HEADER, [_row(run) for run in report.runs]),
        "",
        _mean_error(report.runs),
        "",
        "## Power",
        "",
        *_table(
            ("run", "W", "from", "instant W", "1 s average W", "sensor looks", "counter / samples", "clock MHz", "C"),
            [row for run in report.runs for row in _power_rows(run)],
        ),
        "",
        "## Attention against fp32",
        "",
        *_table(ATTENTION_HEADER, [_attention(one) for one in report.attention]),
        "",
        "## Checks",
        "",
        *_failed(report.checks),
    ]
    if report.left_out:
        lines += ["", "## Left out", "", *(f"- {one.run_id}: {one.reason}" for one in report.left_out)]
    if report.notes:
        lines += ["", *(f"- {note}" for note in report.notes)]
    return "\n".join(lines) + "\n"


ATTENTION_HEADER = ("backend", "precision", "tokens", "error", "allowed", "ran")
HEADER = (
    "run", "outcome", "iteration s", "predicted s", "error %", "MFU %", "predicted %", "GiB", "predicted GiB", "W",
    "predicted W", "attention that ran",
)  # fmt: skip


def print_report(report: GpuReportFile) -> None:
    """The table of predicted beside measured, and what was left out."""
    table = Table(box=None, pad_edge=False)
    for name in HEADER:
        table.add_column(name, justify="left" if name in HEADER[:2] or name == HEADER[-1] else "right")
    for run in report.runs:
        table.add_row(*map(escape, _row(run)))
    console = printer()
    console.print(table)
    console.print(_mean_error(report.runs))
    for one in report.left_out:
        console.print(f"left out: {one.run_id}: {one.reason}", markup=False, soft_wrap=True)


def _row(run: CheckedRun) -> tuple[str, ...]:
    ours, model, error = run.measured, run.predicted, run.relative_error.get("iteration_s")
    outcome = run.outcome.value + ("" if run.outcome is run.predicted_outcome else f" (not {run.predicted_outcome})")
    return (
        run.label,
        outcome,
        _number(ours["iteration_s"], ".4f"),
        _number(model["iteration_s"], ".4f"),
        "" if error is None else f"{100 * error:+.1f}",
        _number(ours["mfu"], ".1f", 100),
        _number(model["mfu"], ".1f", 100),
        _number(ours["peak_memory_gib"], ".1f"),
        _number(model["peak_memory_gib"], ".1f"),
        _number(ours["power_w_per_gpu"], ".0f"),
        _number(model["power_w_per_gpu"], ".0f"),
        run.attention_operator or "",
    )


def _power_rows(run: CheckedRun) -> Iterable[tuple[str, ...]]:
    clocks = dict(enumerate(run.clocks))
    for index, power in enumerate(run.power):
        clock = clocks.get(index, ClockReport())
        yield (
            run.label,
            _number(power.power_w, ".0f"),
            power.source.value if power.source else power.reason or "",
            _number(power.instant_w, ".0f"),
            _number(power.one_second_average_w, ".0f"),
            "" if power.sampling_share is None else f"{power.sampling_share:.0%}",
            _number(power.counter_over_samples, ".2f"),
            _number(clock.sm_mhz, ".0f"),
            _number(clock.temperature_c, ".0f"),
        )


def _attention(one: AttentionReport) -> tuple[str, ...]:
    ran = ", ".join(one.operators) or one.reason or ""
    error, allowed = (_number(value, ".2e") for value in (one.error, one.allowed))
    return (one.backend.value, one.precision.value, str(one.shape.tokens), error, allowed, ran)


def _failed(checks: Sequence[Check]) -> list[str]:
    failed = [check for check in checks if not check.passed]
    said = f"{len(checks) - len(failed)} of {len(checks)} passed."
    return [said, *(f"- FAILED {check.name}: {check.detail}" for check in failed)]


def _mean_error(runs: Sequence[CheckedRun]) -> str:
    errors = [abs(run.relative_error["iteration_s"]) for run in runs if "iteration_s" in run.relative_error]
    if not errors:
        return "No iteration time stands beside a prediction."
    inside = [
        run.predicted_interval_s[0] <= value <= run.predicted_interval_s[1]
        for run in runs
        if run.predicted_interval_s is not None and (value := run.measured["iteration_s"]) is not None
    ]
    return (
        f"Iteration time: mean absolute error {100 * math.fsum(errors) / len(errors):.1f}% over {len(errors)} runs;"
        f" {sum(inside)} of {len(inside)} inside the predicted interval."
    )


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    if not rows:
        return ["(nothing)"]
    return [f"| {' | '.join(line)} |" for line in (header, ["---"] * len(header), *rows)]


def _number(value: float | None, form: str, times: float = 1.0) -> str:
    return "" if value is None else format(value * times, form)


def _or(value: str | None, otherwise: str = "unknown") -> str:
    return value or otherwise
