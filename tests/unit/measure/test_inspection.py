"""What GPUs a machine has, or the one reason why there is none to measure on."""

import pytest
import torch

from scaling_study.measure.inspection import look
from scaling_study.measure.nvml import Nvml
from tests.replay.cuda import Cuda
from tests.replay.nvml import GPUS, replayed_nvml


def seen(*names, cuda=None, environment=None, **options):
    return look(cuda or Cuda(*names), lambda: Nvml(replayed_nvml(*names, **options)), environment or {})


def test_gpus_are_those_of_pytorch_in_its_order():
    found = seen("h100", "h200")
    assert [gpu.name for gpu in found.gpus] == ["NVIDIA H100 80GB HBM3", "NVIDIA H200"]
    assert [gpu.uuid for gpu in found.gpus] == [GPUS[name]["uuid"] for name in ("h100", "h200")]
    assert (found.driver, found.nccl, found.no_gpu, found.no_nvml) == ("550.54.15", "2.27.3", None, None)


def test_without_nvml_gpus_are_still_seen():
    found = seen("a100", init="driver_mismatch")
    assert (found.gpus[0].name, found.driver) == ("NVIDIA A100-SXM4-80GB", None)
    assert "different versions" in found.no_nvml


@pytest.mark.parametrize(
    ("value", "said"),
    [("", "it hides every GPU"), ("-1", "it hides every GPU"), ("MIG-3eb87630", "MIG-3eb87630 is a MIG slice")],
)
def test_why_cuda_shows_none_comes_first(value, said):
    found = seen(
        "a100", cuda=Cuda("a100", init="No CUDA GPUs are available"), environment={"CUDA_VISIBLE_DEVICES": value}
    )
    assert found.gpus == []
    assert found.no_gpu.startswith(f"CUDA_VISIBLE_DEVICES is {value!r}: {said}")


def test_without_a_driver_both_say_so():
    found = seen("a100", cuda=Cuda("a100", init="Found no NVIDIA driver on your system."), init="no_library")
    assert found.no_gpu.startswith(f"PyTorch {torch.__version__} finds no usable GPU: Found no NVIDIA driver on your")
    assert found.no_gpu.endswith("(no NVIDIA driver on this machine (NVML: NVML Shared Library Not Found))")


def test_a_slice_that_cuda_shows_is_refused(monkeypatch):
    monkeypatch.setitem(GPUS["a100"], "name", "NVIDIA A100-SXM4-80GB MIG 3g.40gb")
    found = seen("a100")
    assert found.gpus == []
    assert found.no_gpu.startswith("NVIDIA A100-SXM4-80GB MIG 3g.40gb is a MIG slice: power, clocks and the peak")
