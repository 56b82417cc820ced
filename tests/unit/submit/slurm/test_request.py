"""What a run asks for: nodes, wall time, and that nothing of a configuration becomes a command."""

import msgspec
import pytest

from scaling_study.spec import Executor, Platform, SlurmSettings
from scaling_study.submit.slurm.request import Shape, cannot_hold, parameters, shape_of, wall_minutes
from tests.unit.samples import CONFIG, PART, training_run

SETTINGS = SlurmSettings(partition="main", nodes=16, nodes_at_once=8, most_minutes=240, least_minutes=15)


def platform(**fields):
    settings = msgspec.structs.replace(SETTINGS, **fields)
    return Platform(name="it", title="t", executor=Executor.SLURM, hardware="part", run_limit_s=3600, slurm=settings)


EIGHT = msgspec.structs.replace(PART, gpus_per_node=8)


@pytest.mark.parametrize(
    ("ranks", "each", "nodes", "tasks"),
    [(32, None, 4, 8), (8, None, 1, 8), (2, None, 1, 2), (4, 2, 2, 2), (8, 1, 8, 1)],
)
def test_ranks_fill_nodes(ranks, each, nodes, tasks):
    run = training_run(dp=ranks, nodes=max(1, ranks // 8), global_batch=ranks)
    found = shape_of(run, platform(tasks_per_node=each), EIGHT, 60.0)
    assert (found.nodes, found.tasks_per_node) == (nodes, tasks)


@pytest.mark.parametrize(
    ("expected_s", "minutes"),
    [(None, 10 + 60), (0.0, 15), (1200.0, 10 + 30), (1e6, 240)],
)
def test_wall_time_is_start_up_and_prediction_with_its_margin(expected_s, minutes):
    assert wall_minutes(platform(), expected_s) == minutes


def test_what_a_platform_cannot_hold_is_said():
    def said(expected_s=60.0, ranks=8, **fields):
        return cannot_hold(
            training_run(dp=ranks, nodes=ranks // 8, global_batch=ranks), platform(**fields), EIGHT, expected_s
        )

    assert said() is None
    assert said(ranks=256) == "it needs 32 nodes, a job may have 16 (slurm.nodes)"
    assert said(tasks_per_node=3) == "8 ranks do not fill nodes of 3 (slurm.tasks_per_node)"
    assert said(expected_s=15000.0) == "it takes about 260 minutes, a job may take 240 (slurm.most_minutes)"


def test_at_once_run_as_many_nodes_as_the_platform_allows():
    assert parameters(platform(), Shape(2, 8, 30), "n")["array_parallelism"] == 4
    assert parameters(platform(), Shape(16, 8, 30), "n")["array_parallelism"] == 1


def test_everything_that_a_job_would_guess_is_stated():
    found = parameters(platform(cpus_per_task=16, exclusive=True, account="a", qos="q"), Shape(2, 8, 30), "n")
    assert found["srun_args"] == ["--cpu-bind=none", "--kill-on-bad-exit=1", "--wait=30", "--cpus-per-task=16"]
    assert found["additional_parameters"] == {"no-requeue": True, "mem": "0", "nodes": 2, "ntasks_per_node": 8}
    assert (found["gpus_per_node"], found["time"]) == (8, 30)
    assert (found["account"], found["qos"], found["exclusive"]) == ("a", "q", True)
    assert "constraint" not in found


def test_caches_are_of_the_job_and_variables_are_quoted():
    setup = parameters(
        platform(environment={"A": "x; rm -rf $HOME"}, setup=("module load cuda",)), Shape(1, 1, 30), "n"
    )["setup"]
    assert setup[:2] == ["module load cuda", "export A='x; rm -rf $HOME'"]
    assert all("$SLURM_JOB_ID" in line for line in setup[2:])


@pytest.mark.parametrize(
    ("excluded", "avoid", "asked"),
    [(None, [], None), ("n1", [], "n1"), (None, ["n2", "n3"], "n2,n3"), ("n[1-4]", ["n7"], "n[1-4],n7")],
)
def test_nodes_that_failed_are_excluded_beside_those_of_the_platform(excluded, avoid, asked):
    found = parameters(platform(exclude=excluded), Shape(2, 8, 45), "it", avoid)
    assert found.get("exclude") == asked


@pytest.mark.parametrize("name", ["partition", "account", "qos", "constraint", "exclude"])
@pytest.mark.parametrize("value", ["a b", "a\n#SBATCH --uid=0", "--uid=0", "$(id)", "a;b", "", "a'b"])
def test_no_value_becomes_an_option_or_a_command(name, value):
    fields = {**msgspec.to_builtins(SETTINGS), name: value}
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(fields, SlurmSettings)


@pytest.mark.parametrize("name", ["A-B", "A B", "1A", "A;B"])
def test_a_variable_has_a_name(name):
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({**msgspec.to_builtins(SETTINGS), "environment": {name: "x"}}, SlurmSettings)


@pytest.mark.parametrize("name", ["slurm-v100", "slurm-a100", "slurm-h100"])
def test_the_example_platforms_hold_every_run_of_the_paper_study(name):
    from scaling_study.spec import expand
    from scaling_study.submit.expected import expected_seconds

    made, study, catalogue = CONFIG.platform(name), CONFIG.study("paper"), CONFIG.catalogue
    runs = {}
    for sweep, definition in study.sweeps.items():
        if definition.status == "ready":
            runs |= {id(run): run for run in expand(study, sweep, catalogue) if run.hardware == made.hardware}
    found = list(runs.values())
    expected = expected_seconds(found, catalogue, CONFIG.root)
    from scaling_study.spec import run_id

    assert found
    assert {cannot_hold(run, made, catalogue.hardware[run.hardware], expected.get(run_id(run))) for run in found} == {
        None
    }
