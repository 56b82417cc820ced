"""What a rank computes on, a CPU or a GPU: its clock, its memory, its backend of collectives, what it can say of it.

Both are used in the same way, and only here is one told from the other.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from importlib import metadata
from typing import Any, Protocol

import torch
from torch.profiler import ProfilerActivity

from scaling_study.measure.machine import PeakMemory, cpu_name
from scaling_study.measure.nvml import (
    MIG_REFUSED,
    NoGpuError,
    Nvml,
    NvmlUnavailableError,
    UnreadableError,
    is_slice,
)
from scaling_study.measure.power import PowerMeter, power_unavailable
from scaling_study.spec import GpuIdentity, GpuReport, Hardware, PowerReport

#: How many collectives the flight recorder keeps where nothing else is said; torch's own default from 2.9 on.
_RECORDED_COLLECTIVES = "2000"


class WrongPartError(Exception):
    """The GPU that is here is not the one that the run is of."""


class Device(Protocol):
    """What a rank computes on."""

    #: Where tensors live, and who moves them between ranks.
    torch_device: torch.device
    backend: str
    #: As its driver names it.
    name: str
    #: How many iterations are in flight before the first one's time is asked for: a GPU that is waited for after every
    #: one idles while the next is launched.
    in_flight: int
    #: What the profiler records.
    activities: tuple[ProfilerActivity, ...]

    def group_options(self) -> Mapping[str, Any]:
        """What `init_process_group` is told beside the backend."""

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor of the host on the device."""

    def now(self) -> Any:
        """A mark in the stream of work."""

    def between_ns(self, start: Any, end: Any) -> int:
        """Nanoseconds between two marks; waits until the second is reached."""

    def loss(self, mean: torch.Tensor | None) -> torch.Tensor | float | None:
        """An iteration's loss, to be read once a mark that follows is reached."""

    def synchronise(self) -> None:
        """Wait until everything that was launched is done."""

    def watch_memory(self) -> None:
        """Forget the peak so far."""

    def sample_memory(self) -> None:
        """Called often."""

    def peak_memory_gib(self) -> float:
        """The peak since `watch_memory`: on a GPU, in tensors."""

    def begin_power(self) -> None:
        """The iterations that count begin."""

    def end_power(self) -> None:
        """They are over."""

    def report(self) -> GpuReport | None:
        """What there is to say of a GPU."""

    def versions(self) -> dict[str, str | None]:
        """Of what belongs to the device: fields of `Environment`."""

    def unavailable(self) -> dict[str, str]:
        """Metrics that cannot be had here, each with its reason."""


class CpuDevice:
    """Cores of this machine; ranks meet over gloo."""

    torch_device = torch.device("cpu")
    backend = "gloo"
    in_flight = 0
    activities: tuple[ProfilerActivity, ...] = (ProfilerActivity.CPU,)

    def __init__(self) -> None:
        self.name = cpu_name()
        self._memory: PeakMemory | None = None

    def group_options(self) -> Mapping[str, Any]:
        """None."""
        return {}

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        """It is there already."""
        return tensor

    def now(self) -> int:
        """The process's clock, in nanoseconds."""
        return time.perf_counter_ns()

    def between_ns(self, start: int, end: int) -> int:
        """Their difference."""
        return end - start

    def loss(self, mean: torch.Tensor | None) -> float | None:
        """A number."""
        return None if mean is None else float(mean.item())

    def synchronise(self) -> None:
        """Operators have ended when they return."""

    def watch_memory(self) -> None:
        """Count from the memory that is in use now."""
        self._memory = PeakMemory()

    def sample_memory(self) -> None:
        """Take what was reached since the last sample."""
        if self._memory is not None:
            self._memory.sample()

    def peak_memory_gib(self) -> float:
        """Anonymous memory above the level at `watch_memory`."""
        return self._memory.gib() if self._memory is not None else 0.0

    def begin_power(self) -> None:
        """Nothing counts the energy of one process."""

    def end_power(self) -> None:
        """Likewise."""

    def report(self) -> GpuReport | None:
        """There is no GPU."""
        return None

    def versions(self) -> dict[str, str | None]:
        """None."""
        return {}

    def unavailable(self) -> dict[str, str]:
        """Power, and what follows from it."""
        return dict.fromkeys(("power_w_per_gpu", "tokens_per_joule"), power_unavailable())


