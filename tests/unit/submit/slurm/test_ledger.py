"""The ledger: what lies there before and after sbatch has answered, whole or not at all."""

import json

import msgspec
import pytest

from scaling_study.errors import UserError
from scaling_study.submit.slurm import ledger

ENTRY = ledger.Entry(name="n", index=3, job_id=None, submitted_at="2030-01-31T12:00:00", minutes=15, nodes=2)


def test_an_entry_before_and_after_the_answer(tmp_path):
    attempt = tmp_path / "attempts" / "001"
    assert ledger.read(attempt) is None
    ledger.write(attempt, ENTRY)
    assert ledger.read(attempt) == ENTRY
    answered = msgspec.structs.replace(ENTRY, job_id="12_3", script="submission.sh")
    ledger.write(attempt, answered)
    assert ledger.read(attempt) == answered
    assert [path.name for path in attempt.iterdir()] == ["job.json"]


def test_the_file_as_the_next_version_will_find_it(tmp_path):
    ledger.write(tmp_path, ENTRY)
    assert json.loads(ledger.path_of(tmp_path).read_text()) == {
        "name": "n", "index": 3, "job_id": None, "submitted_at": "2030-01-31T12:00:00", "minutes": 15, "nodes": 2,
        "script": None,
    }  # fmt: skip


@pytest.mark.parametrize("change", [{"index": "3"}, {"job_id": 12}, {"more": 1}, {"minutes": None}])
def test_an_entry_of_another_kind_is_none(change, tmp_path):
    ledger.path_of(tmp_path).write_text(json.dumps({**msgspec.to_builtins(ENTRY), **change}))
    assert ledger.read(tmp_path) is None


def test_a_folder_in_its_place_is_none(tmp_path):
    ledger.path_of(tmp_path).mkdir()
    assert ledger.read(tmp_path) is None


def test_a_ledger_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "attempts").write_bytes(b"")
    with pytest.raises(UserError, match=r"job\.json: "):
        ledger.write(tmp_path / "attempts", ENTRY)
