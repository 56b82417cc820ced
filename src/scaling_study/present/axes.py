"""Axes as plain values: a column, a title, the interval spanned. Charts, labels and tests read the same numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import altair as alt
import msgspec
import polars as pl


class Range(msgspec.Struct, frozen=True):
    """The interval that an axis spans, in its reading direction; `log` is the base of a logarithmic one."""

    low: float
    high: float
    log: float | None = None

    def scale(self) -> alt.Scale:
        """The Vega-Lite scale."""
        domain = [self.low, self.high]
        if self.log:
            return alt.Scale(type="log", base=self.log, domain=domain, nice=False)
        return alt.Scale(domain=domain, nice=False, zero=False)

    def fraction(self, value: float) -> float:
        """Where a value lies: 0 at `low`, 1 at `high`."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def with_room(self, fraction: float) -> Range:
        """The range begun earlier, so that what was its low end lies at this fraction."""
        return Range(_six(self.value(-fraction / (1 - fraction))), self.high, self.log)

    def value(self, fraction: float) -> float:
        """The inverse of `fraction`."""
        if self.log:
            return float(self.low * (self.high / self.low) ** fraction)
        return self.low + fraction * (self.high - self.low)


class Axis(msgspec.Struct, frozen=True, kw_only=True):
    """One axis of a panel.

    Attributes:
        column: what is drawn along it.
        options: of the Vega-Lite axis, over those of the theme.
    """

    column: str
    title: str | None
    span: Range
    options: dict[str, Any] = {}

    def x(self, column: str | None = None) -> alt.X:
        """The horizontal channel, of another column on the same axis if one is given."""
        return alt.X(f"{column or self.column}:Q", scale=self.span.scale(), axis=self._axis())

    def y(self, column: str | None = None) -> alt.Y:
        """The vertical channel, of another column on the same axis if one is given."""
        return alt.Y(f"{column or self.column}:Q", scale=self.span.scale(), axis=self._axis())

    def _axis(self) -> alt.Axis:
        return alt.Axis(title=self.title, **self.options)


def value_axis(column: str, title: str | None, span: Range, **options: Any) -> Axis:
    """An axis of a metric: few ticks, a light grid, no line; SI prefixes unless a d3 `format` is given."""
    defaults = {
        "tickCount": 5,
        "format": "~s",
        "labelExpr": "datum.value == 0 ? '0' : datum.label",
        "domain": False,
        "ticks": False,
        "labelOverlap": True,
    }
    return Axis(column=column, title=title, span=span, options={**defaults, **options})


def log_axis(column: str, title: str | None, span: Range, **options: Any) -> Axis:
    """A decimal logarithmic axis: ticks at 1, 2 and 5, at powers of ten alone where they are many, at more if few."""
    inside = _ticks(span, (1, 2, 5) if span.high / span.low < 60 else (1,))
    ticks = inside if len(inside) > 1 else _ticks(span, (1, 1.5, 2, 3, 5, 7))
    return value_axis(column, title, span, **{"values": ticks, **options})


def _ticks(span: Range, steps: Sequence[float]) -> list[float]:
    low, high = math.floor(math.log10(span.low)), math.ceil(math.log10(span.high))
    ticks = [step * 10.0**power for power in range(low, high + 1) for step in steps]
    return [_six(tick) for tick in ticks if span.low <= tick <= span.high]


def doubling_axis(column: str, values: pl.Series, title: str | None) -> Axis:
    """An axis on which every doubling takes the same room, with the values themselves as integer labels."""
    ticks = values.drop_nulls().unique().sort().to_list()
    options: dict[str, Any] = {
        "values": ticks,
        "format": ",d",
        "labelOverlap": "parity",
        "labelSeparation": 3,
        "grid": False,
    }
    return Axis(column=column, title=title, span=logarithmic(values, base=2, margin=1.3), options=options)


def size_axis(column: str, values: pl.Series, title: str | None, *, room: float = 0) -> Axis:
    """A doubling axis of sizes in bytes, labelled in binary units.

    Args:
        room: fraction of the axis left free before the smallest size, for names of lines.
    """
    axis = doubling_axis(column, values, title)
    ticks = axis.options["values"]
    names = ",".join(f"'{binary_size(tick)}'" for tick in ticks)
    options = {**axis.options, "labelExpr": f"[{names}][indexof({ticks},datum.value)]"}
    return msgspec.structs.replace(axis, span=axis.span.with_room(room), options=options)


def binary_size(size_bytes: int) -> str:
    """A size in the largest binary unit of which it has at least one: `64 KiB`."""
    power = min(int(math.log2(size_bytes)) // 10, 4) if size_bytes else 0
    return f"{size_bytes / 1024**power:.4g} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"


def row_axis(column: str, labels: Sequence[str], title: str | None) -> Axis:
    """A vertical axis of named rows, the first on top; the column holds row numbers."""
    quoted = [label.replace("'", "\\'") for label in labels]
    names = "[" + ",".join(f"'{label}'" for label in quoted) + "]"
    options = {
        "values": list(range(len(labels))),
        "labelExpr": f"{names}[datum.value]",
        "domain": False,
        "ticks": False,
        "labelOverlap": False,
    }
    return Axis(column=column, title=title, span=Range(len(labels) - 0.5, -0.5), options=options)


def from_zero(*columns: pl.Series) -> Range:
    """A linear range from zero to a little above the greatest value."""
    return Range(0.0, _six(max(_finite(columns), default=1.0) * 1.12) or 1.0)


def logarithmic(*columns: pl.Series, base: float = 10, margin: float = 1.25) -> Range:
    """A logarithmic range a little wider than the positive values."""
    values = [value for value in _finite(columns) if value > 0] or [1.0]
    return Range(_six(min(values) / margin), _six(max(values) * margin), base)


def around(*columns: pl.Series) -> Range:
    """A linear range a little wider than the values."""
    values = _finite(columns) or [0.0, 1.0]
    margin = 0.1 * (max(values) - min(values)) or 0.1 * abs(max(values)) or 1.0
    return Range(_six(min(values) - margin), _six(max(values) + margin))


def _finite(columns: Sequence[pl.Series]) -> list[float]:
    return [float(value) for column in columns for value in column.drop_nulls().to_list() if math.isfinite(value)]


def _six(value: float) -> float:
    return float(f"{value:.6g}")
