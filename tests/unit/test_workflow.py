"""The plan of a workflow run: its files, what it refuses, that fresh and cached never mix, and that it runs alone."""

import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from scaling_study.errors import UserError
from scaling_study.workflow import DRAWN, Drawing, Plan, cancel_timers
from tests.unit.samples import CONFIG, ROOT

STUDY = """
title: a study
platform: here
base: {model: tiny, hardware: cpu, micro_batch: 1, local_batch: 1, sequence_length: 32}
sweeps:
  one: {title: one, product: {nodes: [1, 2]}}
  two: {title: two, product: {nodes: [2, 4]}, base: {protocol: {data: words}}}
  later: {title: later, status: planned, base: {nodes: 1}}
figures: {hst-01: {sweep: one}, hst-05: {sweep: two}}
tables: {layouts: {sweep: two}}
"""
MODEL = "{layers: 1, hidden: 8, heads: 2, kv_heads: 2, ffn: 8, vocabulary: 32, source: test}"


@pytest.fixture
def checkout(tmp_path):
    for name, content in {
        "studies/first": STUDY,
        "studies/second": STUDY,
        "models/tiny": MODEL,
        "hardware/cpu": "{title: t, gpus_per_node: 1}",
        "platforms/here": "{title: t, executor: local, hardware: cpu}",
        "platforms/there": "{title: t, executor: local, hardware: cpu}",
        "data/wikipedia-stackexchange": "{title: t, source: planned}",
    }.items():
        path = tmp_path / "config" / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return tmp_path


def _cache(checkout, study="first", platform="here", sweeps=("one", "two")):
    for sweep in sweeps:
        path = checkout / "results" / "cached" / study / platform / f"{sweep}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def wildcards(**names):
    return SimpleNamespace(**names)


# -- files ----------------------------------------------------------------------------------------------------------

FIGURES = [f"figures/first/{name}{suffix}" for name in ("hst-01", "hst-05") for suffix in (".svg", ".png", ".vl.json")]


def test_a_study_is_its_records_figures_and_tables(checkout):
    plan = Plan({"studies": "first"}, checkout)
    records = ["results/first/here/one.parquet", "results/first/here/two.parquet"]
    assert plan.targets() == [*records, *FIGURES, "figures/first/layouts.csv"]


def test_planned_sweeps_are_left_out(checkout):
    plan = Plan({"studies": "first"}, checkout)
    assert plan.sweeps(plan.studies["first"]) == ["one", "two"]


def test_several_studies_stand_side_by_side(checkout):
    plan = Plan({"studies": "first,second"}, checkout)
    assert list(plan.studies) == ["first", "second"]
    assert [path.replace("second", "first") for path in plan.figures() if "second" in path] == FIGURES
    assert len(set(plan.targets())) == len(plan.targets()) == 2 * (2 + 6 + 1)


def test_figures_and_tables_are_made_of_the_records_that_the_study_names(checkout):
    plan = Plan({"studies": "first"}, checkout)
    assert plan.figure_records(wildcards(study="first", figure="hst-01")) == ["results/first/here/one.parquet"]
    assert plan.figure_records(wildcards(study="first", figure="hst-05")) == ["results/first/here/two.parquet"]
    assert plan.table_records(wildcards(study="first", table="layouts")) == ["results/first/here/two.parquet"]


def test_a_table_of_definitions_is_made_of_the_files_that_hold_them(checkout):
    study = checkout / "config" / "studies" / "first.yaml"
    study.write_text(study.read_text().replace("{layouts: ", "{hst-table1: {}, layouts: "))
    (checkout / "config" / "reported").mkdir()
    (checkout / "config" / "reported" / "it.yaml").write_text("{title: t, source: s, tolerance: 0, rows: []}")
    plan = Plan({"studies": "first"}, checkout)
    alone, of_records = (wildcards(study="first", table=name) for name in ("hst-table1", "layouts"))
    models = sorted(path.relative_to(checkout / "config") for path in (checkout / "config" / "models").glob("*.yaml"))
    files = [checkout / "config" / name for name in ("hardware/cpu.yaml", *models, "reported/it.yaml")]
    assert plan.table_definitions(alone) == [str(path) for path in files]
    assert plan.table_records(alone) == plan.table_definitions(of_records) == []


def test_the_paper_depends_on_the_definitions_in_its_tables():
    found = Plan({}, ROOT).paper_definitions()
    assert {"config/hardware/v100.yaml", "config/reported/hst-table1.yaml"} <= {
        str(Path(path).relative_to(ROOT)) for path in found
    }


