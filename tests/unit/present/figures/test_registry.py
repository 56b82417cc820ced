"""Figures are found by id, filtered by hardware, and draw what a study asks for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from scaling_study.errors import UserError
from scaling_study.present.figures import MODULES, base_id, draw_figure, figure_module
from scaling_study.present.render import specification
from scaling_study.records import SCHEMA
from scaling_study.spec import Config, FigureRequest, Study, Sweep
from tests.unit.present import synthetic as made
from tests.unit.present.charts import layers, texts

CATALOGUE = Config(Path(__file__).parents[4] / "config").catalogue
STUDY = Study(
    name="paper",
    title="t",
    platform="p",
    sweeps={"model_parallel": Sweep(title="All layouts")},
    figures={
        "hst-06a": FigureRequest(sweep="model_parallel", where={"hardware": "a100"}),
        "other": FigureRequest(sweep="model_parallel", draw="hst-05"),
        "hst-99": FigureRequest(sweep="model_parallel"),
    },
)


def test_every_registered_module_draws_and_names_claims() -> None:
    for name in MODULES:
        module = figure_module(name)
        assert callable(module.draw)
        assert module.CLAIMS or name in ("accuracy", "wsf-03")  # of which the study claims nothing


def test_the_base_of_an_id() -> None:
    assert [base_id(name) for name in ("hst-06", "hst-06a", "hst-05", "x")] == ["hst-06", "hst-06", "hst-05", ""]


def test_a_figure_reads_one_hardware_if_the_study_says_so() -> None:
    frame = made.paper_model_parallel("predicted", hardware=("a100", "h100"))
    said = specification(draw_figure(STUDY, "hst-06a", frame, CATALOGUE))
    assert {run["run_id"].split("_")[1] for run in said["usermeta"]["runs"]} == {"a100"}
    assert any("A100" in line for line in said["title"]["subtitle"])
    assert said["usermeta"]["figure"] == "hst-06a"


def test_a_figure_may_be_drawn_by_another_module() -> None:
    assert (
        "Layouts"
        in specification(draw_figure(STUDY, "other", made.paper_model_parallel(), CATALOGUE))["title"]["text"][0]
    )


@pytest.mark.parametrize(
    ("name", "message"), [("hst-98", "there is no figure"), ("hst-99", "no module draws 'hst-99'")]
)
def test_unknown_figures_are_errors(name: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        draw_figure(STUDY, name, made.paper_model_parallel(), CATALOGUE)


def test_nothing_to_draw_is_an_error() -> None:
    with pytest.raises(
        UserError, match=r"study paper, figure hst-06a: no record has hardware: 'a100'\. Values there: cpu"
    ):
        draw_figure(STUDY, "hst-06a", made.mini_model_parallel(), CATALOGUE)


def test_naming_figures_imports_nothing_heavy() -> None:
    code = (
        "import sys, scaling_study.present, scaling_study.present.figures\n"
        "print([m for m in ('altair', 'vl_convert', 'typst', 'torch') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_record_that_cannot_be_true_is_drawn_nowhere_and_named() -> None:
    records = pl.DataFrame(
        [made.record(tp=tp, dp=4 // tp, global_batch=8, run_id=f"run-{tp}") for tp in (1, 2, 4)], schema=SCHEMA
    )
    invalid = records.with_columns(
        outcome=pl.when(pl.col("tp") == 2).then(pl.lit("invalid")).otherwise("outcome"),
        reason=pl.when(pl.col("tp") == 2).then(pl.lit("an MFU of 152%")).otherwise(None),
    )
    study = Study(
        name="mini",
        title="t",
        platform="p",
        sweeps={"model_parallel": Sweep(title="All layouts")},
        figures={"hst-05": FigureRequest(sweep="model_parallel")},
    )
    chart = draw_figure(study, "hst-05", invalid, CATALOGUE)
    shown = {row.get("run_id") for layer in layers(chart) for row in layer.rows} - {None}
    assert shown == {"run-1", "run-4"}
    assert "Not drawn, since it cannot be true: run-2, an MFU of 152%." in texts(chart)
    with pytest.raises(UserError, match="no record to draw in hst-05"):
        draw_figure(study, "hst-05", invalid.filter(outcome="invalid"), CATALOGUE)
