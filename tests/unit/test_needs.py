"""What is missing of a Python that nobody set up is named, with the command that installs it."""

import subprocess
import sys
from pathlib import Path

import pytest

from scaling_study import needs
from scaling_study.needs import NEEDED, USED, outside, requirements, verdict
from tests.unit.samples import ROOT

BOUNDS = requirements(ROOT / "pyproject.toml")
ALL = {"torch": "2.11.0+cu130", "click": "8.1.7", "msgspec": "0.22.0", "numpy": "2.5.2", "polars": "2.1.0",
       "psutil": "7.0.0", "pyyaml": "6.0.2", "rich": "14.0.0"}  # fmt: skip


def judged(python=(3, 12), missing=(), **versions):
    modules = {NEEDED[name] if name in NEEDED else USED[name][0] for name in missing}
    return verdict(BOUNDS, python, lambda module: module not in modules, {**ALL, **versions}.get)


def test_bounds_are_those_of_the_project():
    assert BOUNDS["polars"] == "polars>=2.0,<3"
    assert BOUNDS["torch"] == "torch>=2.10,<2.14"
    assert set(NEEDED) | set(USED) <= set(BOUNDS)


def test_nothing_is_missing_where_all_is_there():
    assert judged() == ([], [])


def test_what_is_missing_is_named_with_the_command():
    (said,), notes = judged(missing=("polars", "msgspec"))
    assert said == (
        f"msgspec, polars missing in {sys.executable}; install with: {sys.executable} -m pip install"
        " 'msgspec>=0.20,<0.23' 'polars>=2.0,<3'"
    )
    assert notes == []


def test_what_is_used_where_it_is_there_is_only_noted():
    wrong, notes = judged(missing=("xformers", "nvidia-ml-py"))
    assert wrong == []
    assert notes == [
        "nvidia-ml-py is not there: no power, clocks or temperature",
        "xformers is not there: its attention is left out",
    ]


@pytest.mark.parametrize(("torch", "old"), [("2.9.1", True), ("2.10.0", False), ("2.11.0+cu130", False)])
def test_a_torch_that_is_too_old_stands_in_the_way(torch, old):
    wrong, _ = judged(torch=torch)
    assert wrong == ([f"torch {torch} is too old; torch>=2.10,<2.14 is needed"] if old else [])


def test_a_python_that_is_too_old_stands_in_the_way():
    assert judged(python=(3, 10))[0] == ["Python 3.11 or later is needed; name one with PYTHON=python3.11"]


def test_another_version_is_noted_and_tried():
    wrong, notes = judged(rich="13.9.4", torch="2.14.0")
    assert wrong == []
    assert notes == ["rich is 13.9.4, tested is rich>=14,<16", "torch is 2.14.0, tested is torch>=2.10,<2.14"]


@pytest.mark.parametrize(
    ("version", "requirement", "breaks"),
    [("2.0", "x>=2.0,<3", False), ("2", "x>=2.0,<3", False), ("1.9.9", "x>=2.0,<3", True), ("3.0", "x>=2.0,<3", True),
     ("3.0.1", "x>=2,<3", True), ("2.99", "x>=2,<3", False), ("1.9.0.post1", "x>=1.9.0.post1,<2", False),
     ("0.23.0", "x>=0.20,<0.23", True)],
)  # fmt: skip
def test_bounds(version, requirement, breaks):
    assert outside(version, requirement) is breaks


def test_it_needs_the_standard_library_alone_and_ends_with_2():
    source = Path(needs.__file__)
    path = f"import sys; sys.path.insert(0, {str(source.parents[1])!r})"
    code = f"{path}; from scaling_study.needs import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "click, msgspec, numpy, polars, psutil, pyyaml, rich, torch missing in" in done.stderr
    assert "Traceback" not in done.stderr
