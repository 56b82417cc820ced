from __future__ import annotations

from pathlib import Path

import pytest

from scaling_study.errors import UserError
from scaling_study.present.context import context_for
from scaling_study.spec import Config, FigureRequest

CONFIG = Config(Path(__file__).parents[3] / "config")
CATALOGUE = CONFIG.catalogue
HARDWARE = CATALOGUE.hardware


def test_a_cpu_has_ranks_and_the_sweeps_assumptions() -> None:
    study = CONFIG.study("mini")
    context = context_for(study, "hst-04", study.figures["hst-04"], CATALOGUE, ["cpu"])
    assert (context.device, context.devices, context.hardware_title) == ("rank", "ranks", HARDWARE["cpu"].title)
    assert context.sweep_title == study.sweeps["data_parallel"].title
    assert set(study.sweeps["data_parallel"].assumptions) < set(context.assumptions)
    assert context.parameters["llama2-7b"] == CATALOGUE.models["llama2-7b"].parameters


def test_accelerators_are_gpus() -> None:
    study = CONFIG.study("mini")
    context = context_for(study, "hst-05", study.figures["hst-05"], CATALOGUE, ["a100", "h100"])
    assert context.device == "GPU"
    assert context.hardware_title == f"{HARDWARE['a100'].title}; {HARDWARE['h100'].title}"


def test_the_title_says_which_part_of_a_sweep_is_drawn() -> None:
    study = CONFIG.study("mini")
    part = FigureRequest(sweep="generations", where={"hardware": "a100", "precision": "bf16", "nodes": 4})
    shown = context_for(study, "hst-06b", part, CATALOGUE, ["a100"])
    assert shown.shown == ("A100", "bf16", "nodes 4")
    assert shown.title_of("Layouts") == "Layouts: A100, bf16, nodes 4"
    op = context_for(study, "hst-03a", study.figures["hst-03a"], CATALOGUE, ["cpu"])
    assert op.title_of("All-reduce bandwidth") == "All-reduce bandwidth"
    assert op.title_of("Bandwidth") == "Bandwidth: all-reduce"
    whole = context_for(study, "hst-04", study.figures["hst-04"], CATALOGUE, ["cpu"])
    assert whole.title_of("Layouts") == "Layouts"


def test_unknown_hardware_is_an_error() -> None:
    study = CONFIG.study("mini")
    with pytest.raises(UserError, match="unknown hardware z100"):
        context_for(study, "hst-05", study.figures["hst-05"], CATALOGUE, ["z100"])
