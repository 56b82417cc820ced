"""Two campaigns against each other: which numbers moved by more than their noise, and which runs only one of them has.

The rule: a number has a range, and it moved where its two ranges have nothing in common. The range of a measured time
is from the 5th to the 95th percentile of its iterations or calls, over all repeats of a run. Other metrics of a run
have no percentiles of their own and get the same room in proportion. A prediction has no noise: beside another
prediction it moved where the two differ by more than sums do in their last digits, beside a measurement its range is
the model's interval. Losses in fp32 are the same within 1e-5. Rates follow from times and are not looked at twice.
Without repeats only the noise within a run is known, not that from one start to the next.
"""

from __future__ import annotations

import msgspec
import polars as pl

from scaling_study.errors import UserError
from scaling_study.records.schema import RUN_COLUMNS
from scaling_study.spec import Outcome, Provenance

#: Metrics that are compared, each with the time whose noise it has.
METRICS = {
    "iteration_s": "iteration_s",
    "compute_s": "iteration_s",
    "communication_s": "iteration_s",
    "exposed_communication_s": "iteration_s",
    "power_w_per_gpu": "iteration_s",
    "peak_memory_gib": "iteration_s",
    "call_s": "call_s",
}
LOSS, LOSS_TOLERANCE = "final_loss", 1e-5
#: Relative difference of two predictions of the same: sums differ in their last bits between processors.
LAST_DIGITS = 1e-6

NUMBERS: dict[str, type[pl.DataType]] = {
    "run_id": pl.String,
    "metric": pl.String,
    "provenance_a": pl.String,
    "provenance_b": pl.String,
    "a": pl.Float64,
    "a_low": pl.Float64,
    "a_high": pl.Float64,
    "b": pl.Float64,
    "b_low": pl.Float64,
    "b_high": pl.Float64,
    "change": pl.Float64,
    "moved": pl.Boolean,
}
_SAME_RUN = [name for name in RUN_COLUMNS if name not in ("run_id", "provenance", "repeat")]


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """What two campaigns say of the same runs.

    Attributes:
        numbers: every number that both have (`NUMBERS`), those that moved first, by how far.
        outcomes: runs that ended in different ways: `run_id`, `a`, `b`.
        only_a, only_b: ids of runs that one of them has, repeats as one.
        repeated: both have measured runs with repeats, so that the noise from one start to the next is known.
    """

    numbers: pl.DataFrame
    outcomes: pl.DataFrame
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    repeated: bool

    @property
    def moved(self) -> pl.DataFrame:
        """The numbers that moved."""
        return self.numbers.filter(pl.col("moved"))


def compare(a: pl.DataFrame, b: pl.DataFrame) -> Comparison:
    """Compare records of the same runs, measured or predicted twice, or measured once and predicted once.

    Args:
        a: records; a column `sweep`, if it is there, tells runs apart as well.
        b: likewise.

    Raises:
        UserError: they have no run in common.
    """
    first, second = _runs(a), _runs(b)
    pairs = _pairs(first, second)
    if pairs.is_empty():
        raise UserError(
            "they have no run in common",
            where="compare",
            remedy="Compare records of one study: runs of another model, hardware or protocol are other runs.",
        )
    ended = pairs.filter(pl.col("outcome") != pl.col("outcome_b"))
    return Comparison(
        numbers=_numbers(pairs),
        outcomes=ended.select("run_id", a="outcome", b="outcome_b").unique().sort("run_id"),
        only_a=_without(first, second),
        only_b=_without(second, first),
        repeated=all(_has_repeats(records) for records in (a, b)),
    )


def _runs(records: pl.DataFrame) -> pl.DataFrame:
    """One row a run and provenance, repeats as one: means, with ranges over all of them.

    Adds `run`, which is the same for the same run, and for each metric `<metric>_from` and `<metric>_to`.
    """
    ranges = [expression for metric, time in METRICS.items() for expression in _range(metric, time)]
    sweep = ["sweep"] if "sweep" in records.columns else []
    same = pl.concat_str([pl.col(name).cast(pl.String).fill_null("") for name in [*_SAME_RUN, *sweep]], separator="|")
    once = records.unique(["run_id", "provenance", *sweep], keep="first", maintain_order=True)
    frame = once.with_columns(*ranges, run=same)
    measured = [*METRICS, LOSS]
    return (
        frame.sort("run_id")
        .group_by("run", "provenance", maintain_order=True)
        .agg(
            pl.col("run_id", "precision").first(),
            pl.col("outcome").unique().sort().str.join(", "),
            pl.col(measured).mean(),
            *(pl.col(f"{metric}_from").min() for metric in METRICS),
            *(pl.col(f"{metric}_to").max() for metric in METRICS),
        )
    )


