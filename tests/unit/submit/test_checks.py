"""What is found out before anything starts: other hardware, no room, no right to write; and what a result means."""

import shutil
from collections import namedtuple

import msgspec
import pytest

from scaling_study.errors import UserError
from scaling_study.spec import (
    Catalogue,
    CollectiveOp,
    CollectiveRun,
    Dataset,
    DataSource,
    Executor,
    Platform,
    TokenManifest,
    run_id,
)
from scaling_study.submit.checks import NEEDED_FREE_BYTES, changed_since, check_hardware, check_writable
from tests.unit.samples import PART, TINY, environment, run_result, training_run

PLATFORM = Platform(name="it", title="t", executor=Executor.LOCAL, hardware="part")
CATALOGUE = Catalogue(models={"tiny": TINY}, hardware={"part": PART})
RUN = training_run()


def test_the_first_run_of_other_hardware_is_named():
    others = [training_run(hardware="gpu", repeat=repeat) for repeat in range(2)]
    check_hardware([RUN], PLATFORM, PART)
    said = rf"platform it, which measures part only: {run_id(others[0])} needs gpu\. Choose"
    with pytest.raises(UserError, match=said):
        check_hardware([RUN, *others], PLATFORM, PART)


def test_a_folder_that_can_be_written_is_made_and_left_empty(tmp_path):
    check_writable(tmp_path / "a" / "b")
    assert list((tmp_path / "a" / "b").iterdir()) == []


def test_a_file_in_the_place_of_a_folder_is_said(tmp_path):
    (tmp_path / "a").write_bytes(b"")
    with pytest.raises(UserError, match=str(tmp_path / "a")):
        check_writable(tmp_path / "a" / "b")


@pytest.mark.parametrize("missing", [0, 1])
def test_less_room_than_needed_is_refused(missing, tmp_path, monkeypatch):
    usage = namedtuple("usage", "free")(NEEDED_FREE_BYTES - missing)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    if not missing:
        check_writable(tmp_path)
        return
    with pytest.raises(UserError, match=r"64\.0 MiB are free, 64 MiB are needed"):
        check_writable(tmp_path)


def manifest(sha256):
    dataset = Dataset(name=RUN.protocol.data, title="t", source=DataSource.SYNTHETIC)
    return {RUN.protocol.data: TokenManifest(dataset=dataset, tokens=1, sha256=sha256)}


@pytest.mark.parametrize(
    ("result", "manifests", "said"),
    [
        (run_result(RUN, model=TINY), {}, None),
        (run_result(RUN, model=TINY), manifest("0" * 64), None),
        (run_result(RUN, model=TINY), manifest("1" * 64), "of data synthetic with other tokens"),
        (run_result(RUN, model=None), {}, None),
        (run_result(RUN, model=msgspec.structs.replace(TINY, source="elsewhere")), {}, None),
        (run_result(RUN, model=msgspec.structs.replace(TINY, hidden=16)), {}, "of a model tiny with other dimensions"),
        (run_result(RUN, model=TINY, outcome="out_of_memory", reason="so"), manifest("1" * 64), None),
    ],
)
def test_a_result_is_of_what_its_names_mean_now(result, manifests, said):
    assert changed_since(result, CATALOGUE, manifests) == said


def test_a_collective_names_neither_a_model_nor_data():
    run = CollectiveRun(op=CollectiveOp.ALL_REDUCE, hardware="part", nodes=2, message_bytes=1024)
    result = run_result(run, environment=environment(data_sha256="1" * 64))
    assert changed_since(result, CATALOGUE, manifest("0" * 64)) is None
