"""The verb `roofline`: of a run and of options, for people and for machines, and one message for what is wrong."""

from __future__ import annotations

import json

import msgspec
import pytest
from click.testing import CliRunner

from scaling_study.cli import cli
from scaling_study.errors import UserError
from scaling_study.roofs import bounds_of_run, run_of_options
from scaling_study.spec import find_training_run
from tests.unit.samples import CONFIG

RUN = "llama2-7b_h100_n256_dp2048-tp1-pp1_mb2-gb4096-s4096_bf16_fcc4f377cd"


def verb(*arguments):
    found = CliRunner().invoke(cli, ["--config", str(CONFIG.root), *map(str, arguments)])
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    return found


def test_roofline_of_a_run_and_of_options_agree():
    run = find_training_run(CONFIG.study("paper"), RUN, CONFIG.catalogue)
    found = json.loads(verb("roofline", RUN, "--json").output)
    assert found == json.loads(msgspec.json.encode(bounds_of_run(run, CONFIG.catalogue, 10.0)))
    assert [one["what"] for one in found["bounds"]] == ["layer, forward", "layer, backward", "iteration"]
    options = ("--model", "llama2-7b", "--hardware", "h100", "--nodes", 256, "--micro-batch", 2, "--global-batch", 4096)
    other = json.loads(verb("roofline", *options, "--json").output)
    assert other["bounds"] == found["bounds"]
    assert found["tokens_per_second_at_most"] == pytest.approx(4096 * 4096 / found["iteration_s_at_least"])


def test_roofline_has_all_reduces_by_degree_and_link():
    options = ("--model", "llama2-70b", "--hardware", "h100", "--sequence-length", 512, "--tp", 8)
    rows = json.loads(verb("roofline", *options, "--json").output)["tensor_parallel"]
    assert {row["link"] for row in rows} == {"nvlink", "pcie", "network"}
    bound = {(row["link"], row["tp"]) for row in rows if row["regime"] == "communication"}
    assert min(tp for link, tp in bound if link == "nvlink") == 16
    assert min(tp for link, tp in bound if link == "network") == 4
    lines = [line.split() for line in verb("roofline", *options).output.splitlines()]
    assert ["8", "110.7", "78.4", "486.8*", "662.8*"] in lines


def test_roofline_for_people_names_what_limits():
    said = verb("roofline", RUN).output
    assert said.count("<- limits") == 3
    assert "launches aside, at most" in said
    assert "cpu" in verb("roofline", "mini-9m_cpu_n1_dp1-tp1-pp1_mb2-gb2-s64_fp32_ab85ed79ed", "--study", "mini").output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "roofline: a run is needed"),
        ((RUN, "--model", "llama2-7b"), "roofline: a run is needed"),
        (("nothing",), "there is no training run 'nothing'"),
        (("--model", "llama2-7b", "--hardware", "h100", "--tp", 3), "is not the number of GPUs"),
        (("--model", "llama2-7b", "--hardware", "b300"), "--hardware: unknown: 'b300'"),
    ],
)
def test_roofline_of_no_run_is_one_message(arguments, words):
    with pytest.raises(UserError) as raised:
        verb("roofline", *arguments)
    assert words in str(raised.value)


def test_options_fill_the_batch_of_a_pipeline():
    fields = {
        "model": "llama2-7b", "hardware": "h100", "nodes": 1, "tp": 2, "pp": 2, "micro_batch": 2, "global_batch": None,
        "sequence_length": 4096,
    }  # fmt: skip
    run = run_of_options(fields, CONFIG.catalogue)
    assert (run.dp, run.global_batch) == (2, 2 * 2 * 2)
