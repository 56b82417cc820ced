"""Claims of the sources as assertions about records: what is measured in them, and what must come out.

An assertion is written with one of a few measures over rows that a sweep's records or a table of definitions give;
there are no expressions. `present/claims` evaluates them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Annotated, Literal, get_args

import msgspec
from msgspec import Meta

from scaling_study.spec.words import Precision

Number = int | float
Direction = Literal["rising", "falling"]
Name = Annotated[str, Meta(pattern="^[a-z0-9_]+$")]


class Expected(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a number must be: between bounds (`above` and `below` are strict), or a value met within a tolerance.

    Attributes:
        within: how far off the value it may be; `within_share`: the same as a share of the value.
    """

    above: Number | None = None
    below: Number | None = None
    at_least: Number | None = None
    at_most: Number | None = None
    value: Number | None = None
    within: Annotated[float, Meta(gt=0)] | None = None
    within_share: Annotated[float, Meta(gt=0)] | None = None

    def __post_init__(self) -> None:
        bounds = (self.above, self.below, self.at_least, self.at_most)
        tolerances = [one for one in (self.within, self.within_share) if one is not None]
        if (self.value is None) == all(bound is None for bound in bounds):
            raise ValueError("give bounds (above, below, at_least, at_most), or a value with a tolerance")
        if len(tolerances) != (self.value is not None):
            raise ValueError("a value, and only a value, needs `within` or `within_share`")

    @property
    def tolerance(self) -> float:
        """How far off the value a number may be; 0 for bounds."""
        share = abs(self.value or 0) * (self.within_share or 0)
        return self.within if self.within is not None else share

    def holds(self, number: float) -> bool:
        """Whether a number is what it must be."""
        if self.value is not None:
            return abs(number - self.value) <= self.tolerance
        return (
            (self.above is None or number > self.above)
            and (self.below is None or number < self.below)
            and (self.at_least is None or number >= self.at_least)
            and (self.at_most is None or number <= self.at_most)
        )


Condition = str | int | list[str | int] | Expected
Where = dict[str, Condition]


#: Fields of checks that name columns, or hold conditions on them.
_COLUMNS = ("of", "along", "against", "least", "more", "less", "where", "each", "at", "since", "than", "beyond_where")


class Check(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="measure"):
    """One assertion: a measure, and what must come out of it.

    Attributes:
        expect: that.
        shape: what must come out for the claim to hold in shape, where the number of `expect` is missed.
        unit: how the number is shown: `%` or `points` for a fraction, else behind it.
    """

    expect: Expected
    shape: Expected | None = None
    unit: str = ""


class RowCheck(Check, frozen=True, kw_only=True):
    """A measure over rows: the `ok` records of a sweep, every layout with its fastest micro-batch, or a table.

    Where a measure needs one row of several, the fastest stands for them; repeats are averaged.

    Attributes:
        sweep: whose records; `table` instead: a table of definitions, such as `hst-table1`.
        where: what columns of every row must be: a value, a list of values, or bounds.
        each: columns with values: the assertion must hold for every combination of them.
    """

    sweep: Name | None = None
    table: Annotated[str, Meta(pattern="^[a-z0-9-]+$")] | None = None
    where: Where = {}
    each: dict[str, list[str | int]] = {}

    def __post_init__(self) -> None:
        if (self.sweep is None) == (self.table is None):
            raise ValueError("a check is of a `sweep` or of a `table`")

    @property
    def columns(self) -> set[str]:
        """Every column that it names."""
        names: set[str] = set()
        for field in self.__struct_fields__:
            value = getattr(self, field)
            if field in _COLUMNS and value:
                names |= {value} if isinstance(value, str) else set(value)
        return names

    def cases(self) -> Iterator[Where]:
        """The conditions of `each`, a mapping a combination; one empty mapping where there are none."""
        for values in itertools.product(*self.each.values()):
            yield dict(zip(self.each, values, strict=True))


class ValueCheck(RowCheck, frozen=True, kw_only=True, tag="value"):
    """A column at one point."""

    of: str
    at: Where = {}


class ChangeCheck(RowCheck, frozen=True, kw_only=True, tag="change"):
    """The relative change of a column from one point to another, -0.37 for a fall by 37%.

    Attributes:
        since: the first point; `since_sweep`: of another sweep.
        least: the first point is among the rows in which this column is smallest.
    """

    of: str
    at: Where = {}
    since: Where = {}
    since_sweep: Name | None = None
    least: str | None = None


class DifferenceCheck(RowCheck, frozen=True, kw_only=True, tag="difference"):
    """The difference of a column between two points, in the column's unit."""

    of: str
    at: Where = {}
    since: Where = {}


class SpreadCheck(RowCheck, frozen=True, kw_only=True, tag="spread"):
    """The largest over the smallest value of a column along another, less one."""

    of: str
    along: str


