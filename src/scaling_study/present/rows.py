"""Records on their way to a chart: which of them are drawn, rounded and in a fixed order, and what is said of them.

Rounding to six significant digits and sorting make outputs the same bytes on every machine: sums over groups may
differ in their last bit. No record is dropped in silence: a run that left no numbers becomes a cross, a metric that
is not defined becomes a sentence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import polars as pl

from scaling_study.errors import UserError
from scaling_study.present.context import FigureContext
from scaling_study.present.theme import MARKS, MINUS_SIGN, TIMES_SIGN
from scaling_study.records import best_layouts, reason_for
from scaling_study.records.schema import LAYOUT
from scaling_study.spec import Outcome, Provenance

SIGNIFICANT_DIGITS = 6
#: Altair refuses 5,000 rows; a figure of the study needs some tens.
ROW_BUDGET = 4_999
#: Throughput of a GPU; of all, and its spread as `with_spread` adds it.
LOCAL_RATE = "words_per_second_per_gpu"
RATE, LOW, HIGH = "words_per_second", "words_per_second_low", "words_per_second_high"
#: Bandwidth of a collective, and its spread as `with_bandwidth_spread` adds it.
BANDWIDTH, BANDWIDTH_LOW, BANDWIDTH_HIGH = "bus_bandwidth_gb_per_s", "bus_bandwidth_low", "bus_bandwidth_high"
#: Whether a record is of data parallelism alone.
ALONE = (pl.col("tp") == 1) & (pl.col("pp") == 1)
#: What tells one workload at one scale from another, whatever the layout: a group of which the fastest layout stands.
ACROSS_LAYOUTS = tuple(name for name in LAYOUT if name not in ("dp", "tp", "pp"))


def chosen(records: pl.DataFrame, by: Sequence[str] = LAYOUT) -> pl.DataFrame:
    """One row a layout and provenance: its fastest `ok` record, or one that says how it ended where none is ok.

    Args:
        by: the columns of a group, if not those of a layout.
    """
    group = ["provenance", *by]
    best = best_layouts(records, by)
    ended = records.filter(pl.col("outcome") != Outcome.OK).join(
        best.select(group), on=group, how="anti", nulls_equal=True
    )
    ended = ended.sort("outcome", "run_id").unique(group, keep="first", maintain_order=True)
    return pl.concat([best, ended]).sort(*group)


def selected(records: pl.DataFrame, where: Mapping[str, str | int], figure: str) -> pl.DataFrame:
    """The records whose columns have these values.

    Args:
        records: of a sweep.
        where: the values, by column.
        figure: that asks for them, for the message.

    Raises:
        UserError: records have no such column, or no record has its value.
    """
    for name, value in where.items():
        if name not in records.columns:
            raise UserError(f"records have no column {name!r}", where=figure, remedy="Mend its `where`.")
        values = records[name].drop_nulls().unique().sort().to_list()
        if value not in values:
            shown = ", ".join(map(str, values)) or "none"
            raise UserError(f"no record has {name}: {value!r}", where=figure, remedy=f"Values there: {shown}.")
        records = records.filter(pl.col(name) == value)
    return records


def without_invalid(records: pl.DataFrame) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """The records that can be true, and a sentence for every other one; a table that is not of records as it is."""
    if not {"run_id", "outcome"} <= set(records.columns):
        return records, ()
    invalid = records.filter(outcome=Outcome.INVALID).sort("run_id", "provenance")
    said = [f"Not drawn, since it cannot be true: {row['run_id']}, {row['reason']}." for row in invalid.to_dicts()]
    return records.filter(pl.col("outcome") != Outcome.INVALID), tuple(said)


def rounded(frame: pl.DataFrame) -> pl.DataFrame:
    """Every float to six significant digits."""
    return frame.with_columns(pl.selectors.float().round_sig_figs(SIGNIFICANT_DIGITS))


def within_budget(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame itself.

    Raises:
        UserError: it has more rows than a chart may hold.
    """
    if frame.height > ROW_BUDGET:
        raise UserError(
            f"{frame.height:,} rows are more than the {ROW_BUDGET:,} that a chart may hold",
            where="figure",
            remedy="Aggregate the records first, or draw a smaller sweep.",
        )
    return frame


def with_spread(frame: pl.DataFrame) -> pl.DataFrame:
    """Adds `words_per_second_low` and `_high`: tokens of an iteration over its 95th and 5th percentile of time.

    Of a prediction, over the ends of its interval.
    """
    tokens = pl.col("global_batch") * pl.col("sequence_length")
    return frame.with_columns(
        words_per_second_low=tokens / pl.coalesce("iteration_s_p95", "iteration_s_high"),
        words_per_second_high=tokens / pl.coalesce("iteration_s_p05", "iteration_s_low"),
    )


