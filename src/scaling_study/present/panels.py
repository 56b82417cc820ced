"""The parts that figures are put together from: marks by provenance, crosses, labels, panels without numbers."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import altair as alt
import msgspec
import polars as pl

from scaling_study.present import theme
from scaling_study.present.axes import Axis, from_zero, value_axis
from scaling_study.present.context import FigureContext
from scaling_study.present.rows import (
    caption,
    gaps,
    outcome_words,
    provenances,
    rounded,
    shown,
    user_metadata,
    why_null,
    within_budget,
)
from scaling_study.present.theme import MARKS, NOTE_SIZE
from scaling_study.spec import Outcome, Provenance

_ONE = pl.DataFrame({"one": [1]})  # of a drawing that shows no data
_VALUES: dict[str, Any] = {"x": alt.XValue, "x2": alt.X2Value, "y": alt.YValue, "y2": alt.Y2Value}


class Box(msgspec.Struct, frozen=True):
    """Size of a panel's plot, in points."""

    width: float
    height: float


def chart(frame: pl.DataFrame, *columns: str) -> alt.Chart:
    """A chart of these columns, rounded, in the frame's order; each mark keeps its run and provenance."""
    origin = [name for name in ("run_id", "provenance") if name in frame.columns]
    return alt.Chart(within_budget(rounded(frame.select(*dict.fromkeys([*columns, *origin])))))


def known(frame: pl.DataFrame, *columns: str) -> pl.DataFrame:
    """The `ok` records that have a value in every one of the columns."""
    return frame.filter(pl.col("outcome") == Outcome.OK).drop_nulls(list(columns))


def marks(
    frame: pl.DataFrame, x: Axis, y: Axis, color: str, *, column: str | None = None, line: bool = True
) -> list[alt.Chart]:
    """Lines and marks of one metric, each provenance in its own style; single reported numbers on top.

    Args:
        column: what is drawn along `y`, if not the axis' own column.
        line: whether a line joins the marks.
    """
    name = column or y.column
    rows, layers = known(frame, x.column, name), []
    for provenance in sorted(Provenance, key=_layer):
        if provenance not in provenances(rows):
            continue
        style = MARKS[provenance]
        part = rows.filter(pl.col("provenance") == provenance).sort(x.column, name)
        base = chart(part, x.column, name).encode(x=x.x(), y=y.y(name))
        if line and style.dash is not None:
            layers.append(base.mark_line(color=color, strokeDash=list(style.dash)))
        fill = "white" if style.hollow else color
        layers.append(base.mark_point(shape=style.shape, size=style.size, fill=fill, stroke=color, opacity=1))
    return layers


def _layer(provenance: Provenance) -> int:
    """How far above the others marks of a provenance lie."""
    return (Provenance.PREDICTED, Provenance.MEASURED, Provenance.REPORTED).index(provenance)


def spread(
    frame: pl.DataFrame, x: Axis, y: Axis, low: str, high: str, color: str, *, along: Literal["x", "y"] = "y"
) -> list[alt.Chart]:
    """A thin bar through every mark, from one column to another, on the axis `along`."""
    rows = known(frame, low, high).sort(x.column, y.column)
    if rows.is_empty():
        return []
    if along == "y":
        base = chart(rows, x.column, low, high).encode(x=x.x(), y=y.y(low), y2=alt.Y2(high))
    else:
        base = chart(rows, y.column, low, high).encode(y=y.y(), x=x.x(low), x2=alt.X2(high))
    return [base.mark_rule(color=color, strokeWidth=1)]


def guide(
    frame: pl.DataFrame, x: Axis, y: Axis, column: str, label: str = "", box: Box | None = None
) -> list[alt.Chart]:
    """A thin grey line that nothing measured, such as ideal scaling, one a provenance; the label is left of its end."""
    layers = []
    for provenance in provenances(frame.drop_nulls(column)):
        rows = frame.filter(pl.col("provenance") == provenance).drop_nulls(column).sort(x.column)
        base = chart(rows, x.column, column).encode(x=x.x(), y=y.y(column))
        dash = list(MARKS[provenance].dash or ())
        layers.append(base.mark_line(color=theme.FAINT, strokeWidth=0.9, strokeDash=dash))
    if label and box and layers:
        end = frame.drop_nulls(column).sort(x.column, column).tail(1)
        place = (x.span.fraction(end[x.column].item()), 1 - y.span.fraction(end[column].item()))
        layers.append(
            words(label, (round(place[0] * box.width - 7, 2), round(place[1] * box.height, 2)), align="right")
        )
    return layers