def _has_repeats(records: pl.DataFrame) -> bool:
    measured = records.filter(pl.col("provenance") == Provenance.MEASURED)
    return not measured.filter(pl.col("repeat") > 0).is_empty()


def _range(metric: str, time: str) -> tuple[pl.Expr, pl.Expr]:
    low = pl.coalesce(f"{time}_p05", f"{time}_low") / pl.col(time)
    high = pl.coalesce(f"{time}_p95", f"{time}_high") / pl.col(time)
    return (pl.col(metric) * low).alias(f"{metric}_from"), (pl.col(metric) * high).alias(f"{metric}_to")


def _pairs(first: pl.DataFrame, second: pl.DataFrame) -> pl.DataFrame:
    """The same runs of both; of different provenance where neither has the other's."""
    same = first.join(second, on=["run", "provenance"], suffix="_b", how="inner", coalesce=False)
    rest = first.filter(~pl.col("run").is_in(same["run"].implode()))
    other = second.filter(~pl.col("run").is_in(same["run"].implode()))
    crossed = rest.join(other, on="run", suffix="_b", how="inner", coalesce=False)
    return pl.concat([same, crossed]).sort("run_id", "provenance", "provenance_b")


def _numbers(pairs: pl.DataFrame) -> pl.DataFrame:
    parts = [_of_metric(pairs, metric) for metric in METRICS]
    frame = pl.concat([*parts, _losses(pairs)]).filter(pl.col("a").is_not_null() & pl.col("b").is_not_null())
    size = pl.col("change").abs().round_sig_figs(6)
    ordered = frame.sort("moved", size, "run_id", "metric", descending=[True, True, False, False], nulls_last=True)
    return ordered.unique(["run_id", "metric", "provenance_a", "provenance_b"], keep="first", maintain_order=True)


def _of_metric(pairs: pl.DataFrame, metric: str) -> pl.DataFrame:
    predicted = (pl.col("provenance") == Provenance.PREDICTED) & (pl.col("provenance_b") == Provenance.PREDICTED)
    room = pl.lit(LAST_DIGITS / 2)

    def end(name: str, side: str, sign: int) -> pl.Expr:
        value = pl.col(f"{metric}{side}")
        return pl.when(predicted).then(value * (1 + sign * room)).otherwise(pl.col(f"{metric}_{name}{side}"))

    return _columns(pairs, metric, [(end("from", side, -1), end("to", side, 1)) for side in ("", "_b")])


def _losses(pairs: pl.DataFrame) -> pl.DataFrame:
    """The last loss of runs in fp32; others round too much for it to be the same elsewhere."""
    exact = pairs.filter(pl.col("precision") == "fp32")
    room = LOSS_TOLERANCE / 2
    ends = [(pl.col(f"{LOSS}{side}") * (1 - room), pl.col(f"{LOSS}{side}") * (1 + room)) for side in ("", "_b")]
    return _columns(exact, LOSS, ends)


def _columns(pairs: pl.DataFrame, metric: str, ends: list[tuple[pl.Expr, pl.Expr]]) -> pl.DataFrame:
    (a_low, a_high), (b_low, b_high) = ends
    frame = pairs.filter((pl.col("outcome") == Outcome.OK) & (pl.col("outcome_b") == Outcome.OK)).select(
        "run_id",
        metric=pl.lit(metric),
        provenance_a="provenance",
        provenance_b="provenance_b",
        a=metric,
        a_low=a_low,
        a_high=a_high,
        b=f"{metric}_b",
        b_low=b_low,
        b_high=b_high,
    )
    apart = (pl.col("a_high") < pl.col("b_low")) | (pl.col("b_high") < pl.col("a_low"))
    change = pl.when(pl.col("a") != 0).then(pl.col("b") / pl.col("a") - 1)
    return frame.with_columns(change=change, moved=apart.fill_null(value=False)).cast(NUMBERS)  # type: ignore[arg-type]


def _without(those: pl.DataFrame, others: pl.DataFrame) -> tuple[str, ...]:
    return tuple(those.filter(~pl.col("run").is_in(others["run"].implode()))["run_id"].unique().sort())