def test_a_table_of_claims_is_made_of_every_record_and_table(checkout):
    plan = Plan({}, ROOT)
    one = wildcards(study="paper", table="claims")
    made_of = plan.table_records(one)
    assert set(made_of) == {*plan.all_records(), *plan.paper_tables()}
    assert "results/mini/local/data_parallel.parquet" in made_of
    assert "results/paper/model/sensitivity.parquet" in made_of
    assert str(ROOT / "config/claims.yaml") in plan.table_definitions(one)
    assert str(ROOT / "config/claims.yaml") in plan.paper_definitions()
    assert "figures/paper/claims.csv" in plan.targets()


def test_another_platform_has_its_own_records(checkout):
    plan = Plan({"studies": "first", "platform": "there"}, checkout)
    assert plan.records("first", "one") == "results/first/there/one.parquet"


def test_another_configuration_folder(checkout):
    (checkout / "config").rename(checkout / "other")
    assert list(Plan({"studies": "first", "config_folder": "other"}, checkout).studies) == ["first"]


def test_a_sweep_reads_the_token_files_of_its_runs(checkout):
    plan = Plan({"studies": "first"}, checkout)
    assert plan.data_of_sweep(wildcards(study="first", sweep="two")) == [
        "results/data/words.json",
        "results/data/words.bin",
    ]


def test_the_only_parameter_of_a_measurement_is_its_run_ids(checkout):
    plan = Plan({"studies": "first"}, checkout)
    ids = plan.run_ids(wildcards(study="first", sweep="one"))
    assert [one.split("_mb")[0] for one in ids.split()] == ["tiny_cpu_n1_dp1-tp1-pp1", "tiny_cpu_n2_dp2-tp1-pp1"]
    path = checkout / "config" / "studies" / "first.yaml"
    path.write_text("# a comment\n" + path.read_text().replace("title: one", "title: 'another  title'"))
    assert Plan({"studies": "first"}, checkout).run_ids(wildcards(study="first", sweep="one")) == ids
    path.write_text(path.read_text().replace("nodes: [1, 2]", "nodes: [1, 4]"))
    assert Plan({"studies": "first"}, checkout).run_ids(wildcards(study="first", sweep="one")) != ids


def test_drawing_code_is_all_modules_that_draw_and_no_other(checkout):
    code = Plan({"studies": "first"}, checkout).drawing_code()
    assert all(any(f"/{room}/" in path for room in ("present", "records", "roofline")) for path in code)
    assert {path.rsplit(".", 1)[-1] for path in code} == {"py", "otf", "js", "css", "j2"}
    assert {"render.py", "page.js", "theme.py", "hst_01.py", "best.py"} <= {path.rsplit("/", 1)[-1] for path in code}


def test_the_paper_is_made_of_the_studies_that_it_reports():
    plan = Plan({}, ROOT)
    assert list(plan.studies) == ["mini", "paper"]
    assert plan.has_paper
    assert plan.targets()[-2:] == ["paper/paper.pdf", "results/report.html"]
    mini, paper = CONFIG.study("mini"), CONFIG.study("paper")
    predicted = [name for name, sweep in paper.sweeps.items() if sweep.status == "ready"]
    assert plan.paper_records() == [
        *(f"results/mini/local/{sweep}.parquet" for sweep in mini.sweeps),
        *(f"results/paper/predict/{sweep}.parquet" for sweep in predicted),
    ]
    assert plan.paper_figures() == [
        f"figures/{study.name}/{figure}.svg" for study in (mini, paper) for figure in study.figures
    ]
    assert plan.paper_tables() == [
        f"results/paper/model/{name}.parquet" for name in ("validation", "sensitivity", "fabric")
    ]
    assert plan.report_figures() == [
        f"figures/{study.name}/{figure}.vl.json" for study in (mini, paper) for figure in study.figures
    ]
    assert [path.rsplit("/", 2)[1] for path in plan.report_timelines()] == ["timelines"] * 2
    assert {"paper/paper.typ", "paper/references.yml"} <= set(plan.paper_sources())
    runs = plan.run_ids(wildcards(study="mini", sweep="data_parallel")).split()
    assert len(runs) == len(set(runs)) == 3


def test_other_studies_have_no_paper(checkout):
    assert not Plan({"studies": "first"}, checkout).has_paper


# -- fresh and cached -----------------------------------------------------------------------------------------------