def with_bandwidth_spread(frame: pl.DataFrame) -> pl.DataFrame:
    """Adds `bus_bandwidth_low` and `_high`: the bandwidth of a call as long as the 95th and the 5th percentile.

    Of a prediction, as long as the ends of its interval.
    """
    carried = pl.col("bus_bandwidth_gb_per_s") * pl.col("call_s")
    return frame.with_columns(
        bus_bandwidth_low=carried / pl.coalesce("call_s_p95", "call_s_high"),
        bus_bandwidth_high=carried / pl.coalesce("call_s_p05", "call_s_low"),
    )


def with_ideal(frame: pl.DataFrame) -> pl.DataFrame:
    """Adds `ideal_words_per_second`: in proportion to GPUs from the smallest scale that is ok, per provenance."""
    smallest = (
        frame.filter(pl.col("outcome") == Outcome.OK)
        .sort("gpus")
        .group_by("provenance", maintain_order=True)
        .agg(rate=pl.col("words_per_second_per_gpu").first())
    )
    joined = frame.join(smallest, on="provenance", how="left", maintain_order="left")
    return joined.with_columns(ideal_words_per_second=pl.col("rate") * pl.col("gpus")).drop("rate")


def with_parameters(frame: pl.DataFrame, context: FigureContext) -> pl.DataFrame:
    """Adds `parameters`, those of each record's model.

    Raises:
        UserError: the catalogue does not have a model.
    """
    if unknown := sorted(set(frame["model"]) - set(context.parameters)):
        raise UserError(
            f"records of unknown model {unknown[0]}", where=context.figure, remedy="Add it to config/models."
        )
    sizes = pl.col("model").replace_strict(dict(context.parameters), return_dtype=pl.Int64)
    return frame.with_columns(parameters=sizes)


def with_layout(frame: pl.DataFrame) -> pl.DataFrame:
    """Adds `layout`: its degrees of tensor and pipeline parallelism, as `2x4` with the sign of a product."""
    return frame.with_columns(layout=pl.format(f"{{}}{TIMES_SIGN}{{}}", "tp", "pp"))


def preference(frame: pl.DataFrame) -> str:
    """Whose layouts are named, in words, where a frame has several provenances: ` (● where both stand)`."""
    found = provenances(_own(frame))
    return f" ({MARKS[found[0]].glyph} where both stand)" if len(found) > 1 else ""


def change(values: pl.Series) -> str:
    """By how much the last value differs from the first, as `+10%`; empty where not both are known."""
    found = values.to_list()
    if len(found) < 2 or not found[0] or found[-1] is None:
        return ""
    return f"{found[-1] / found[0] - 1:+.0%}".replace("-", MINUS_SIGN)


def bars(frame: pl.DataFrame) -> str:
    """What a bar through a mark spans, of each provenance that has one."""
    return _bars(frame, lambda part: f"{_counts(part['iterations'] - part['discard'])} iterations")


def bars_of_calls(frame: pl.DataFrame) -> str:
    """The same of collectives."""
    return _bars(frame, lambda part: f"{_counts(part['repeats'])} calls")


def _bars(frame: pl.DataFrame, sample: Callable[[pl.DataFrame], str]) -> str:
    measured = frame.filter(pl.col("provenance") == Provenance.MEASURED)
    words = {
        Provenance.MEASURED: f"5th to 95th percentile of {sample(measured)}",
        Provenance.PREDICTED: "what held four of five measurements from sources that the model was not fitted on",
    }
    said = [(one, words[one]) for one in provenances(frame) if one in words]
    return ", ".join(f"{MARKS[one].glyph} {text}" if len(said) > 1 else text for one, text in said)


def _counts(column: pl.Series) -> str:
    found = column.drop_nulls().unique().sort().to_list()
    return " to ".join(str(count) for count in (found[:1] if len(found) < 2 else [found[0], found[-1]])) or "the"


def rank_correlations(frame: pl.DataFrame) -> dict[Provenance, float]:
    """Spearman's coefficient of exposed communication and throughput, a provenance; at least three layouts each."""
    both = ("exposed_communication_s", "words_per_second")
    found = {}
    for one in provenances(frame):
        part = frame.filter(pl.col("provenance") == one, pl.col("outcome") == Outcome.OK).drop_nulls(both)
        value = part.select(pl.corr(*both, method="spearman")).item() if part.height >= 3 else None
        if value is not None and math.isfinite(value):
            found[one] = float(value)
    return found


def one_series(records: pl.DataFrame, varying: Sequence[str], context: FigureContext) -> pl.DataFrame:
    """The records themselves.

    Args:
        varying: columns of a layout that may differ along a line; every other one may not.

    Raises:
        UserError: a column has several values, so that one line would join what does not belong together.
    """
    for name in (column for column in LAYOUT if column not in varying):
        values = records[name].unique().sort().to_list()
        if len(values) > 1:
            shown = ", ".join(str(value) for value in values)
            raise UserError(
                f"one line cannot join records of several values of {name} ({shown})",
                where=f"study {context.study}, figure {context.figure}",
                remedy="Give the figure a sweep of one, or a `where` in the study.",
            )
    return records