class CudaDevice:
    """One GPU; ranks meet over NCCL, which refuses two ranks on one GPU.

    Args:
        gpu: the hardware that the run is of.
        local_rank: the rank's number on its host.
        cuda: `torch.cuda`; another one in its place in tests.
        nvml: opens NVML; likewise.

    Raises:
        NoGpuError: PyTorch sees none, or too few.
        WrongPartError: it is another part.
    """

    backend = "nccl"
    in_flight = 1
    activities: tuple[ProfilerActivity, ...] = (ProfilerActivity.CPU, ProfilerActivity.CUDA)

    def __init__(self, gpu: Hardware, local_rank: int, cuda: Any = torch.cuda, nvml: Callable[[], Nvml] = Nvml) -> None:
        os.environ.setdefault("TORCH_FR_BUFFER_SIZE", _RECORDED_COLLECTIVES)
        self._cuda, index = cuda, _index(local_rank, cuda)
        self.torch_device = torch.device("cuda", index)
        cuda.set_device(index)
        self.identity = identity_of(index, cuda)
        self.name = self.identity.name
        require_part(self.name, gpu)
        share = gpu.power_sampling_share.value if gpu.power_sampling_share else None
        self._driver, self._meter, self._no_meter = open_meter(self.identity, share, nvml)
        self._watched, self._retries_before = False, self._retries()

    def group_options(self) -> Mapping[str, Any]:
        """Communicators are made at once, on this GPU, so that what is wrong with them shows in seconds."""
        return {"device_id": self.torch_device}

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        """From pinned memory: a copy from any other waits for the iteration before."""
        return tensor.pin_memory().to(self.torch_device, non_blocking=True)

    def now(self) -> Any:
        """An event, recorded on the current stream."""
        event = self._cuda.Event(enable_timing=True)
        event.record()
        return event

    def between_ns(self, start: Any, end: Any) -> int:
        """CUDA's events resolve about half a microsecond."""
        end.synchronize()
        return round(float(start.elapsed_time(end)) * 1e6)

    def loss(self, mean: torch.Tensor | None) -> torch.Tensor | None:
        """On its way to pinned memory of the host: it is there when an event recorded after this is reached.

        To read it from the GPU later would wait for whatever was launched meanwhile, the next iteration.
        """
        return None if mean is None else mean.detach().to("cpu", non_blocking=True)

    def synchronise(self) -> None:
        """Wait for every stream of the GPU."""
        self._cuda.synchronize(self.torch_device)

    def watch_memory(self) -> None:
        """Reset the allocator's peaks."""
        self._cuda.reset_peak_memory_stats(self.torch_device)
        self._retries_before = self._retries()

    def sample_memory(self) -> None:
        """The allocator keeps its peaks itself."""

    def peak_memory_gib(self) -> float:
        """In tensors."""
        return float(self._cuda.max_memory_allocated(self.torch_device)) / 2**30

    def begin_power(self) -> None:
        """Wait for what was launched before, then begin."""
        if self._meter is not None:
            self.synchronise()
            self._meter.begin()
            self._watched = True

    def end_power(self) -> None:
        """Wait for what was launched, then end."""
        if self._meter is not None and self._watched:
            self.synchronise()
            self._meter.end()

    def report(self) -> GpuReport:
        """Identity, memory, power, clocks."""
        watched = self._meter if self._watched else None
        return GpuReport(
            identity=self.identity,
            driver=self._driver,
            peak_allocated_gib=self.peak_memory_gib(),
            peak_reserved_gib=float(self._cuda.max_memory_reserved(self.torch_device)) / 2**30,
            allocation_retries=self._retries() - self._retries_before,
            power=watched.power() if watched else PowerReport(window_s=0.0, reason=self._no_meter or "not watched"),
            clocks=watched.clocks() if watched else None,
        )

    def versions(self) -> dict[str, str | None]:
        """CUDA that torch is built for, the driver, NCCL, xformers."""
        return {
            "cuda": torch.version.cuda,
            "driver": self._driver,
            "nccl": nccl_version(self._cuda),
            "xformers": xformers_version(),
        }

    def unavailable(self) -> dict[str, str]:
        """Power where the GPU does not tell it, and what follows from it."""
        power = self.report().power
        if power is None or power.power_w is not None:
            return {}
        return dict.fromkeys(("power_w_per_gpu", "tokens_per_joule"), power.reason or "not read")

    def _retries(self) -> int:
        """How often the allocator gave its cache back and asked again."""
        return int(self._cuda.memory_stats(self.torch_device).get("num_alloc_retries", 0))