def _all_records(plan):
    asked = [
        plan.records("first", "one"),
        *plan.figure_records(wildcards(study="first", figure="hst-05")),
        *plan.table_records(wildcards(study="first", table="layouts")),
        *plan.all_records(),
        *(path for path in plan.targets() if path.endswith(".parquet")),
    ]
    return set(asked)


def test_fresh_and_cached_records_never_mix(checkout):
    _cache(checkout)
    fresh = _all_records(Plan({"studies": "first"}, checkout))
    cached = _all_records(Plan({"studies": "first", "source": "cached"}, checkout))
    assert fresh == _all_records(Plan({"studies": "first", "source": "measure"}, checkout))
    assert {path.replace("results/", "results/cached/") for path in fresh} == cached
    assert not any("cached" in path for path in fresh)
    assert all(path.startswith("results/cached/") for path in cached)


def test_figures_go_to_the_same_place_either_way(checkout):
    _cache(checkout)
    assert Plan({"studies": "first", "source": "cached"}, checkout).figures() == FIGURES


def test_all_of_the_cache_is_drawn_by_one_job_and_one_figure_by_its_own(checkout):
    _cache(checkout)
    plan = Plan({"studies": "first", "source": "cached"}, checkout)
    place = "results/cached/first/here"
    assert plan.draws_all
    assert plan.targets() == [f"{place}/one.parquet", f"{place}/two.parquet", DRAWN]
    assert plan.drawings() == [
        Drawing("first", "layouts", (f"{place}/two.parquet",), is_table=True),
        Drawing("first", "hst-01", (f"{place}/one.parquet",)),
        Drawing("first", "hst-05", (f"{place}/two.parquet",)),
    ]
    assert not Plan({"studies": "first"}, checkout).draws_all
    assert not Plan({"study": "first", "figure": "hst-01", "source": "cached"}, checkout).draws_all


def test_the_job_that_draws_all_is_told_studies_and_a_platform_that_is_not_theirs(checkout):
    both = {"studies": "first,second", "source": "cached"}
    assert Plan(both, checkout).drawing_options() == ["first", "second"]
    there = Plan({**both, "platform": "there"}, checkout)
    assert there.drawing_options() == ["first", "second", "--platform there"]
    assert there.drawings()[0].files == ("results/cached/first/there/two.parquet",)


def test_a_drawing_has_the_timelines_of_its_figure():
    plan = Plan({"studies": "paper", "source": "cached"}, ROOT)
    (found,) = [one for one in plan.drawings() if one.name == "hst-10"]
    assert found.timelines == tuple(plan.figure_timelines(wildcards(study="paper", figure="hst-10")))
    assert found.timelines


def test_missing_cached_records_are_refused_before_anything_starts(checkout):
    _cache(checkout, sweeps=("one",))
    with pytest.raises(
        UserError, match=r"cached/first/here/two\.parquet: there are no committed records\. Measure and"
    ):
        Plan({"studies": "first", "source": "cached"}, checkout).targets()


@pytest.mark.parametrize("source", ["cache", "CACHED", "results", "", None, True])
def test_an_unknown_source_is_refused_and_not_measured(source, checkout):
    with pytest.raises(UserError, match=r"--config: unknown source .*\. Known: measure, cached\."):
        Plan({"studies": "first", "source": source}, checkout)


# -- one figure -----------------------------------------------------------------------------------------------------


def test_one_figure_is_its_three_files(checkout):
    plan = Plan({"study": "first", "figure": "hst-05"}, checkout)
    assert plan.targets() == plan.one_figure() == FIGURES[3:]


def test_one_figure_of_the_cache_needs_only_its_own_records(checkout):
    _cache(checkout, sweeps=("two",))
    plan = Plan({"study": "first", "figure": "hst-05", "source": "cached"}, checkout)
    assert plan.targets() == FIGURES[3:]
    with pytest.raises(UserError, match=r"one\.parquet: there are no committed records"):
        Plan({"study": "first", "figure": "hst-01", "source": "cached"}, checkout).targets()


def test_an_unknown_figure_lists_those_that_there_are(checkout):
    with pytest.raises(UserError, match=r"study first: there is no figure 'hst-99'\. Figures: hst-01, hst-05\."):
        Plan({"study": "first", "figure": "hst-99"}, checkout).targets()


@pytest.mark.parametrize(
    "settings", [{"figure": "hst-01"}, {"study": "first"}, {"study": "first", "studies": "second"}]
)
def test_study_and_figure_go_together(settings, checkout):
    with pytest.raises(UserError, match=r"--config: study and figure go together\. Give both"):
        Plan(settings, checkout)