def provenances(frame: pl.DataFrame) -> list[Provenance]:
    """The provenances of a frame, the preferred first: measured, predicted, reported."""
    present = set(frame["provenance"])
    return [one for one in Provenance if one in present]


def why_null(frame: pl.DataFrame, metric: str) -> str:
    """Why a metric is null: the reasons of the `ok` records that lack it, each once; empty where none does."""
    missing = _own(frame).filter((pl.col("outcome") == Outcome.OK) & pl.col(metric).is_null())
    reasons = [reason for row in missing.iter_rows(named=True) if (reason := reason_for(row, metric))]
    return "; ".join(dict.fromkeys(reasons))


def gaps(frame: pl.DataFrame, metrics: Iterable[str]) -> list[str]:
    """A sentence for each metric that some records have and others lack; where none has it, its panel says so."""
    sentences = []
    for metric in metrics:
        some = _own(frame).filter(pl.col("outcome") == Outcome.OK)[metric].count() > 0
        if some and (why := why_null(frame, metric)):
            sentences.append(f"Not everywhere {metric.replace('_', ' ')}: {why}.")
    return sentences


def _own(frame: pl.DataFrame) -> pl.DataFrame:
    """The records that are of runs: a source prints single numbers."""
    return frame.filter(pl.col("provenance") != Provenance.REPORTED)


def outcome_words(outcome: str) -> str:
    """An outcome as prose: `out of memory`."""
    return outcome.replace("_", " ")


def caption(records: pl.DataFrame, context: FigureContext) -> list[str]:
    """One sentence a provenance: its mark, where its numbers come from, and how many runs left none."""
    lines = []
    for provenance in provenances(records):
        rows = records.filter(pl.col("provenance") == provenance)
        words = {
            Provenance.MEASURED: _measured(rows, context),
            Provenance.PREDICTED: _predicted(rows, context),
            Provenance.REPORTED: _reported(rows),
        }[provenance]
        lines.append(f"{MARKS[provenance].glyph} {words}{_ended(rows)}.")
    return lines


def _measured(rows: pl.DataFrame, context: FigureContext) -> str:
    device = _listed(rows["device"]) or context.hardware_title
    cores = _listed(rows["host_cores"])
    crowded = rows.filter(pl.col("oversubscribed"))["gpus"].unique().sort().to_list()
    text = f"Measured on {device}" + (f", {cores} cores" if cores and context.device == "rank" else "")
    if crowded:
        shown = " and ".join(str(ranks) for ranks in crowded)
        text += f"; oversubscribed at {shown} ranks"
    return text


def _predicted(rows: pl.DataFrame, context: FigureContext) -> str:
    text = f"Predicted by the performance model for {context.hardware_title}"
    extrapolated = rows.filter(pl.col("extrapolated"))["hardware"].unique().sort().to_list()
    return f"{text}; extrapolated for {', '.join(extrapolated)}" if extrapolated else text


def _reported(rows: pl.DataFrame) -> str:
    """Where the numbers are printed; `records.reported` has it in `reason`."""
    sources = [one for said in rows["reason"].drop_nulls().unique(maintain_order=True) for one in said.split("; ")]
    return f"Reported: {'; '.join(dict.fromkeys(sources))}" if sources else "Reported: printed by the source"


def _ended(rows: pl.DataFrame) -> str:
    counts = rows.filter(pl.col("outcome") != Outcome.OK)["outcome"].value_counts().sort("outcome")
    shown = [f"{count} {outcome_words(outcome)}" for outcome, count in counts.iter_rows()]
    return f"; of {rows.height} runs {', '.join(shown)}" if shown else ""


def _listed(column: pl.Series) -> str:
    return ", ".join(str(value) for value in column.drop_nulls().unique().sort().to_list())


def shown(records: pl.DataFrame, metrics: Sequence[str]) -> pl.DataFrame:
    """The records without reported numbers of metrics that a figure does not draw."""
    drawn = pl.any_horizontal(pl.col(name).is_not_null() for name in metrics) if metrics else pl.lit(value=True)
    return records.filter((pl.col("provenance") != Provenance.REPORTED) | drawn)


def user_metadata(records: pl.DataFrame, context: FigureContext, claims: Iterable[str]) -> dict[str, Any]:
    """What the chart's JSON says of itself: study, sweep, figure, claims, and every run with its provenance."""
    runs = records.select("run_id", "provenance", "outcome").unique().sort("run_id", "provenance")
    return {
        "study": context.study,
        "sweep": context.sweep,
        "figure": context.figure,
        "claims": sorted(claims),
        "runs": runs.to_dicts(),
    }
