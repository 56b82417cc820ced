"""The search over layouts."""

import json
import time

import numpy as np
import pytest

from scaling_study.cli import main
from scaling_study.predict.fast import iteration
from scaling_study.predict.planning import candidates, plan, rank
from scaling_study.predict.power import computing_share, power_w
from scaling_study.spec import ActivationCheckpointing, violations
from tests.unit.predict.setups import LIBRARY, one
from tests.unit.samples import CONFIG, ROOT

MODEL, HARDWARE = CONFIG.catalogue.models["llama2-7b"], CONFIG.catalogue.hardware["h100"]


def test_every_candidate_is_possible_and_different():
    runs = list(candidates(MODEL, HARDWARE, 64, 128, 4096))
    assert len(runs) == len(set(runs)) > 100
    assert not [run for run in runs if violations(run, MODEL, HARDWARE)]
    assert {run.tp for run in runs} == {1, 2, 4, 8, 16, 32}
    assert {run.activation_checkpointing for run in runs} == set(ActivationCheckpointing)


def test_plans_are_ranked_with_what_fits_first():
    plans = plan(CONFIG, "llama2-7b", "h100", 64, 128, 4096)
    assert plans[0].fits
    assert [one.fits for one in plans] == sorted((one.fits for one in plans), reverse=True)
    rates = [one.tokens_per_second for one in plans if one.fits]
    assert rates == sorted(rates, reverse=True)
    best = plans[0]
    assert best.tokens_per_second == pytest.approx(128 * 4096 / best.step_time_s)
    assert best.tokens_per_joule == pytest.approx(best.tokens_per_second / (64 * best.power_w_per_gpu))
    assert best.gpu_hours_per_billion_tokens == pytest.approx(64 * 1e9 / best.tokens_per_second / 3600)


def test_seventy_billion_parameters_need_model_parallelism_or_resharding():
    fitting = [one for one in plan(CONFIG, "llama2-70b", "h100", 64, 64, 4096) if one.fits]
    assert fitting
    assert all(one.tp * one.pp > 1 or one.reshard_after_forward for one in fitting)


def test_two_thousand_plans_a_second():
    runs = list(candidates(MODEL, HARDWARE, 256, 512, 4096))
    start = time.process_time()
    rank(runs, MODEL, HARDWARE, LIBRARY)
    assert len(runs) / (time.process_time() - start) > 2000


def test_power_lies_between_idle_and_the_limit():
    constants = LIBRARY.parameter_set("a100").values()
    for fields in ({}, {"dp": 64, "global_batch": 64, "node_network_gb_per_s": 1}):
        batch = one(**fields)
        found = iteration(batch, constants, "a100")
        assert 0 < computing_share(batch, found)[0] <= 1
        assert 0.12 * 400 < power_w(batch, found, np.array([400.0]))[0] <= 400
    busy, waiting = (
        float(power_w(one(**fields), iteration(one(**fields), constants, "a100"), np.array([400.0]))[0])
        for fields in ({}, {"dp": 64, "global_batch": 64, "node_network_gb_per_s": 1})
    )
    assert waiting < busy


def said(capsys, monkeypatch, *arguments):
    monkeypatch.chdir(ROOT)
    with pytest.raises(SystemExit) as caught:
        main(["plan", *arguments])
    captured = capsys.readouterr()
    return caught.value.code, captured.out, captured.err


ASKED = ("--model", "llama2-7b", "--hardware", "h100", "--gpus", "16", "--global-batch", "32")


def test_the_verb_prints_a_table_and_json(capsys, monkeypatch):
    code, table, _ = said(capsys, monkeypatch, *ASKED, "--top", "3")
    assert code == 0
    assert len(table.splitlines()) == 5
    code, text, _ = said(capsys, monkeypatch, *ASKED, "--json")
    plans = json.loads(text)["plans"]
    assert code == 0
    assert {"dp", "tp", "pp", "tokens_per_second", "memory_gib", "tokens_per_joule", "fits"} <= set(plans[0])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (("--model", "llama9"), "unknown: 'llama9'"),
        (("--gpus", "12"), "do not fill nodes of 8"),
        (("--hardware", "cpu"), "no part"),
    ],
)
def test_what_cannot_be_planned_is_one_message(capsys, monkeypatch, changes, words):
    code, _, error = said(capsys, monkeypatch, *ASKED, *changes)
    assert code == 2
    assert words in error
