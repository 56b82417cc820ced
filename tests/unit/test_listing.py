"""The list of a study's runs: each once, with what it takes at least."""

import pytest

from scaling_study.errors import UserError
from scaling_study.listing import list_runs, print_listing
from scaling_study.spec import Config, expand, run_id
from tests.unit.samples import CONFIG, ROOT

STUDY = """
title: a study
platform: there
base: {model: big, hardware: part, micro_batch: 1, precision: bf16, global_batch: 64, sequence_length: 1024,
       protocol: {iterations: 100}}
sweeps:
  one: {title: one, product: {nodes: [1, 2]}}
  two: {title: two, base: {nodes: 2}, product: {tp: [1, 2]}}
  talk: {title: talk, kind: collective, product: {nodes: [1, 4]},
         base: {hardware: part, op: all_reduce, message_bytes: 32}}
  elsewhere: {title: elsewhere, base: {nodes: 1, hardware: unknown}}
"""
#: 4 layers of 4 * 256**2 + 3 * 256 * 1024 + 2 * 256, embedding and head of 1000 * 256, final norm
PARAMETERS = 4 * (4 * 256**2 + 3 * 256 * 1024 + 512) + 2 * 256_000 + 256
FLOPS = 6 * PARAMETERS + 12 * 4 * 256 * 1024
#: 100 iterations of 64 sequences on parts of 0.001 TFLOP/s
HOURS = FLOPS * 64 * 1024 * 100 / 1e9 / 3600
STATE_GIB = 12 * (PARAMETERS - 256) / 2**30


@pytest.fixture
def config(tmp_path):
    part = "{title: a part, gpus_per_node: 4, peak_tflops: {bf16: {value: 0.001, source: s}}, " \
        "memory_gib: {value: 0.0195, source: s}, sources: {s: a data sheet}}"  # fmt: skip
    for name, content in {
        "studies/it": STUDY,
        "models/big": "{layers: 4, hidden: 256, heads: 4, kv_heads: 4, ffn: 1024, vocabulary: 1000, source: test}",
        "hardware/part": part,
        "hardware/unknown": "{title: unknown, gpus_per_node: 4}",
        "platforms/there": "{title: t, executor: local, hardware: unknown}",
    }.items():
        path = tmp_path / f"{name}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
    return Config(tmp_path)


def test_every_run_is_listed_once_with_its_sweeps(config):
    rows = list_runs(config, "it", None, None)["runs"]
    assert len({row["run_id"] for row in rows}) == len(rows) == 2 + 1 + 2 + 1
    shared = next(row for row in rows if row["nodes"] == 2 and row.get("tp") == 1)
    assert shared["sweeps"] == ["one", "two"]


def test_a_run_is_described_by_its_fields_and_what_follows(config):
    row = list_runs(config, "it", "one", None)["runs"][0]
    assert (row["kind"], row["model"], row["dp"], row["gpus"], row["global_batch"]) == ("training", "big", 4, 4, 64)
    assert row["protocol"]["iterations"] == 100
    assert row["gpu_hours_at_least"] is None  # it cannot fit: 12 bytes a parameter over 4 and 2 bytes gathered
    assert row["memory_gib_at_least"] == pytest.approx(STATE_GIB / 4 + STATE_GIB / 6)
    assert not row["feasible"]
    assert row["reason"].startswith("parameters and optimizer alone need 0 GiB a GPU, a part has 0")


def test_totals_of_a_sweep_by_hand(config):
    listing = list_runs(config, "it", None, None)
    assert listing["sweeps"]["one"] == {
        "runs": 2,
        "infeasible": 1,
        "largest_gpus": 8,
        "gpu_hours_at_least": pytest.approx(HOURS),
        "node_hours_at_least": pytest.approx(HOURS / 4),
        "runs_without_bound": 0,
    }
    assert listing["sweeps"]["two"]["gpu_hours_at_least"] == pytest.approx(2 * HOURS)
    assert listing["totals"]["gpu_hours_at_least"] == pytest.approx(2 * HOURS)  # the shared run counts once
    assert (listing["totals"]["runs"], listing["totals"]["infeasible"]) == (6, 1)


