"""Checks and numbers of claims in words, for tables that people read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scaling_study.present.axes import binary_size
from scaling_study.present.theme import MINUS_SIGN
from scaling_study.spec.claims import (
    BusyCheck,
    ChangeCheck,
    Check,
    Condition,
    CorrelationCheck,
    CountCheck,
    DecodeCheck,
    DifferenceCheck,
    Expected,
    ExtrapolationCheck,
    FitCheck,
    GainCheck,
    MarginCheck,
    RowCheck,
    SpreadCheck,
    TransferCheck,
    TrendCheck,
    TurningCheck,
    ValueCheck,
    Where,
)

#: Columns whose names are not words.
LABELS = {
    "words_per_second": "words/s",
    "words_per_second_per_gpu": "words/s per GPU",
    "tflops_per_gpu": "TFLOPS per GPU",
    "mfu": "MFU",
    "gpus": "GPUs",
    "dp": "the data-parallel size",
    "power_w_per_gpu": "power per GPU",
    "total_power_w": "total power",
    "compute_s": "compute time",
    "communication_s": "communication time",
    "exposed_communication_s": "exposed communication",
    "exposed_fraction": "the exposed share",
    "exposed_of_communication": "the exposed part of communication",
    "peak_memory_gib": "peak memory",
    "iteration_s_cv": "the variation of iterations",
    "bus_bandwidth_gb_per_s": "bus bandwidth",
    "model_parallel": "tp*pp",
}
#: Columns whose single values say by themselves what they are of.
_SAID: dict[str, Callable[[Any], str]] = {
    "gpus": lambda value: f"{value:,} GPUs",
    "nodes": lambda value: f"{value} node{'' if value == 1 else 's'}",
    "hardware": lambda value: str(value).upper(),
    "model": str,
    "op": lambda value: str(value).replace("_", "-"),
    "message_bytes": binary_size,
    "pacing": lambda value: f"pacing {value}",
    "global_batch": lambda value: f"batch {value:,}",
}
_TEMPLATES: dict[type[Check], str] = {
    ValueCheck: "{of} at {at}",
    ChangeCheck: "change of {of} from {since} to {at}",
    DifferenceCheck: "difference of {of} from {since} to {at}",
    SpreadCheck: "spread of {of} along {along}",
    TrendCheck: "worst step of {of}, {direction} with {along}",
    GainCheck: "worst step of the change of {of} from {since} to {at}, {direction} with {along}",
    TurningCheck: "least turn of the slope of {of} along {along}",
    FitCheck: "R2 of {of} along {along}",
    ExtrapolationCheck: "error of {of} at {at}, extrapolated from {since}",
    CorrelationCheck: "Spearman of {of} and {against}",
    MarginCheck: "least {of} of {at}, over that of {since}",
    TransferCheck: "time of {size_bytes} MB over {gb_per_s} GB/s",
    DecodeCheck: "largest share of the peak of {hardware} in decoding {batch} of {model}",
    BusyCheck: "share of the time in which a kernel of {kernel_us} us runs, one every {every_us} us",
}
_SIGNS = {
    "above": ">",
    "below": "<",
    "at_least": "\N{GREATER-THAN OR EQUAL TO}",
    "at_most": "\N{LESS-THAN OR EQUAL TO}",
}


def label(column: str) -> str:
    """A column as words."""
    return LABELS.get(column, column.replace("_", " "))


def say(conditions: Where) -> str:
    """Conditions as words: `128 GPUs, tp*pp 2 or 4`."""
    return ", ".join(_condition(name, condition) for name, condition in conditions.items())


def _condition(name: str, condition: Condition) -> str:
    if isinstance(condition, list):
        said = " or ".join(map(str, condition))
    elif isinstance(condition, Expected):
        said = expected(condition, "")
    elif name in _SAID:
        return _SAID[name](condition)
    else:
        said = str(condition)
    return f"{label(name)} {said}"


def what(check: Check, case: Where) -> str:
    """What a check measures, in words; `case`: one combination of its `each`."""
    fields = {name: _field(getattr(check, name)) for name in check.__struct_fields__}
    if isinstance(check, TransferCheck):
        fields["size_bytes"] = f"{check.size_bytes / 1e6:g}"
    if isinstance(check, CountCheck):
        said = _count(check)
    else:
        fields["since"] = fields.get("since") or f"the least {fields.get('least')}"
        fields["at"] = fields.get("at") or "the best"
        said = _TEMPLATES[type(check)].format(**fields)
    conditions = say({**check.where, **case}) if isinstance(check, RowCheck) else ""
    return f"{said} ({conditions})" if conditions else said


def _field(value: Any) -> str:
    """A field of a check in words: conditions, a column, or a number."""
    if isinstance(value, dict):
        return say(value)
    return f"{value:g}" if isinstance(value, float) else label(str(value or ""))


def _count(check: CountCheck) -> str:
    said = f"number in {check.sweep or check.table} of {say(check.at) or 'rows'}"
    if check.than:
        outdone = [*(f"more {label(one)}" for one in check.more), *(f"less {label(one)}" for one in check.less)]
        said = f"{said} with {' and '.join(outdone)} than {say(check.than)}"
    return f"{said}, less that of {check.beyond}" if check.beyond else said


def asked_of(check: Check) -> str:
    """What must come out of a check, in words."""
    one = check.expect
    if isinstance(check, TrendCheck | GainCheck) and 0 in (one.above, one.below):
        against = (check.direction == "rising") != (one.above == 0)
        return f"{'not ' if against else ''}{check.direction} at every step"
    if isinstance(check, ChangeCheck | DifferenceCheck) and 0 in (one.above, one.below):
        return "a rise" if one.above == 0 else "a fall"
    return expected(one, check.unit)


def expected(one: Expected, unit: str) -> str:
    """What must come out, in words."""
    if one.value is None:
        ends = [(sign, getattr(one, name)) for name, sign in _SIGNS.items() if getattr(one, name) is not None]
        return " and ".join(f"{sign} {shown(end, unit)}" for sign, end in ends)
    if one.within_share is not None:
        return f"{shown(one.value, unit)} \N{PLUS-MINUS SIGN} {one.within_share * 100:g}%"
    off = shown(one.tolerance, "points" if unit == "%" else unit)
    return f"{shown(one.value, unit).removesuffix(' points')} \N{PLUS-MINUS SIGN} {off}"


def shown(value: float, unit: str) -> str:
    """A number with its unit, four digits: fractions as percent or points, seconds as microseconds."""
    scale = {"%": 100, "points": 100, "us": 1e6}.get(unit, 1)
    text = f"{float(f'{value * scale:.4g}'):g}".replace("-", MINUS_SIGN)
    return f"{text}%" if unit == "%" else f"{text} {unit}".strip()


def between(ends: tuple[float, float] | None, unit: str) -> str:
    """An interval with its unit; empty where there is none."""
    return "" if ends is None else f"{shown(ends[0], '%' if unit == '%' else '')} to {shown(ends[1], unit)}"
