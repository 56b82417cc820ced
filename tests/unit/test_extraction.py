"""The verb that compares a run's closed forms with its extraction."""

import json

import msgspec
import pytest

from scaling_study import extraction
from scaling_study.cli import main
from scaling_study.errors import UserError
from scaling_study.extraction import compare, print_comparison
from scaling_study.spec import CollectiveRun, TrainingRun, expand, run_id
from tests.unit.samples import CONFIG, ROOT


def some_run(sweep, kind=TrainingRun, **fields):
    """The id of the first run of a sweep of the mini study that has these fields."""
    runs = expand(CONFIG.study("mini"), sweep, CONFIG.catalogue)
    chosen = (r for r in runs if isinstance(r, kind) and all(getattr(r, name) == v for name, v in fields.items()))
    return run_id(next(chosen))


@pytest.fixture(scope="module")
def comparison():
    return compare(CONFIG, "mini", some_run("model_size", model="mini-4m", pp=1), 0)


def test_a_run_of_the_mini_study_agrees(comparison):
    assert comparison.agrees
    assert comparison.difference is None
    assert abs(comparison.memory_error) < 0.01
    #: two blocks of seven matmuls and the head; each twice backward
    assert [(r.kind, r.backward, r.predicted_count, r.extracted_count) for r in comparison.operations] == [
        ("matmul", False, 15, 15),
        ("attention", False, 2, 2),
        ("matmul", True, 30, 30),
        ("attention", True, 2, 2),
    ]
    assert all(r.predicted_flops == r.extracted_flops for r in comparison.operations)
    assert {(r.op, r.axis, r.ranks) for r in comparison.communications} == {
        ("all_gather", "dp", 4),
        ("reduce_scatter", "dp", 4),
    }
    assert all(r.predicted_count == r.extracted_count for r in comparison.communications)


def test_what_a_person_sees(comparison, capsys):
    print_comparison(comparison)
    printed = capsys.readouterr().out
    assert comparison.run_id in printed
    assert "all-gather" in printed
    assert "optimizer" in printed
    assert "agree, step by step and in order" in printed


def test_a_step_that_is_missing_is_named(comparison, monkeypatch, capsys):
    whole = extraction.workload_of

    class Shorter:
        def __init__(self, *arguments):
            self.all = list(whole(*arguments).steps())

        def steps(self):
            return (step for step in self.all if step.name != "output")

    monkeypatch.setattr(extraction, "workload_of", Shorter)
    found = compare(CONFIG, "mini", comparison.run_id, 0)
    assert not found.agrees
    print_comparison(found)
    printed = capsys.readouterr().out
    assert "They differ. step " in printed
    assert found.operations[0].predicted_count == found.operations[0].extracted_count - 1


def test_memory_alone_may_differ(comparison, capsys):
    off = msgspec.structs.replace(
        comparison, agrees=False, predicted_memory_bytes=2 * comparison.extracted_memory_bytes
    )  # fmt: skip
    print_comparison(off)
    assert "the peak of memory does not: +100.0%" in capsys.readouterr().out


@pytest.mark.parametrize(("agrees", "code"), [(True, 0), (False, 1)])
def test_the_exit_code_tells(comparison, agrees, code, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(extraction, "compare", lambda *_: msgspec.structs.replace(comparison, agrees=agrees))
    with pytest.raises(SystemExit) as caught:
        main(["extract", comparison.run_id, "--study", "mini", "--json"])
    assert caught.value.code == code
    assert json.loads(capsys.readouterr().out)["agrees"] is agrees


def test_an_unknown_run_is_refused(comparison):
    with pytest.raises(UserError, match=r"there is no training run .* Did you mean .*mini-4m") as caught:
        compare(CONFIG, "mini", comparison.run_id[:-1] + "x", 0)
    assert "scaling-study runs mini" in caught.value.remedy


def test_a_collective_run_is_refused():
    with pytest.raises(UserError, match="there is no training run"):
        compare(CONFIG, "mini", some_run("collectives", CollectiveRun), 0)


@pytest.mark.parametrize(("pp", "stage", "remedy"), [(1, 1, "It has one stage, 0."), (2, -1, "Stages: 0 to 1.")])
def test_a_stage_that_does_not_exist_is_refused(pp, stage, remedy):
    with pytest.raises(UserError, match="there is no stage") as caught:
        compare(CONFIG, "mini", some_run("model_size", pp=pp), stage)
    assert caught.value.remedy == remedy
