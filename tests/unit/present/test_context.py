from __future__ import annotations

from pathlib import Path

import pytest

from scaling_study.errors import UserError
from scaling_study.present.context import context_for
from scaling_study.spec import Config

CONFIG = Config(Path(__file__).parents[3] / "config")
HARDWARE = CONFIG.catalogue.hardware


def test_a_cpu_has_ranks_and_the_sweeps_assumptions() -> None:
    study = CONFIG.study("mini")
    context = context_for(study, "hst-04", study.figures["hst-04"], HARDWARE, ["cpu"])
    assert (context.device, context.devices, context.hardware_title) == ("rank", "ranks", HARDWARE["cpu"].title)
    assert context.sweep_title == study.sweeps["data_parallel"].title
    assert set(study.sweeps["data_parallel"].assumptions) < set(context.assumptions)


def test_accelerators_are_gpus() -> None:
    study = CONFIG.study("mini")
    context = context_for(study, "hst-05", study.figures["hst-05"], HARDWARE, ["a100", "h100"])
    assert context.device == "GPU"
    assert context.hardware_title == f"{HARDWARE['a100'].title}; {HARDWARE['h100'].title}"


def test_unknown_hardware_is_an_error() -> None:
    study = CONFIG.study("mini")
    with pytest.raises(UserError, match="unknown hardware z100"):
        context_for(study, "hst-05", study.figures["hst-05"], HARDWARE, ["z100"])