def level(value: float, axis: Axis, along: Literal["x", "y"], *, dash: Sequence[float] = (1, 2)) -> alt.Chart:
    """A thin grey line across the panel at one value of an axis."""
    base = chart(pl.DataFrame({axis.column: [float(value)]}), axis.column)
    encoded = base.encode(x=axis.x()) if along == "x" else base.encode(y=axis.y())
    rule: alt.Chart = encoded.mark_rule(color=theme.FAINT, strokeWidth=0.8, strokeDash=list(dash))
    return rule


def pinned(**points: float) -> dict[str, Any]:
    """Places of the panel, in points, as channels; of classes, since Altair takes long to find that of a mapping."""
    return {name: _VALUES[name](at) for name, at in points.items()}


def words(text: str, at: tuple[float, float], *, color: str = theme.GREY, **mark: Any) -> alt.Chart:
    """A text at a place of the panel, in points from its upper left corner."""
    style: dict[str, Any] = {"align": "left", "color": color, **mark}
    base: alt.Chart = chart(pl.DataFrame({"text": [text]}), "text").mark_text(**style)
    return base.encode(text="text:N", **pinned(x=at[0], y=at[1]))


def rectangle(
    at: tuple[float, float], size: tuple[float, float], fill: str, stroke: str, opacity: float = 1.0, width: float = 0.7
) -> alt.Chart:
    """A box of a drawing, in points from the panel's upper left corner.

    Args:
        at: its upper left corner.
        size: width and height.
        opacity: of what fills it.
        width: of its outline.
    """
    base: alt.Chart = alt.Chart(_ONE).mark_rect(fill=fill, stroke=stroke, strokeWidth=width, fillOpacity=opacity)
    return base.encode(**pinned(x=at[0], x2=at[0] + size[0], y=at[1], y2=at[1] + size[1]))


def straight(start: tuple[float, float], end: tuple[float, float], **mark: Any) -> alt.Chart:
    """A line of a drawing between two places of the panel, in points from its upper left corner."""
    base: alt.Chart = alt.Chart(_ONE).mark_rule(**mark)
    return base.encode(**pinned(x=start[0], x2=end[0], y=start[1], y2=end[1]))


def crosses(
    frame: pl.DataFrame,
    x: Axis,
    y: Axis,
    box: Box,
    *,
    columns: Sequence[str] = (),
    beside: pl.DataFrame | None = None,
    color: str = theme.GREY,
    label: bool = True,
    said: str = "",
    aside: float = 0,
) -> list[alt.Chart]:
    """A cross for every run that left no numbers, on the panel's edge that is farther from the marks beside it.

    Args:
        columns: what else than `y.column` is drawn on the axis.
        beside: every record drawn in the panel, if more than `frame`.
        label: whether the outcome stands beside the cross; a crowded panel leaves that to its neighbours.
        said: a column of what stands beside a cross in place of the outcome, where it is that of several lines.
        aside: points to the right of its place, by which crosses of several lines keep apart.
    """
    layers = []
    others = frame if beside is None else beside
    for ended in frame.filter(pl.col("outcome") != Outcome.OK).sort(x.column, "provenance").iter_rows(named=True):
        near = others.filter(pl.col(x.column) == ended[x.column])
        places = [y.span.fraction(v) for name in (y.column, *columns) for v in near[name].drop_nulls()]
        high = bool(places) and min(places) < 1 - max(places)
        beside_it = ended[said] if said else outcome_words(ended["outcome"])
        row = pl.DataFrame({x.column: [ended[x.column]], "words": [beside_it]})
        base = chart(row, x.column, "words").encode(x=x.x(), **pinned(y=5 if high else box.height - 5))
        moved: dict[str, Any] = {"xOffset": aside} if aside else {}
        layers.append(cross(base, color, **moved))
        if label:
            side: dict[str, Any] = {"align": "right", "dx": -6} if high else {"align": "left", "dx": 6}
            text = base.mark_text(
                angle=270, color=color, fontStyle="italic", fontSize=theme.NOTE_SIZE - 0.5, **side, **moved
            )
            layers.append(text.encode(text="words:N"))
    return layers


def cross(base: alt.Chart, color: str = theme.GREY, **moved: Any) -> alt.Chart:
    """The mark of a run that left no numbers."""
    mark: alt.Chart = base.mark_point(shape=theme.CROSS, size=24, stroke=color, strokeWidth=1.2, opacity=1, **moved)
    return mark


def crossed_rows(frame: pl.DataFrame, y: Axis, *, label: bool = True) -> list[alt.Chart]:
    """The same where runs are rows: the cross at the left end of its row, the outcome beside it, if `label`."""
    ended = frame.filter(pl.col("outcome") != Outcome.OK).unique([y.column, "outcome"]).sort(y.column, "outcome")
    if ended.is_empty():
        return []
    ended = ended.with_columns(words=pl.Series([outcome_words(one) for one in ended["outcome"]], dtype=pl.String))
    base = chart(ended, y.column, "words").encode(y=y.y(), **pinned(x=6))
    said = base.mark_text(align="left", dx=6, color=theme.GREY, fontStyle="italic").encode(text="words:N")
    return [cross(base), *([said] if label else [])]


