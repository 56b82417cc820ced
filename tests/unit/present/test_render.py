"""The same chart is the same bytes, wherever and with whatever enabled in Altair; files appear whole."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import altair as alt
import pytest

from scaling_study.errors import UserError
from scaling_study.present.figures import hst_01
from scaling_study.present.render import render, specification
from tests.unit.present import synthetic as made

ROOT = Path(__file__).parents[3]
CODE = """
import sys; sys.path.insert(0, {root!r})
from pathlib import Path
from scaling_study.present.figures import hst_01
from scaling_study.present.render import render
from tests.unit.present import synthetic as made
render(hst_01.draw(made.paper_data_parallel().reverse(), made.PAPER), Path("."), "figure")
"""


def draw() -> alt.TopLevelMixin:
    return hst_01.draw(made.paper_data_parallel(), made.PAPER)


def test_bytes_are_the_same_in_another_folder_process_and_locale(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    there.mkdir()
    files = render(draw(), here, "figure")
    environment = {
        **os.environ,
        "LC_ALL": "de_DE.UTF-8",
        "LANG": "de_DE.UTF-8",
        "TZ": "Asia/Tokyo",
        "PYTHONHASHSEED": "7",
    }
    subprocess.run([sys.executable, "-c", CODE.format(root=str(ROOT))], cwd=there, env=environment, check=True)
    assert [path.name for path in files] == ["figure.svg", "figure.png", "figure.vl.json"]
    for path in files:
        assert path.read_bytes() == (there / path.name).read_bytes(), path.name
    assert sorted(path.name for path in here.iterdir()) == sorted(path.name for path in files)


def test_what_is_enabled_in_altair_is_neither_used_nor_changed() -> None:
    before = specification(draw())
    with alt.theme.enable("dark"), alt.data_transformers.enable("default", max_rows=1):
        assert specification(draw()) == before
        assert alt.theme.active == "dark"
        assert alt.data_transformers.options == {"max_rows": 1}


def test_the_png_is_made_for_print(tmp_path: Path) -> None:
    _, png, _ = render(draw(), tmp_path, "figure")
    content = png.read_bytes()
    width = int.from_bytes(content[16:20], "big")
    assert 0.9 * 241 <= width / 200 * 72 <= 1.05 * 241


def test_the_json_says_what_it_shows(tmp_path: Path) -> None:
    frame = made.paper_data_parallel()
    *_, path = render(draw(), tmp_path, "figure")
    said = json.loads(path.read_text(encoding="utf-8"))["usermeta"]
    assert {run["run_id"] for run in said["runs"]} == set(frame["run_id"])
    assert {run["provenance"] for run in said["runs"]} == {"measured", "predicted"}
    assert (said["study"], said["figure"], said["claims"]) == ("paper", "hst-00", sorted(hst_01.CLAIMS))


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError):
        render(draw(), tmp_path / "file" / "folder", "figure")
