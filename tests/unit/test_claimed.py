"""The verb `check-claim`: from options and tables to verdicts, and one message for what is wrong."""

from __future__ import annotations

import json

import msgspec
import pytest
from click.testing import CliRunner

from scaling_study.claimed import Stated, claim_of, judge_table, read_published
from scaling_study.cli import cli
from scaling_study.errors import UserError
from scaling_study.roofline import judge
from scaling_study.spec import Regime
from tests.unit.samples import CONFIG, ROOT

TABLE = CONFIG.root / "reported" / "claimed-rates.csv"
PUBLISHED = read_published(TABLE)


def verb(*arguments):
    found = CliRunner().invoke(cli, ["--config", str(CONFIG.root), *map(str, arguments)])
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    return found


def stated(**fields):
    return msgspec.convert({"gpus": 8, "model": "llama2-7b", "hardware": "h100", **fields}, Stated)


# -- what others claim ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("one", PUBLISHED, ids=lambda one: one.id)
def test_a_published_claim_is_judged_rightly(one):
    judged = judge(claim_of(one, CONFIG.catalogue))
    assert judged.possible is one.possible, judged.limit
    if one.limit is not None:
        assert judged.limit.regime == one.limit
    assert one.source


def test_the_table_has_enough_of_both_kinds():
    ids = [one.id for one in PUBLISHED]
    assert len(set(ids)) == len(ids)
    published = [one for one in PUBLISHED if not one.source.startswith("constructed")]
    assert len(published) >= 40
    assert sum(one.possible for one in published) >= 20
    assert sum(not one.possible for one in published) >= 10
    assert all(one.limit for one in PUBLISHED if not one.possible)


def test_judging_the_table_says_what_is_expected():
    found = judge_table(TABLE, CONFIG.catalogue)
    assert [row["id"] for row in found] == [one.id for one in PUBLISHED]
    assert all(row["as_expected"] for row in found)


# -- rates, however stated ------------------------------------------------------------------------------------------


def rate(**fields):
    return claim_of(stated(**fields), CONFIG.catalogue).tokens_per_second


def test_rates_by_hand():
    model = CONFIG.catalogue.models["llama2-7b"]
    assert rate(tokens_per_second=1000.0) == 1000.0
    assert rate(tokens_per_second_per_gpu=1000.0) == 8000.0
    assert rate(step_time_ms=500.0, batch=16, context_length=4096) == 16 * 4096 / 0.5
    assert rate(step_time_ms=20.0, phase="decode", batch=4) == 200.0
    assert rate(mfu=0.5) == pytest.approx(0.5 * 989.4e12 * 8 / (6 * model.parameters))
    flops = 6 * model.parameters + 12 * 32 * 4096 * 4096
    assert rate(tflops_per_gpu=400.0, context_length=4096) == pytest.approx(400e12 * 8 / flops)
    assert rate(tflops_per_gpu=400.0, phase="decode") == pytest.approx(400e12 * 8 / (2 * model.parameters))


def test_a_part_given_by_its_numbers():
    given = stated(hardware=None, peak_tflops=275.0, memory_gb_per_s=1228.0, phase="decode", tokens_per_second=1.0)
    roofs = {one.regime: one.tokens_per_second for one in judge(claim_of(given, CONFIG.catalogue)).roofs}
    network = claim_of(given, CONFIG.catalogue).network
    assert roofs[Regime.COMPUTE] == pytest.approx(8 * 275e12 / (2 * network.multiplied))
    assert roofs[Regime.MEMORY] == pytest.approx(8 * 1228e9 / (2 * network.multiplied))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "no rate is claimed"),
        ({"mfu": 0.4, "tokens_per_second": 1.0}, "2 rates are claimed (--tokens-per-second, --mfu)"),
        ({"mfu": -0.4}, "--mfu: -0.4 is not above zero"),
        ({"mfu": float("nan")}, "--mfu: nan is not above zero"),
        ({"step_time_ms": 5.0}, "a time of a step needs to know its tokens"),
        ({"parameters": 7e9, "mfu": 0.4}, "a claim is of one model"),
        ({"model": None, "mfu": 0.4}, "a claim is of one model"),
        ({"model": "llama9", "mfu": 0.4}, "--model: unknown: 'llama9'"),
        ({"hardware": None, "mfu": 0.4}, "a claim is of one hardware"),
        ({"hardware": "cpu", "mfu": 0.4}, "no peak of CPU ranks of one machine in bf16 is published"),
        ({"tp": 3, "mfu": 0.4}, "8 GPUs cannot be split into groups of 3"),
        ({"model": None, "parameters": 7e9, "active_parameters": 8e9, "mfu": 0.4}, "more parameters are active"),
    ],
)
def test_what_is_wrong_is_one_message(fields, words):
    with pytest.raises(UserError) as raised:
        claim_of(stated(**fields), CONFIG.catalogue)
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("id,gpus,source,possible\na,eight,s,true\n", "line 2: Expected `int`, got `str` - at `$.gpus`"),
        ("id,gpus,source,possible,speed\na,8,s,true,3\n", "line 2: Object contains unknown field `speed`"),
        ("id,gpus,source,possible\na,8,s,true\n", "a: a claim is of one model"),
        ("\xff", "claims.csv: "),
    ],
)
def test_a_table_that_is_not_valid_is_one_message(content, words, tmp_path):
    path = tmp_path / "claims.csv"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(UserError) as raised:
        judge_table(path, CONFIG.catalogue)
    assert words in str(raised.value)


# -- the command line -----------------------------------------------------------------------------------------------


def test_check_claim_says_possible_or_not():
    example = ("check-claim", "--model", "llama2-7b", "--hardware", "h100", "--gpus", 8)
    found = json.loads(verb(*example, "--tokens-per-second", 80_000, "--json").output)
    assert found["possible"] is True
    assert found["limit"]["regime"] == "compute"
    assert found["share_of_limit"] == pytest.approx(80_000 / found["limit"]["tokens_per_second"])
    assert json.loads(verb(*example, "--tokens-per-second", 800_000, "--json").output)["possible"] is False
    said = verb(*example, "--tokens-per-second", 800_000).output
    assert said.startswith("impossible: 8e+05 tokens/s of llama2-7b in train on 8 x NVIDIA H100")
    assert "8 x 989.4 TFLOP/s dense bf16 / 39.64 GFLOP a token, the least for train" in said


def test_check_claim_takes_counts_in_words_and_both_names_of_options():
    found = verb(
        "check-claim", "--parameters", "175B", "--hardware", "a100", "--gpus", 1024, "--mfu", 0.52, "--dtype", "bf16",
        "--sequence-length", 2048, "--json",
    )  # fmt: skip
    assert json.loads(found.output)["share_of_limit"] == pytest.approx(0.52)
    wrong = verb("check-claim", "--parameters", "17x5B", "--hardware", "a100", "--gpus", 8, "--mfu", 0.5)
    assert wrong.exit_code == 2
    assert "'17x5B' is no count; write 70e9 or 70B" in wrong.output


def test_check_claim_judges_a_table():
    assert verb("check-claim", "--table", TABLE).output.count("\n") == len(PUBLISHED) + 1
    assert len(json.loads(verb("check-claim", "--table", TABLE, "--json").output)) == len(PUBLISHED)
    with pytest.raises(UserError, match="--gpus: how many GPUs is not said"):
        verb("check-claim", "--model", "llama2-7b", "--hardware", "h100", "--mfu", 0.5)


def test_the_table_is_committed_where_the_readme_says():
    assert TABLE.relative_to(ROOT).as_posix() == "config/reported/claimed-rates.csv"