def open_device(gpu: Hardware | None, local_rank: int) -> Device:
    """What a rank computes on.

    Args:
        gpu: what it has one of; None for a rank on a CPU.
        local_rank: the rank's number on its host.

    Raises:
        NoGpuError: there is none.
        WrongPartError: it is another part.
    """
    return CpuDevice() if gpu is None else CudaDevice(gpu, local_rank)


def require_part(name: str, gpu: Hardware) -> None:
    """Refuse a GPU of another name than those of the hardware.

    Raises:
        NoGpuError: it is a slice of one.
        WrongPartError: it is another part.
    """
    if is_slice(name):
        raise NoGpuError(MIG_REFUSED.format(what=name))
    if name not in gpu.device_names:
        known = ", ".join(gpu.device_names) or "no part that exists"
        raise WrongPartError(f"the GPU here is {name!r}, the run is of {gpu.name} ({known})")


def _index(local_rank: int, cuda: Any) -> int:
    """Which of the visible GPUs is this rank's: each its own, or the only one where Slurm shows a task no other."""
    why = why_no_cuda(cuda)
    if why is not None:
        raise NoGpuError(why)
    count = cuda.device_count()
    if local_rank < count:
        return local_rank
    if count == 1 and "SLURM_PROCID" in os.environ:
        return 0
    raise NoGpuError(f"rank {local_rank} of this host needs a GPU of its own, {count} can be seen here")


def why_no_cuda(cuda: Any = torch.cuda) -> str | None:
    """Why PyTorch has no GPU here, as a sentence; None where it has one."""
    try:
        cuda.init()
    except (RuntimeError, AssertionError) as error:
        said = str(error).strip().splitlines() or [type(error).__name__]
        return f"PyTorch {torch.__version__} finds no usable GPU: {said[0].rstrip('.')}"
    return None if cuda.device_count() else f"PyTorch {torch.__version__} sees no GPU"


def identity_of(index: int, cuda: Any = torch.cuda) -> GpuIdentity:
    """A visible GPU, as PyTorch names it."""
    known = cuda.get_device_properties(index)
    uuid = getattr(known, "uuid", None)
    places = [int(getattr(known, name, -1)) for name in ("pci_domain_id", "pci_bus_id", "pci_device_id")]
    return GpuIdentity(
        index=index,
        name=known.name,
        uuid=f"GPU-{uuid}" if uuid is not None else None,
        pci_bus_id=None if -1 in places else "{:08x}:{:02x}:{:02x}.0".format(*places),
        memory_gib=known.total_memory / 2**30,
    )


def open_meter(
    identity: GpuIdentity, share: float | None, nvml: Callable[[], Nvml] = Nvml
) -> tuple[str | None, PowerMeter | None, str | None]:
    """The driver's version, the meter of a GPU, and why there is none."""
    try:
        opened = nvml()
    except NvmlUnavailableError as error:
        return None, None, str(error)
    try:
        return opened.driver(), PowerMeter(opened.find(identity.uuid, identity.pci_bus_id), share), None
    except (NvmlUnavailableError, UnreadableError) as error:
        return opened.driver(), None, str(error)


def nccl_version(cuda: Any = torch.cuda) -> str | None:
    """Of the NCCL that torch loads."""
    try:
        found: Iterable[int] | int = cuda.nccl.version()
    except Exception:
        return None
    return ".".join(map(str, found)) if isinstance(found, tuple) else str(found)


def xformers_version() -> str | None:
    """Of xformers, None where it is not installed."""
    try:
        return metadata.version("xformers")
    except metadata.PackageNotFoundError:
        return None
