"""The figure of two campaigns: by how much the numbers moved that moved most, with their ranges."""

from __future__ import annotations

import altair as alt
import polars as pl

from scaling_study.present import panels
from scaling_study.present.axes import Axis, Range, row_axis, value_axis
from scaling_study.present.rows import rounded, within_budget
from scaling_study.present.theme import BLUE, GREEN, INK, ORANGE, PAGE_WIDTH, PURPLE, VERMILLION
from scaling_study.records.comparison import Comparison

TITLE = "What moved between two campaigns"
ROWS = 30
LABEL_WIDTH, ROW_HEIGHT, MARK_SIZE = 330, 11, 14
COLORS = {
    "iteration_s": BLUE,
    "call_s": BLUE,
    "compute_s": ORANGE,
    "communication_s": VERMILLION,
    "exposed_communication_s": VERMILLION,
    "power_w_per_gpu": GREEN,
    "peak_memory_gib": PURPLE,
    "final_loss": INK,
}


def draw(found: Comparison, names: tuple[str, str]) -> alt.TopLevelMixin:
    """A row a number that moved, the largest change on top; none where nothing did.

    Args:
        names: of the two campaigns.
    """
    moved = found.moved.head(ROWS).with_row_index("row").with_columns(pl.col("row").cast(pl.Int64))
    said = f"Of {found.numbers.height:,} numbers that both have, {found.moved.height:,} moved beyond their ranges"
    more = f"; the {ROWS} largest changes are drawn" if found.moved.height > ROWS else ""
    sentences = [
        f"From {names[0]} to {names[1]}. {said}{more}.",
        "Marks: relative change. Bars: from the nearest to the farthest that the two ranges allow.",
    ]
    heading = alt.TitleParams(
        [TITLE], subtitle=[line for sentence in sentences for line in panels.wrapped(sentence, PAGE_WIDTH)]
    )
    box = panels.Box(PAGE_WIDTH - LABEL_WIDTH, max(40, ROW_HEIGHT * moved.height))
    body = _panel(moved, box) if moved.height else panels.empty_panel("Change", "nothing moved", box)
    meta = {"a": names[0], "b": names[1], "moved": found.moved.height, "numbers": found.numbers.height}
    return alt.vconcat(body).properties(title=heading, usermeta=meta)


def _panel(moved: pl.DataFrame, box: panels.Box) -> alt.LayerChart:
    ends = (pl.col("b_low") / pl.col("a_high") - 1, pl.col("b_high") / pl.col("a_low") - 1)
    frame = within_budget(rounded(moved.with_columns(low=ends[0], high=ends[1])))
    values = [0.0, *frame["low"].drop_nulls(), *frame["high"].drop_nulls(), *frame["change"].drop_nulls()]
    room = 0.05 * (max(values) - min(values))
    x = value_axis("change", None, Range(min(values) - room, max(values) + room), format="+~%")
    y = row_axis("row", [f"{row['metric']}  {row['run_id']}" for row in frame.iter_rows(named=True)], None)
    y = Axis(column=y.column, title=None, span=y.span, options={**y.options, "labelLimit": LABEL_WIDTH})
    layers = [panels.level(0.0, x, "x"), *(mark for row in frame.iter_slices(1) for mark in _marks(row, x, y))]
    return panels.panel(layers, "Change", box)


def _marks(row: pl.DataFrame, x: Axis, y: Axis) -> tuple[alt.Chart, alt.Chart]:
    color = COLORS[row["metric"][0]]
    base = panels.chart(row, "row", "metric", "change", "low", "high").encode(y=y.y())
    bar = base.mark_rule(color=color, strokeWidth=1).encode(x=x.x("low"), x2=alt.X2("high"))
    point = base.mark_point(shape="circle", stroke=color, fill=color, opacity=1, size=MARK_SIZE).encode(x=x.x())
    return bar, point
