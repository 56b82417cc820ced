from __future__ import annotations

import msgspec
import polars as pl
import pytest

from scaling_study.errors import UserError
from scaling_study.present.figures.hst_10 import draw
from scaling_study.timeline import SCHEMA
from tests.unit.present import synthetic as made
from tests.unit.present.charts import drawn, texts

MS = 1_000_000
SPANS = pl.DataFrame(
    [
        (0, "compute", "compute", "block 0", None, None, None, 0, 6 * MS),
        (0, "comm_dp", "communication", "all_gather", "mesh_dp", "dp", 8, 4 * MS, 10 * MS),
        (0, "exposed", "exposed", "exposed", None, None, None, 6 * MS, 10 * MS),
        (1, "compute", "compute", "block 1", None, None, None, 0, 99 * MS),
    ],
    schema=SCHEMA,
    orient="row",
)
RECORDS = made.frame(
    made.paper_row(nodes=4, gpus=32, dp=32, global_batch=64, iteration_s=0.01, exposed_communication_s=0.004)
)
RUN = RECORDS["run_id"][0]
CONTEXT = msgspec.structs.replace(made.PAPER, timelines={RUN: SPANS})


def test_spans_of_the_first_rank_are_bars_in_milliseconds() -> None:
    bars = drawn(draw(RECORDS, CONTEXT), "rect")
    found = [(row["start_ms"], row["end_ms"], row["op"]) for layer in bars for row in layer.rows]
    assert found == [(0, 6, "block 0"), (4, 10, "all_gather"), (6, 10, "exposed")]


def test_the_panel_says_how_much_is_exposed() -> None:
    assert "on 32 GPUs, 8,192 tokens each: 40.0% of the iteration is exposed" in texts(draw(RECORDS, CONTEXT))


def test_without_timelines_there_is_nothing_to_show() -> None:
    with pytest.raises(UserError, match="it shows timelines, and none is given"):
        draw(RECORDS, made.PAPER)
