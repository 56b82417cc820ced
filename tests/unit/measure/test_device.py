"""A rank's GPU: which one it is, what is refused, and what it reports; torch.cuda and NVML are replayed."""

import time

import pytest
import torch

from scaling_study.measure.device import CpuDevice, CudaDevice, WrongPartError, open_device, require_part, why_no_cuda
from scaling_study.measure.nvml import NoGpuError, Nvml
from scaling_study.spec import PowerSource
from tests.replay.cuda import Cuda
from tests.replay.nvml import GPUS, replayed_nvml
from tests.unit.samples import CONFIG

HARDWARE = CONFIG.catalogue.hardware


def device(*names, hardware=None, local_rank=0, cuda=None, nvml=None, **options):
    answers = replayed_nvml(*(nvml or reversed(names)), **options)  # NVML counts otherwise than CUDA
    return CudaDevice(HARDWARE[hardware or names[0]], local_rank, cuda or Cuda(*names), lambda: Nvml(answers))


@pytest.mark.parametrize("name", ["v100", "a100", "h100", "h200"])
def test_a_gpu_of_the_run_is_taken(name):
    one = device(name)
    assert one.name == one.identity.name == GPUS[name]["name"]
    assert (one.identity.uuid, one.identity.pci_bus_id) == (GPUS[name]["uuid"], GPUS[name]["bus_id"])
    assert one.versions()["driver"] == GPUS[name]["driver"]
    assert one.versions()["nccl"] == "2.27.3"
    assert (one.backend, one.torch_device) == ("nccl", torch.device("cuda", 0))
    assert one.group_options() == {"device_id": torch.device("cuda", 0)}


def test_each_rank_of_a_host_has_its_own():
    cuda = Cuda("h100", "h200")
    second = device("h100", "h200", hardware="h200", local_rank=1, cuda=cuda)
    assert (second.name, cuda.chosen) == ("NVIDIA H200", 1)
    assert second.report().identity.uuid == GPUS["h200"]["uuid"]


def test_a_rank_without_a_gpu_of_its_own_is_refused_unless_slurm_shows_one_to_each(monkeypatch):
    monkeypatch.delenv("SLURM_PROCID", raising=False)
    with pytest.raises(NoGpuError, match="rank 1 of this host needs a GPU of its own, 1 can be seen here"):
        device("h100", local_rank=1)
    monkeypatch.setenv("SLURM_PROCID", "1")
    assert device("h100", local_rank=1).torch_device.index == 0


def test_another_part_is_refused():
    with pytest.raises(WrongPartError, match=r"the GPU here is 'NVIDIA H200', the run is of h100 \(NVIDIA H100 80GB"):
        device("h200", hardware="h100")
    with pytest.raises(WrongPartError, match="'NVIDIA H100 PCIe', the run is of h100"):
        device("h100-pcie", hardware="h100")
    with pytest.raises(WrongPartError, match="no part that exists"):
        require_part("NVIDIA H100 80GB HBM3", HARDWARE["h100-ib100"])


def test_a_slice_is_refused():
    with pytest.raises(NoGpuError, match=r"NVIDIA H100 80GB HBM3 MIG 1g\.10gb is a MIG slice"):
        require_part("NVIDIA H100 80GB HBM3 MIG 1g.10gb", HARDWARE["h100"])


def test_without_a_usable_gpu_the_reason_is_one_sentence():
    said = why_no_cuda(Cuda("h100", init="Found no NVIDIA driver on your system.\nPlease check."))
    assert said == f"PyTorch {torch.__version__} finds no usable GPU: Found no NVIDIA driver on your system"
    assert why_no_cuda(Cuda()) == f"PyTorch {torch.__version__} sees no GPU"
    assert why_no_cuda(Cuda("h100")) is None


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_a_run_of_one_is_refused():
    with pytest.raises(NoGpuError, match="finds no usable GPU"):
        open_device(HARDWARE["h100"], 0)


def test_events_tell_the_time():
    one, began_ns = device("h100"), time.perf_counter_ns()
    start = one.now()
    time.sleep(0.02)
    end = one.now()
    assert 20e6 <= one.between_ns(start, end) <= time.perf_counter_ns() - began_ns


def test_power_needs_what_was_launched_before_to_be_over():
    cuda = Cuda("h100")
    one = device("h100", cuda=cuda)
    one.begin_power()
    assert cuda.synchronised == 1
    time.sleep(1.1)
    one.end_power()
    assert cuda.synchronised == 2
    power = one.report().power
    assert (power.source, power.power_w) == (PowerSource.ENERGY_COUNTER, pytest.approx(649.0, rel=0.02))
    assert power.sampling_share == 0.25
    assert one.unavailable() == {}


def test_retries_of_the_allocator_count_from_the_watch_on():
    cuda = Cuda("a100")
    cuda.retries = 5
    one = device("a100", cuda=cuda)
    one.watch_memory()
    cuda.retries = 7
    report = one.report()
    assert report.allocation_retries == 2
    assert report.peak_reserved_gib > report.peak_allocated_gib > 0


@pytest.mark.parametrize(
    ("nvml", "options", "reason"),
    [
        (("a100",), {"init": "driver_mismatch"}, "of different versions"),
        (("a100-mig",), {}, "is a MIG slice"),
        (("v100",), {}, "lists no GPU with the UUID"),
    ],
)
def test_where_nvml_does_not_know_the_gpu_the_run_goes_on_without_power(nvml, options, reason):
    one = device("a100", nvml=nvml, **options)
    one.begin_power()
    one.end_power()
    unavailable = one.unavailable()
    assert set(unavailable) == {"power_w_per_gpu", "tokens_per_joule"}
    assert reason in unavailable["power_w_per_gpu"]
    assert one.report().clocks is None


def test_denied_power_is_unavailable_with_its_reason():
    one = device("h100-denied", hardware="h100")
    one.begin_power()
    time.sleep(1.1)
    one.end_power()
    assert "permission denied" in one.unavailable()["tokens_per_joule"]


def test_a_cpu_has_no_gpu_to_report():
    cpu = open_device(None, 3)
    assert isinstance(cpu, CpuDevice)
    cpu.watch_memory()
    cpu.begin_power()
    block = bytearray(32 * 2**20)
    cpu.end_power()
    assert cpu.peak_memory_gib() >= len(block) / 2**30 * 0.9
    assert (cpu.report(), cpu.versions(), cpu.in_flight) == (None, {}, 0)
    assert set(cpu.unavailable()) == {"power_w_per_gpu", "tokens_per_joule"}
    start = cpu.now()
    assert 0 <= cpu.between_ns(start, cpu.now()) < 10**9
    assert cpu.loss(torch.tensor(2.5)) == 2.5


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_real_gpu_is_timed_and_reported():
    from scaling_study.measure.device import identity_of
    from scaling_study.spec import hardware_of_device

    one = open_device(hardware_of_device(identity_of(0).name, HARDWARE), 0)
    one.watch_memory()
    a = torch.ones(4096, 4096, device=one.torch_device)
    one.begin_power()
    start = one.now()
    for _ in range(500):
        a = a @ a / 4096
    end = one.now()
    one.end_power()
    assert one.between_ns(start, end) > 10**6
    report = one.report()
    assert report.peak_allocated_gib > 0.1
    assert report.power is not None