class TrendCheck(RowCheck, frozen=True, kw_only=True, tag="trend"):
    """The relative change at the step along a column that goes most against a direction: rising, or falling."""

    of: str
    along: str
    direction: Direction
    order: list[str | int] = []


class GainCheck(RowCheck, frozen=True, kw_only=True, tag="gain"):
    """What a change from one point to another gains along a column: its step that goes most against a direction."""

    of: str
    along: str
    since: Where
    at: Where
    direction: Direction


class TurningCheck(RowCheck, frozen=True, kw_only=True, tag="turning"):
    """How a slope turns along a column: its smallest gain from step to step, over the steepest; convex from 0 on."""

    of: str
    along: str


class FitCheck(RowCheck, frozen=True, kw_only=True, tag="fit"):
    """R2 of a straight line through a column along another."""

    of: str
    along: str


class ExtrapolationCheck(RowCheck, frozen=True, kw_only=True, tag="extrapolation"):
    """How far a straight line through the points of `since` misses the point `at`, as a share of its value."""

    of: str
    along: str
    since: Where
    at: Where


class CorrelationCheck(RowCheck, frozen=True, kw_only=True, tag="correlation"):
    """Spearman's correlation of two columns over layouts."""

    of: str
    against: str


class MarginCheck(RowCheck, frozen=True, kw_only=True, tag="margin"):
    """The smallest value of a column among some rows, over the smallest among others."""

    of: str
    at: Where
    since: Where


class CountCheck(RowCheck, frozen=True, kw_only=True, tag="count"):
    """How many rows there are, or how many outdo a baseline.

    Attributes:
        at: the rows that count.
        than: the baseline; it is not counted.
        more, less: columns in which a row must lie above, and below, the baseline.
        beyond: less the number of such rows in another sweep.
        beyond_where: conditions on that sweep's rows.
    """

    at: Where = {}
    than: Where = {}
    more: list[str] = []
    less: list[str] = []
    beyond: Name | None = None
    beyond_where: Where = {}

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool(self.than) != bool(self.more or self.less):
            raise ValueError("a baseline (`than`) goes with columns to compare (`more`, `less`)")


class TransferCheck(Check, frozen=True, kw_only=True, tag="transfer"):
    """The time of bytes over a bandwidth, s: the least that a collective takes."""

    size_bytes: Annotated[float, Meta(gt=0)]
    gb_per_s: Annotated[float, Meta(gt=0)]


class DecodeCheck(Check, frozen=True, kw_only=True, tag="decode"):
    """The largest share of a part's peak that decoding can reach: every weight is read once a step.

    Attributes:
        batch: sequences that are decoded together.
    """

    model: str
    hardware: str
    precision: Precision
    batch: Annotated[int, Meta(gt=0)]


class BusyCheck(Check, frozen=True, kw_only=True, tag="busy"):
    """The share of the time in which a kernel runs, if one is launched every so often."""

    kernel_us: Annotated[float, Meta(gt=0)]
    every_us: Annotated[float, Meta(gt=0)]


AnyRowCheck = (
    ValueCheck
    | ChangeCheck
    | DifferenceCheck
    | SpreadCheck
    | TrendCheck
    | GainCheck
    | TurningCheck
    | FitCheck
    | ExtrapolationCheck
    | CorrelationCheck
    | MarginCheck
    | CountCheck
)
AnyCheck = AnyRowCheck | TransferCheck | DecodeCheck | BusyCheck
#: The names of all measures.
MEASURES = tuple(str(kind.__struct_config__.tag) for kind in get_args(AnyCheck))


class Claim(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A sentence of a source as assertions about records.

    Attributes:
        source: where the source says it.
        says: what it says, in our words.
        kind: `exact`: numbers to be met; `shape`: an inequality or a trend.
        about: `hardware`: runs on CPUs say nothing of it; `method`: they do.
        figures: that show it.
        assumptions: what the source leaves open and is decided here.
        checks: all must hold.
    """

    source: str
    says: str
    kind: Literal["exact", "shape"]
    about: Literal["hardware", "method"] = "hardware"
    figures: tuple[str, ...]
    assumptions: tuple[str, ...] = ()
    checks: Annotated[tuple[AnyCheck, ...], Meta(min_length=1)]

    def __post_init__(self) -> None:
        if self.kind == "shape" and any(check.shape for check in self.checks):
            raise ValueError("`shape` is of claims of the kind exact")

    @property
    def sweeps(self) -> set[str]:
        """The sweeps that it is about."""
        names = ("sweep", "since_sweep", "beyond")
        return {name for check in self.checks for field in names if (name := getattr(check, field, None))}

    @property
    def tables(self) -> set[str]:
        """The tables of definitions that it is about."""
        return {name for check in self.checks if (name := getattr(check, "table", None))}


class Claims(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every claim by its id.

    Attributes:
        apart: studies whose sweeps share names with those that claims are about, and are of something else.
    """

    title: str
    apart: tuple[str, ...] = ()
    claims: dict[str, Claim]
