"""What a rank can say of its GPU: which one it is, memory, power, clocks. Null is what could not be read."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from scaling_study.spec.hardware import Hardware
from scaling_study.spec.words import AttentionBackend, Precision


class PowerSource(StrEnum):
    """Where a mean power comes from, the most to the least trustworthy first."""

    ENERGY_COUNTER = "energy_counter"
    INSTANT = "instant"
    ONE_SECOND_AVERAGE = "one_second_average"


class GpuIdentity(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One GPU, as its driver names it.

    Attributes:
        index: of the one who lists it: NVML counts in the order of PCI buses, CUDA by default the fastest first.
        uuid: with its prefix, `GPU-` or `MIG-`.
        pci_bus_id: domain, bus, device and function, such as `00000000:18:00.0`.
        memory_gib: all of it.
    """

    index: int
    name: str
    uuid: str | None = None
    pci_bus_id: str | None = None
    memory_gib: float | None = None


class PowerReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Power over the iterations that count; `reason` says why there is none.

    Attributes:
        window_s: how long they took.
        power_w: mean, from `source`.
        energy_j: that the GPU's counter of total energy counted.
        instant_w: mean of samples of the instant power.
        one_second_average_w: mean of samples of the average over the second before; those of the first second, which
            look back at what was before the window, are left out.
        instant_samples, one_second_average_samples: how many.
        sampling_share: share of the time in which the sensor looks at all, where that is published of the part.
        counter_over_samples: `energy_j / window_s` over `instant_w`; far from 1, one of the two is wrong.
        unreadable: what NVML does not tell of this GPU, each with its reason.
    """

    window_s: float
    power_w: float | None = None
    source: PowerSource | None = None
    reason: str | None = None
    energy_j: float | None = None
    instant_w: float | None = None
    one_second_average_w: float | None = None
    instant_samples: int = 0
    one_second_average_samples: int = 0
    sampling_share: float | None = None
    counter_over_samples: float | None = None
    unreadable: dict[str, str] = {}


class ClockReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Clocks and temperature over the iterations that count.

    Attributes:
        sm_mhz, sm_least_mhz: of the multiprocessors, mean and least.
        memory_mhz: mean.
        temperature_c: the highest.
        throttled: share of samples in which each reason for lower clocks was active, by NVML's name of it.
    """

    sm_mhz: float | None = None
    sm_least_mhz: float | None = None
    memory_mhz: float | None = None
    temperature_c: float | None = None
    throttled: dict[str, float] = {}


class GpuReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a rank says of its GPU.

    Attributes:
        peak_allocated_gib, peak_reserved_gib: of PyTorch's allocator: in tensors, and taken from the driver.
        allocation_retries: how often it gave its cache back and asked again; each costs a synchronisation.
    """

    identity: GpuIdentity
    driver: str | None
    peak_allocated_gib: float
    peak_reserved_gib: float
    allocation_retries: int
    power: PowerReport | None = None
    clocks: ClockReport | None = None


class MachineReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The GPUs of a machine that PyTorch sees, and with what it would use them.

    Attributes:
        gpus: in CUDA's order.
        no_gpu: why there is none, as a sentence.
        no_nvml: why NVML tells nothing of them.
    """

    gpus: list[GpuIdentity] = []
    no_gpu: str | None = None
    no_nvml: str | None = None
    torch: str
    cuda: str | None = None
    driver: str | None = None
    nccl: str | None = None
    xformers: str | None = None


class AttentionShape(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sequences, tokens, query heads, key-value heads, head dimension."""

    batch: int
    tokens: int
    heads: int
    kv_heads: int
    head_dim: int


class AttentionCheck(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is compared: every backend in every precision on every shape.

    Attributes:
        gpu: that it runs on; None for a CPU.
    """

    gpu: Hardware | None
    shapes: tuple[AttentionShape, ...]
    precisions: tuple[Precision, ...]


class AttentionReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far one backend is from attention in fp32.

    Attributes:
        error: the largest difference of the output and of the three gradients, each over the largest magnitude of the
            fp32 one; None where the backend did not run.
        allowed: three times the error of unfused attention in the same precision, and the rounding of it.
        operators: what really ran.
        reason: why the backend did not run.
    """

    backend: AttentionBackend
    precision: Precision
    shape: AttentionShape
    error: float | None = None
    allowed: float | None = None
    operators: list[str] = []
    reason: str | None = None

    @property
    def agrees(self) -> bool | None:
        """Whether the backend is right; None where it did not run."""
        if self.error is None or self.allowed is None:
            return None
        return self.error <= self.allowed
