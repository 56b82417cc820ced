"""Everything drawn from the committed records, several at once: byte for byte what is committed."""

import os
import signal
import subprocess
import sys
import time

import msgspec
import pytest

from scaling_study.errors import UserError
from scaling_study.redrawing import redraw
from scaling_study.workflow import Plan
from tests.unit.samples import CONFIG, ROOT, is_committed


@pytest.fixture(scope="module")
def drawings():
    """Of both studies; their files are named from the root of the checkout."""
    plan = Plan({"source": "cached", "studies": "mini,paper", "config_folder": str(CONFIG.root)}, ROOT)

    def below_root(paths):
        return tuple(str(ROOT / path) for path in paths)

    return [
        msgspec.structs.replace(one, files=below_root(one.files), timelines=below_root(one.timelines))
        for one in plan.drawings()
    ]


def test_every_committed_figure_and_table_is_drawn_again_byte_for_byte(drawings, tmp_path):
    seen = []

    def track(items, total):
        for item in items:
            seen.append(total)
            yield item

    assert redraw(CONFIG.root, drawings, tmp_path, 2, track) == {}
    assert seen == [len(drawings)] * len(drawings)
    there = {
        path.relative_to(ROOT / "figures") for study in ("mini", "paper") for path in ROOT.glob(f"figures/{study}/*.*")
    }
    drawn = {path.relative_to(tmp_path): path.read_bytes() for path in tmp_path.glob("*/*.*")}
    assert set(drawn) == there
    assert [str(name) for name, content in drawn.items() if not is_committed(f"figures/{name}", content)] == []


def killed(*_):
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_process_that_is_killed_is_one_error(drawings, tmp_path, monkeypatch):
    monkeypatch.setattr("scaling_study.redrawing._draw", killed)
    with pytest.raises(UserError, match="a process that draws was killed"):
        redraw(CONFIG.root, drawings, tmp_path, 2)


def test_an_interrupt_is_left_to_the_process_that_started_it(tmp_path):
    command = [sys.executable, "-m", "scaling_study.cli", "redraw", "mini", "--output", str(tmp_path)]
    options = {"cwd": ROOT, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
    for after_s in (0.5, 1.5):
        with subprocess.Popen(command, **options) as process:
            time.sleep(after_s)
            os.killpg(process.pid, signal.SIGINT)
            _, said = process.communicate(timeout=30)
        assert process.returncode == 130, said
        assert len(said.strip().splitlines()) == 1, said


def test_one_that_cannot_be_drawn_is_named_and_stops_no_other(drawings, tmp_path):
    damaged = tmp_path / "data_parallel.parquet"
    damaged.write_bytes(b"PAR1 and no more")
    table, figure = (next(one for one in drawings if one.is_table is kind) for kind in (True, False))
    without = msgspec.structs.replace(figure, name="hst-04", files=(str(damaged),), timelines=())
    (name, message), = redraw(CONFIG.root, [without, table], tmp_path / "figures", 1).items()  # fmt: skip
    assert name == f"{figure.study}/hst-04"
    assert str(damaged) in message
    assert "not a parquet file, or damaged" in message
    assert [path.name for path in (tmp_path / "figures").rglob("*.*")] == [f"{table.name}.csv"]