def last(frame: pl.DataFrame, x: str, metric: str) -> list[float]:
    """The value farthest along `x`, of the preferred provenance there; none where the metric is not known."""
    rows = known(frame, metric).sort(x, "provenance", descending=[True, False])
    return rows.head(1)[metric].to_list()


def end_labels(
    ends: Sequence[tuple[str, float, str]], y: Axis, box: Box, *, before: float | None = None
) -> list[alt.Chart]:
    """Names of lines at the right edge, each beside its last value, none on another.

    Args:
        ends: text, value on the axis, and colour of each.
        y: the axis of the values.
        before: where the names end, in points from the left, if they stand before the lines and not after them.
    """
    style = {"align": "left" if before is None else "right"}
    at = box.width + 4 if before is None else before
    places = apart([y.span.fraction(value) for _, value, _ in ends], (NOTE_SIZE + 1) / box.height)
    return [
        words(text, (at, round(box.height * (1 - place), 2)), color=color, **style)
        for (text, _, color), place in zip(ends, places, strict=True)
    ]


def apart(places: Sequence[float], gap: float) -> list[float]:
    """The places moved up as little as needed to stand a gap apart, and down together where the last passes 1."""
    order = sorted(range(len(places)), key=lambda index: (places[index], index))
    moved = dict(enumerate(places))
    for before, after in itertools.pairwise(order):
        moved[after] = max(moved[after], moved[before] + gap)
    excess = max(0.0, max(moved.values(), default=0.0) - 1)
    return [moved[index] - excess for index in range(len(places))]


def name_beside(text: str, at: tuple[float, float], marked: Sequence[tuple[float, float]], box: Box) -> alt.Chart:
    """A short name beside a mark, on the first side where it stays in the panel and covers no other mark.

    Args:
        at: the mark, in points from the panel's upper left corner.
        marked: every mark of the panel, likewise.
    """
    wide, high = len(text) * NOTE_SIZE * 0.45, NOTE_SIZE
    sides = {(5, 0): "left", (-5, 0): "right", (0, -high): "center", (0, high + 1): "center"}
    for (dx, dy), align in sides.items():
        middle = at[0] + dx + {"left": wide / 2, "right": -wide / 2, "center": 0}[align]
        inside = wide / 2 <= middle <= box.width - wide / 2 and high <= at[1] + dy <= box.height - high / 2
        covered = any(
            abs(x - middle) < wide / 2 + 3 and abs(y - at[1] - dy) < high / 2 + 3 for x, y in marked if (x, y) != at
        )
        if inside and not covered:
            break
    else:
        (dx, dy), align = (5, 0), "left"
    return words(text, (round(at[0] + dx, 2), round(at[1] + dy, 2)), align=align)


def names_along(
    frame: pl.DataFrame, x: Axis, y: Axis, names: str, color: str, *, below: bool = False, stay: bool = False
) -> list[alt.Chart]:
    """A short name beside every mark of a line, on the side where the line does not pass.

    Where marks of several provenances share a place, the preferred one is named, beyond all of them.

    Args:
        names: column of the names.
        below: whether names stand under the line, which leaves the room above to another.
        stay: whether every name stands on that side, even in a bend of the line: the other side is another line's.
    """
    reach = pl.col(y.column).min() if below else pl.col(y.column).max()
    marked = known(frame, x.column, y.column).sort(x.column, "provenance")
    marked = marked.with_columns(reach=reach.over(x.column)).unique(x.column, keep="first", maintain_order=True)
    heights = [y.span.fraction(value) * (-1 if below else 1) for value in marked["reach"]]
    layers = []
    for index, row in enumerate(marked.iter_slices(1)):
        before = index > 0 and heights[index - 1] > heights[index]
        after = index + 1 < len(heights) and heights[index + 1] > heights[index]
        style: dict[str, Any] = {"align": "center", "dx": 0}
        if before != after:
            style = {"align": "left", "dx": 3} if before else {"align": "right", "dx": -3}
        bend = before and after and not stay
        style["dy"] = 8 if bend != below else -7
        base = chart(row, x.column, "reach", names).encode(x=x.x(), y=y.y("reach"), text=f"{names}:N")
        layers.append(base.mark_text(color=color, **style))
    return layers


def panel(layers: Sequence[alt.Chart], title: str, box: Box) -> alt.LayerChart:
    """Layers as one panel; its title is a text, since Vega puts a title above the labels of the axis, unevenly."""
    heading = words(title, (0, -7), color=theme.INK, fontSize=theme.PANEL_TITLE_SIZE, fontWeight=600, baseline="bottom")
    return alt.LayerChart(layer=[*layers, heading]).properties(width=box.width, height=box.height)


