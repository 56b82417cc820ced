"""The list of a study's runs: each once, with what it takes at least."""

import pytest

from scaling_study.errors import UserError
from scaling_study.listing import list_runs, print_listing
from scaling_study.spec import Config, expand, run_id
from scaling_study.submit.expected import expected_seconds
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


# -- what a platform would take -------------------------------------------------------------------------------------

FOUR = "{title: t, executor: slurm, hardware: part, run_limit_s: 6600, slurm: {partition: p, nodes: 8, " \
    "nodes_at_once: 8, most_minutes: 999, price_per_gpu_hour: 2}}"  # fmt: skip


@pytest.fixture
def priced(config):
    (config.root / "platforms" / "cluster.yaml").write_text(FOUR)
    return Config(config.root)


def test_without_tables_of_the_model_a_run_takes_its_limit(priced):
    listing = list_runs(priced, "it", "talk", "cluster")
    assert [(row["gpus"], row["expected"].bounded, row["expected"].gpu_hours) for row in listing["runs"]] == [
        (4, 1, 8.0), (16, 1, 32.0),
    ]  # fmt: skip
    expected = listing["totals"]["expected"]
    assert listing["sweeps"]["talk"]["expected"] == expected
    assert (expected.runs, expected.bounded, expected.node_hours, expected.longest_s) == (2, 2, 2.0 + 8.0, 7200.0)
    assert expected.price == 2 * 40.0


def test_without_a_platform_nothing_is_expected(priced):
    listing = list_runs(priced, "it", "talk", None)
    assert not any("expected" in row for row in [*listing["runs"], listing["totals"], *listing["sweeps"].values()])


def test_a_run_of_two_sweeps_is_expected_once(priced):
    listing = list_runs(priced, "it", None, "cluster")
    sums = [totals["expected"].gpu_hours for totals in listing["sweeps"].values()]
    assert sum(sums) - listing["totals"]["expected"].gpu_hours == 8 * 2.0  # two hours on two nodes of four
    assert listing["sweeps"]["two"]["expected"].runs == 2


def test_what_cannot_fit_takes_nothing(priced):
    """The driver ends such a run at once and submits nothing."""
    listing = list_runs(priced, "it", "one", "cluster")
    assert [row["feasible"] for row in listing["runs"]] == [False, True]
    assert listing["totals"]["expected"].gpu_hours == 8 * 2.0


def test_the_paper_on_a_cluster_takes_what_the_model_predicts():
    listing = list_runs(CONFIG, "paper", "data_parallel", "slurm-h100")
    runs = expand(CONFIG.study("paper"), "data_parallel", CONFIG.catalogue)
    seconds = expected_seconds(runs, CONFIG.catalogue, CONFIG.root)
    expected = listing["totals"]["expected"]
    assert (expected.runs, expected.bounded) == (len(runs), 0)
    assert expected.gpu_hours == pytest.approx(sum(run.ranks * (600 + seconds[run_id(run)]) for run in runs) / 3600)
    assert expected.longest_s == pytest.approx(600 + max(seconds.values()))
    assert expected.gpu_hours > listing["totals"]["gpu_hours_at_least"]
    assert 0 < expected.energy_kwh < 0.7 * expected.gpu_hours  # below the power limit of 700 W
    assert expected.price is None


def test_a_part_that_the_model_does_not_know_takes_its_limit(priced):
    (priced.root / "calibration").symlink_to(CONFIG.root / "calibration")
    path = priced.root / "hardware" / "part.yaml"
    path.write_text(path.read_text().replace("{title: a part,", "{title: a part, part: Another Part,"))
    listing = list_runs(Config(priced.root), "it", "talk", "cluster")
    assert listing["totals"]["expected"].bounded == 2


def test_the_list_for_people_says_what_a_platform_would_take(priced, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    print_listing(list_runs(priced, "it", "talk", "cluster"))
    printed = capsys.readouterr().out
    assert "expected on the platform, by the performance model or the limit of a run" in printed
    *_, last = [line for line in printed.splitlines() if line.split()[:2] == ["│", "all,"]] or [""]
    numbers = [cell.strip() for cell in last.split("│")][2:-1]
    assert numbers == ["2", "2", "40.0", "10.0", "120.0", "0.0", "80"]


@pytest.mark.parametrize(
    ("study", "sentence"), [("mini", "{:,} runs: "), ("paper", "every run of the full study: {:,}, ")]
)
def test_the_readme_counts_the_runs(study, sentence):
    count = list_runs(CONFIG, study, None, None)["totals"]["runs"]
    assert sentence.format(count) in " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
