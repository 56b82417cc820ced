"""The figure of two campaigns: a row a number that moved, or a sentence."""

from __future__ import annotations

import altair as alt

from scaling_study.present import comparison
from scaling_study.records.comparison import compare
from tests.unit.present.charts import drawn, points, texts
from tests.unit.present.synthetic import frame, record


def chart(*seconds: float) -> alt.TopLevelMixin:
    """Of runs that took 1 s before."""
    a = frame(*(record(iteration_s=1.0, dp=2**place) for place in range(len(seconds))))
    b = frame(*(record(iteration_s=one, dp=2**place) for place, one in enumerate(seconds)))
    return comparison.draw(compare(a, b), ("before", "after"))


def test_a_row_a_number_that_moved() -> None:
    made = chart(2.0, 1.0)
    assert "From before to after." in texts(made)
    marks = points(made, "row", "change")
    assert [change for layer in marks for change, _ in layer.pairs()] == [1.0] * len(marks)
    assert made.usermeta["moved"] == len(marks) > 0
    bar = next(one for one in drawn(made, "rule", x="low") if one.rows[0]["metric"] == "iteration_s")
    assert bar.rows[0]["low"] < 1.0 < bar.rows[0]["high"]


def test_nothing_moved_is_said() -> None:
    made = chart(1.0, 1.0)
    assert made.usermeta["moved"] == 0
    assert "Nothing moved" in texts(made)


def test_many_are_cut() -> None:
    assert f"the {comparison.ROWS} largest changes are drawn" in texts(chart(*[2.0] * 20))