# -- settings -------------------------------------------------------------------------------------------------------


def test_unknown_settings_are_named_with_those_that_are_known(checkout):
    with pytest.raises(
        UserError, match=r"--config: unknown setting plattform, sweep\. Known: .*platform.*studies"
    ) as caught:
        Plan({"studies": "first", "sweep": "one", "plattform": "here"}, checkout)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("studies", ["third", "first,third", "first,", "first, second"])
def test_an_unknown_study_lists_those_that_there_are(studies, checkout):
    with pytest.raises(UserError, match=r"there is no .*\.yaml\..* Known: first, second\."):
        Plan({"studies": studies}, checkout)


# -- a cluster beside predictions -----------------------------------------------------------------------------------

PREDICTED = """
title: a study
platform: predict
base: {model: tiny, micro_batch: 1, local_batch: 1, sequence_length: 32}
sweeps:
  both: {title: both, product: {hardware: [gpu, cpu], nodes: [1, 2]}}
  ours: {title: ours, base: {hardware: gpu}, product: {nodes: [4, 8]}}
  theirs: {title: theirs, base: {hardware: cpu}, product: {nodes: [1]}}
  later: {title: later, status: planned, base: {hardware: gpu}, product: {nodes: [16]}}
figures: {hst-01: {sweep: both}, hst-05: {sweep: theirs}, hst-04: {sweep: ours}}
tables: {layouts: {sweep: both}}
"""
#: A run that nothing predicts takes the limit of a run, 10 hours, on one part a node.
CLUSTER = "{title: t, executor: slurm, hardware: gpu, run_limit_s: 35400, slurm: {partition: p, nodes: 8, " \
    "nodes_at_once: 8, most_minutes: 999}}"  # fmt: skip
GPU_HOURS = 10 * (1 + 2 + 4 + 8)


@pytest.fixture
def cluster(checkout):
    for name, content in {
        "studies/it": PREDICTED,
        "hardware/gpu": "{title: t, gpus_per_node: 1}",
        "platforms/cluster": CLUSTER,
    }.items():
        (checkout / "config" / f"{name}.yaml").write_text(content)
    return lambda **settings: Plan({"studies": "it", "platform": "cluster", **settings}, checkout)


def test_a_cluster_stands_beside_predictions_where_it_has_the_hardware(cluster):
    plan, both = cluster(), ["results/it/cluster/both.parquet", "results/it/predict/both.parquet"]
    theirs, ours = (["results/it/predict/theirs.parquet"], [path.replace("both", "ours") for path in both])
    assert plan.all_records() == [*both, *ours, *theirs]
    assert plan.figure_records(wildcards(study="it", figure="hst-01")) == both
    assert plan.figure_records(wildcards(study="it", figure="hst-04")) == ours
    assert plan.figure_records(wildcards(study="it", figure="hst-05")) == theirs
    assert plan.table_records(wildcards(study="it", table="layouts")) == both
    assert set(plan.all_records()) <= set(plan.targets())


def test_predictions_alone_have_one_file_a_sweep(cluster):
    plan = cluster(platform="predict")
    assert plan.all_records() == [f"results/it/predict/{name}.parquet" for name in ("both", "ours", "theirs")]


def test_a_measured_study_has_no_predictions_beside_it(cluster):
    plan = cluster(studies="first", platform="there")
    assert plan.all_records() == [f"results/first/there/{name}.parquet" for name in ("one", "two")]


def test_a_job_is_about_the_runs_of_its_platform(cluster):
    def hardware(**names):
        return [name.split("_")[1] for name in cluster().run_ids(wildcards(study="it", sweep="both", **names)).split()]

    assert hardware(platform="cluster") == ["gpu", "gpu"]
    assert sorted(hardware()) == ["cpu", "cpu", "gpu", "gpu"]


def test_local_measurements_take_all_cores_and_watching_a_cluster_takes_one(cluster):
    local, far, predicted = cluster(studies="first", platform="here"), cluster(), cluster(platform="predict")
    local.cores = far.cores = predicted.cores = 12
    found = [
        (plan.measuring_threads(wildcards(study=study)), plan.local_runs(wildcards(study=study)))
        for plan, study in ((local, "first"), (far, "it"), (predicted, "it"))
    ]
    assert found == [(12, 1), (1, 0), (1, 0)]


# -- a budget -------------------------------------------------------------------------------------------------------


