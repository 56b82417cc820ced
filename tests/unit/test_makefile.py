"""Make targets that set nothing up: the list of targets, and a check of GPUs with the packages that are there."""

import os
import subprocess
import sys

import pytest

from tests.unit.samples import ROOT


def make(*arguments, **environment):
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MAKEFLAGS")}
    command = ["make", "--no-print-directory", "-C", str(ROOT), *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, env={**kept, **environment}, timeout=300, check=False
    )


def test_make_alone_lists_every_target():
    done = make()
    assert done.returncode == 0, done.stderr
    for target in ("study", "test", "figure", "paper", "lint", "bench", "slurm-check", "gpu-check", "clean"):
        assert f"make {target} " in done.stdout


def test_a_check_of_gpus_without_set_up_names_the_packages_that_are_missing(tmp_path):
    done = make("gpu-check", "VENV=0", f"PYTHON={sys.executable} -S", f"OUT={tmp_path / 'out'}")
    assert done.returncode == 2
    assert "msgspec, numpy, polars" in done.stderr
    assert "install with: " in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


def test_packages_may_be_in_a_folder_of_the_python_path(tmp_path):
    (tmp_path / "polars").mkdir()
    (tmp_path / "polars" / "__init__.py").touch()
    done = make("gpu-check", "VENV=0", f"PYTHON={sys.executable} -S", PYTHONPATH=str(tmp_path))
    assert "msgspec, numpy, psutil" in done.stderr


def test_a_check_of_gpus_without_a_gpu_is_one_sentence(tmp_path):
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    done = make("gpu-check", "VENV=0", f"PYTHON={sys.executable}", f"OUT={tmp_path / 'out'}")
    assert done.returncode == 2
    (said,) = [line for line in done.stderr.splitlines() if line.startswith("scaling-study: ")]
    assert said.startswith(f"scaling-study: GPU: PyTorch {torch.__version__} finds no usable GPU: ")
    assert "Traceback" not in done.stderr
