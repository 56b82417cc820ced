"""What a number is, how numbers of the same records are collected, and how values become text."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
import polars as pl

from scaling_study.present.theme import MINUS_SIGN, TIMES_SIGN

#: A relative change below this is called none.
NEGLIGIBLE = 0.02

Value = float | int | str


class Number(msgspec.Struct, frozen=True, kw_only=True):
    """One number of the paper.

    Attributes:
        text: as printed.
        value: as computed, not rounded.
        runs: ids of the runs it was computed from, sorted.
        provenance: of those runs.
    """

    text: str
    value: Value
    runs: tuple[str, ...]
    provenance: tuple[str, ...]


class Pad:
    """Collects numbers that come from the same records, under one prefix."""

    def __init__(self, prefix: str, source: pl.DataFrame) -> None:
        self.prefix, self.source = prefix, source
        self.numbers: dict[str, Number] = {}

    def add(
        self,
        name: str,
        value: Value | None,
        show: Callable[[Any], str] | None = None,
        source: pl.DataFrame | None = None,
    ) -> None:
        """A number, unless its value is not known.

        Args:
            name: behind the prefix.
            value: None or an empty text where the records do not give it.
            show: makes its text; `plain`, if not given.
            source: the records it comes from, if not all of the pad's.
        """
        if value is None or value == "":
            return
        rows = self.source if source is None else source
        runs, kinds = (tuple(rows[column].unique().sort().to_list()) for column in ("run_id", "provenance"))
        text = (show or plain)(value)
        self.numbers[f"{self.prefix}.{name}"] = Number(text=text, value=value, runs=runs, provenance=kinds)


def plain(value: Value) -> str:
    """A text as it is, a whole number with thousands apart, another as short as it is exact."""
    return value if isinstance(value, str) else f"{value:,}" if isinstance(value, int) else f"{value:g}"


def quantity(value: float) -> str:
    """Three significant digits, with thousands apart."""
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 100 else f"{rounded:.3g}"


def percent(value: float) -> str:
    """A fraction as a percentage, with one decimal below ten percent."""
    shown = f"{value * 100:.1f}" if 0 < abs(value) < 0.0995 else f"{value * 100:.0f}"
    return f"{shown}%".replace("-", MINUS_SIGN)


def milliseconds(value: float) -> str:
    """Seconds in ms."""
    return f"{quantity(value * 1e3)} ms"


def gigabytes_per_second(value: float) -> str:
    """A bandwidth in 1e9 bytes per second."""
    return f"{quantity(value)} GB/s"


def hundredths(value: float) -> str:
    """Two decimals, with the sign of the printed page."""
    return f"{value:.2f}".replace("-", MINUS_SIGN)


def longer(value: float) -> str:
    """A relative difference of times: `8.0% longer`."""
    return f"{percent(abs(value))} {'shorter' if value < 0 else 'longer'}"


def counted(count: int, noun: str) -> str:
    """A count with its noun: `1 thread`, `4 threads`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def joined(parts: Sequence[str]) -> str:
    """A list as prose: `1, 2 and 4`."""
    return " and ".join(part for part in (", ".join(parts[:-1]), *parts[-1:]) if part)


def listed(column: pl.Series) -> str:
    """The values of a column as prose, each once, in natural order."""
    return joined([plain(value) for value in in_order(column.drop_nulls())])


def in_order(values: Iterable[Any]) -> list[Any]:
    """Values, each once, in natural order: numbers by size, also those within texts, `mini-9m` before `mini-20m`."""
    return sorted(set(values), key=_natural)


def _natural(value: Any) -> Any:
    """A key of texts in which every second part is a number, so that parts of the same kind meet."""
    if not isinstance(value, str):
        return value
    return [int(part) if index % 2 else part for index, part in enumerate(re.split(r"(\d+)", value))]


def one_of(column: pl.Series) -> Value | None:
    """The value of a column that has but one; None otherwise."""
    values = column.drop_nulls().unique().to_list()
    return values[0] if len(values) == 1 else None


def layout_name(row: Mapping[str, Any]) -> str:
    """Tensor by pipeline degree, not to be broken over lines."""
    return f"{row['tp']}\N{NO-BREAK SPACE}{TIMES_SIGN}\N{NO-BREAK SPACE}{row['pp']}"


def moves(before: float | None, after: float | None) -> str | None:
    """What becomes of a metric, as a phrase that follows its name: `falls by 12%`; None where it is not known."""
    if before is None or after is None:
        return None
    if before == 0:
        return "rises from zero" if after > 0 else "stays at zero"
    change = after / before - 1
    if abs(change) < NEGLIGIBLE:
        return "hardly changes"
    if change >= 2:
        return f"grows to {quantity(1 + change)} times its value"
    return f"{'rises' if change > 0 else 'falls'} by {percent(abs(change))}"


def trend(values: Sequence[float | None]) -> str | None:
    """What becomes of a metric from the first to the last value, and whether every step goes that way."""
    known = [value for value in values if value is not None]
    if len(known) < 2 or len(known) < len(values):
        return None
    said = moves(known[0], known[-1])
    way = known[-1] - known[0]
    changes = [
        (after - before, abs(after - before) / (abs(before) or 1.0)) for before, after in itertools.pairwise(known)
    ]
    if said == "hardly changes":
        moved = any(size >= NEGLIGIBLE for _, size in changes)
        return "ends where it began, though not without changing between" if moved else said
    astray = any(step * way < 0 and size >= NEGLIGIBLE for step, size in changes)
    return f"{said}, though not at every step" if astray else said