def _without_later(checkout):
    path = checkout / "config" / "studies" / "it.yaml"
    path.write_text("\n".join(line for line in path.read_text().splitlines() if "planned" not in line))


@pytest.mark.parametrize("budget", [GPU_HOURS, str(GPU_HOURS), 1e9, None])
def test_a_budget_that_suffices_is_no_matter(budget, cluster, checkout):
    _without_later(checkout)
    cluster(budget_gpu_hours=budget).check_budget()


def test_what_takes_more_than_the_budget_is_refused_with_both_numbers(cluster, checkout):
    _without_later(checkout)
    with pytest.raises(UserError) as caught:
        cluster(budget_gpu_hours=GPU_HOURS - 1).check_budget()
    assert str(caught.value) == (
        "cluster: all of it takes about 150 GPU-hours, the budget is 149 (budget_gpu_hours). Raise it, or leave out "
        "sweeps; `scaling-study runs STUDY --platform P` says what takes it."
    )


def test_sweeps_that_are_only_planned_take_nothing_of_a_budget(cluster):
    cluster(budget_gpu_hours=GPU_HOURS).check_budget()


@pytest.mark.parametrize("settings", [{"platform": "predict"}, {"source": "cached"}])
def test_what_measures_nothing_needs_no_budget(settings, cluster):
    cluster(budget_gpu_hours=0, **settings).check_budget()


@pytest.mark.parametrize("budget", ["much", "", [1]])
def test_a_budget_is_a_number(budget, cluster):
    with pytest.raises(UserError, match=r"--config: budget_gpu_hours is .*, a number is needed\. Mend the profile"):
        cluster(budget_gpu_hours=budget).check_budget()


def test_a_budget_that_is_no_number_allows_nothing(cluster):
    with pytest.raises(UserError, match="the budget is nan"):
        cluster(budget_gpu_hours="nan").check_budget()


# -- one at a time --------------------------------------------------------------------------------------------------

HOLDER = """
import sys, time
from pathlib import Path
from scaling_study.errors import UserError
from scaling_study.workflow import Plan
plan = Plan({"studies": "first"}, Path(sys.argv[1]))
try:
    plan.lock()
except UserError as error:
    print(error, flush=True)
else:
    print("held", flush=True)
    time.sleep(60)
"""


def _hold(checkout):
    command = [sys.executable, "-c", HOLDER, str(checkout)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    return process, process.stdout.readline().strip()


def test_a_second_run_is_refused_and_a_killed_one_holds_nothing(checkout):
    first, said = _hold(checkout)
    try:
        assert said == "held"
        _, refused = _hold(checkout)
        path = checkout / "results" / ".workflow.lock"
        assert refused == f"{path}: another workflow run is at work in this checkout. Wait for it, or stop it."
        with pytest.raises(UserError, match="another workflow run is at work"):
            Plan({"studies": "first"}, checkout).lock()
        first.send_signal(signal.SIGKILL)
        first.wait(10)
        third, said = _hold(checkout)
        third.kill()
        third.wait(10)
        assert said == "held"
    finally:
        first.kill()
        first.wait(10)


def test_other_checkouts_are_not_held(checkout, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    (other / "config").symlink_to(checkout / "config")
    plans = [Plan({"studies": "first"}, place) for place in (checkout, other)]
    for plan in plans:
        plan.lock()


def test_a_place_that_cannot_be_locked_is_said(checkout):
    (checkout / "results").write_bytes(b"")
    with pytest.raises(UserError, match=r"\.workflow\.lock: "):
        Plan({"studies": "first"}, checkout).lock()


def test_a_figure_of_roofs_is_drawn_from_definitions_alone():
    plan = Plan({}, ROOT)
    figure = wildcards(study="paper", figure="cr-01")
    assert plan.figure_records(figure) == plan.figure_timelines(figure) == []
    definitions = {str(Path(path).relative_to(ROOT)) for path in plan.figure_definitions(figure)}
    assert {"config/hardware/h100.yaml", "config/models/llama2-70b.yaml"} <= definitions


def test_timers_are_cancelled_and_other_threads_go_on():
    fired, other = threading.Event(), threading.Event()
    timer, thread = threading.Timer(30.0, fired.set), threading.Thread(target=other.wait, args=(30,))
    timer.start(), thread.start()
    cancel_timers()
    timer.join(5.0)
    assert not timer.is_alive()
    assert not fired.is_set()
    assert thread.is_alive()
    other.set()
    thread.join(5.0)
