"""A node is avoided after several failures, or at once where a check has named it; who deletes its folder forgives."""

import shutil

from hypothesis import given
from hypothesis import strategies as st

from scaling_study.submit.slurm.nodes import Blame, avoided, blame, blamed, folder_of
from tests.unit.samples import bounded

AT = "2030-01-01T00:00:00.000+00:00"


def fail(root, node, of, conclusive=False):
    blame(root, node, Blame(of=of, why="it went down", at=AT, conclusive=conclusive))


def test_failures_of_different_attempts_count_once_each(tmp_path):
    for of in ("run.1", "run.1", "run.2"):
        fail(tmp_path, "n1", of)
    fail(tmp_path, "n2", "run.1")
    assert {node: [one.of for one in found] for node, found in blamed(tmp_path).items()} == {
        "n1": ["run.1", "run.2"],
        "n2": ["run.1"],
    }
    assert avoided(tmp_path, 2) == ["n1"]
    assert avoided(tmp_path, 1) == ["n1", "n2"]
    assert avoided(tmp_path, 3) == []


def test_one_conclusive_failure_is_enough(tmp_path):
    fail(tmp_path, "n9", "qualify", conclusive=True)
    assert avoided(tmp_path, 5) == ["n9"]


def test_a_node_is_forgiven_by_deleting_its_folder(tmp_path):
    fail(tmp_path, "n1", "qualify", conclusive=True)
    shutil.rmtree(folder_of(tmp_path) / "n1")
    assert avoided(tmp_path, 1) == []


def test_what_cannot_be_read_counts_for_nothing(tmp_path):
    fail(tmp_path, "n1", "run.1")
    (folder_of(tmp_path) / "n1/run.1.json").write_text("{")
    assert blamed(tmp_path) == {}


@bounded
@given(counts=st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers(1, 4)), after=st.integers(1, 5))
def test_nodes_with_enough_failures_and_no_other(tmp_path_factory, counts, after):
    root = tmp_path_factory.mktemp("store")
    for node, count in counts.items():
        for number in range(count):
            fail(root, node, f"run.{number}")
    assert avoided(root, after) == sorted(node for node, count in counts.items() if count >= after)