def test_runs_without_a_peak_or_a_model_have_no_bound(config):
    listing = list_runs(config, "it", None, None)
    none = {"infeasible": 0, "gpu_hours_at_least": None, "node_hours_at_least": None}
    assert listing["sweeps"]["talk"] == {"runs": 2, "largest_gpus": 16, "runs_without_bound": 2, **none}
    assert listing["sweeps"]["elsewhere"] == {"runs": 1, "largest_gpus": 4, "runs_without_bound": 1, **none}
    collective = list_runs(config, "it", "talk", None)["runs"][0]
    assert (collective["gpus"], collective["feasible"], collective["reason"]) == (4, True, None)


def test_a_platform_lists_only_what_it_measures(config):
    listing = list_runs(config, "it", None, "there")
    assert [row["hardware"] for row in listing["runs"]] == ["unknown"]
    assert list(listing["sweeps"]) == ["elsewhere"]


def test_a_sweep_lists_only_its_own(config):
    listing = list_runs(config, "it", "two", None)
    assert list(listing["sweeps"]) == ["two"]
    assert [row["tp"] for row in listing["runs"]] == [1, 2]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [(("no", None, None), "there is no no.yaml"), (("it", "no", None), "there is no sweep 'no'"),
     (("it", None, "no"), "there is no no.yaml")],
)  # fmt: skip
def test_unknown_names_are_refused(arguments, complaint, config):
    with pytest.raises(UserError, match=complaint):
        list_runs(config, *arguments)


def test_the_list_of_the_paper_has_every_run_of_every_sweep():
    listing = list_runs(CONFIG, "paper", None, None)
    study = CONFIG.study("paper")
    expected = {run_id(run) for sweep in study.sweeps for run in expand(study, sweep, CONFIG.catalogue)}
    assert {row["run_id"] for row in listing["runs"]} == expected
    assert listing["totals"]["runs"] == len(expected)
    assert listing["totals"]["largest_gpus"] == 4096  # collectives on 512 nodes
    assert listing["sweeps"]["data_parallel"]["largest_gpus"] == 2048
    for row in listing["runs"]:
        if row["kind"] == "training" and row["model"] == "llama2-70b" and row["tp"] == row["pp"] == 1:
            assert not row["feasible"]


def test_data_parallel_of_the_paper_takes_at_least_its_flops_at_peak():
    listing = list_runs(CONFIG, "paper", "data_parallel", None)
    sequences = sum(2 * gpus for gpus in (8, 16, 32, 64, 128, 256, 512, 1024, 2048))
    hours = sequences * 4096 * 46_872_944_640 * 60 / 989.4e12 / 3600
    assert listing["totals"]["gpu_hours_at_least"] == pytest.approx(hours)
    assert listing["totals"]["node_hours_at_least"] == pytest.approx(hours / 8)


def test_the_list_for_people_says_what_the_numbers_are(config, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    print_listing(list_runs(config, "it", None, None))
    printed = capsys.readouterr().out
    assert "runs of it" in printed
    assert "all, each run once" in printed
    assert "no bound" in printed
    assert "Lower bounds: every FLOP of the timed iterations at the part's dense peak" in printed
    assert f"{2 * HOURS:,.1f}" in printed
    for row in list_runs(config, "it", None, None)["runs"]:
        assert row["run_id"] in printed


@pytest.mark.parametrize(
    ("study", "sentence"), [("mini", "{:,} runs: "), ("paper", "every run of the full study: {:,}, ")]
)
def test_the_readme_counts_the_runs(study, sentence):
    count = list_runs(CONFIG, study, None, None)["totals"]["runs"]
    assert sentence.format(count) in " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