def metric_panel(layers: Sequence[alt.Chart], frame: pl.DataFrame, metric: str, title: str, box: Box) -> alt.LayerChart:
    """The panel of a metric; where no record has it, the reason why takes the place of the marks."""
    if known(frame, metric).is_empty():
        return empty_panel(title, why_null(frame, metric) or "no run ended well", box)
    return panel(layers, title, box)


def series(
    frame: pl.DataFrame,
    x: Axis,
    y: Axis,
    title: str,
    color: str,
    box: Box,
    *,
    source: str | None = None,
    extra: Sequence[alt.Chart] = (),
) -> alt.LayerChart:
    """The panel of one metric along x: its marks, joined, and its crosses.

    Args:
        source: the recorded metric, where the axis shows a multiple of it.
        extra: layers on top.
    """
    layers = [*marks(frame, x, y, color), *crosses(frame, x, y, box), *extra]
    return metric_panel(layers, frame, source or y.column, title, box)


def utilisation(frame: pl.DataFrame, context: FigureContext) -> tuple[str, Axis]:
    """The name of a panel of utilisation and its axis: MFU, or the rate it is made of where no record has an MFU."""
    if not without_mfu(frame):
        return "Utilisation", value_axis("mfu", "MFU", from_zero(frame["mfu"]), format="~%")
    title, span = f"TFLOPS per {context.device}", from_zero(frame["tflops_per_gpu"])
    return "Floating-point rate", value_axis("tflops_per_gpu", title, span, format=",f")


def without_mfu(frame: pl.DataFrame) -> str:
    """Why `utilisation` shows the floating-point rate, as a sentence; empty where it does not."""
    if known(frame, "mfu").is_empty() and not known(frame, "tflops_per_gpu").is_empty():
        return f"No MFU: {why_null(frame, 'mfu')}."
    return ""


def empty_panel(title: str, reason: str, box: Box) -> alt.LayerChart:
    """A panel in which no mark can stand, and the reason why."""
    lines = balanced(reason[:1].upper() + reason[1:], box.width - 16)
    step = NOTE_SIZE + 2
    ground = chart(pl.DataFrame({"text": [""]}), "text").mark_rect(color=theme.PAPER)
    ground = ground.encode(**pinned(x=0, y=0, x2=box.width, y2=box.height))
    top = box.height / 2 - (len(lines) - 1) * step / 2
    text = [
        words(line, (box.width / 2, top + index * step), align="center", fontStyle="italic", baseline="middle")
        for index, line in enumerate(lines)
    ]
    return panel([ground, *text], title, box)


def wrapped(text: str, width: float, size: float = NOTE_SIZE) -> list[str]:
    """Lines that fit into a width; a character of the font is a little under half as wide as high."""
    return textwrap.wrap(text, max(12, int(width / (size * 0.47)))) or [""]


def balanced(text: str, width: float) -> list[str]:
    """As many lines as `wrapped` needs, of about the same length."""
    lines = wrapped(text, width)
    while len(narrower := wrapped(text, width * 0.96)) == len(lines) and narrower != [text]:
        width, lines = width * 0.96, narrower
        if width < 40:
            break
    return lines


def finished(
    body: alt.ConcatChart | alt.VConcatChart | alt.HConcatChart,
    title: str,
    records: pl.DataFrame,
    context: FigureContext,
    *,
    claims: Sequence[str],
    metrics: Sequence[str],
    width: float,
    note: str = "",
) -> alt.TopLevelMixin:
    """The figure with its title, its sweep, the sentences on provenance, and what its JSON says of itself.

    Args:
        claims: ids of the claims that the figure supports.
        metrics: what is drawn; a metric that only some records have is named with the reason.
        width: of the figure, in points.
        note: what else a reader must know.
    """
    records = shown(records, metrics)
    lead = f"{context.sweep_title}. {note}".strip()
    sentences = [lead, *caption(records, context), *gaps(records, metrics), *context.left_out]
    return titled(body, title, sentences, user_metadata(records, context, claims), context, width)


def titled(
    body: alt.ConcatChart | alt.VConcatChart | alt.HConcatChart,
    title: str,
    sentences: Sequence[str],
    said: Mapping[str, Any],
    context: FigureContext,
    width: float,
) -> alt.TopLevelMixin:
    """A figure with its title and, below it, sentences.

    Args:
        said: what its JSON says of itself.
        width: of the figure, in points.
    """
    heading = alt.TitleParams(
        wrapped(context.title_of(title), width, theme.TITLE_SIZE),
        subtitle=[line for sentence in sentences for line in wrapped(sentence, width)],
    )
    return body.properties(title=heading, usermeta=dict(said))
