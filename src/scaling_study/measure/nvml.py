"""What NVML tells of one GPU, through nvidia-ml-py (the module `pynvml`), field by field, or why it does not.

NVML counts GPUs in the order of PCI buses and knows nothing of `CUDA_VISIBLE_DEVICES`; CUDA counts the visible ones, by
default the fastest first. So a GPU is found by UUID or PCI bus id, never by an index alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from typing import Any

from scaling_study.spec import GpuIdentity

#: Names of NVML's bits for lower clocks (`nvmlClocksEventReasons`, before driver 535 `nvmlClocksThrottleReasons`).
THROTTLE_REASONS = {
    0x01: "gpu_idle",
    0x02: "applications_clocks_setting",
    0x04: "sw_power_cap",
    0x08: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}
#: Up to this compute capability (GA100, so A100) `nvmlDeviceGetPowerUsage` is instant; of later GPUs it is the average
#: over a second (NVML's reference, nvmlDeviceGetPowerUsage).
LAST_INSTANT_USAGE = (8, 0)
MIG_REFUSED = (
    "{what} is a MIG slice: power, clocks and the peak are those of the whole GPU, which others share;"
    " turn MIG off, or choose a whole GPU"
)


class NvmlUnavailableError(Exception):
    """NVML cannot be used here; the message is the reason."""


class UnreadableError(Exception):
    """NVML does not tell something of this GPU; the message is the reason."""


class NoGpuError(Exception):
    """No GPU is visible, or none that can be measured; the message is a sentence that says why."""


class Nvml:
    """NVML, initialised until it is closed.

    Args:
        module: `pynvml`; another one in its place in tests.

    Raises:
        NvmlUnavailableError: the module, the library or the driver is missing, or they do not fit each other.
    """

    def __init__(self, module: Any | None = None) -> None:
        self.module = module if module is not None else _import()
        try:
            self.module.nvmlInit()
        except Exception as error:
            raise NvmlUnavailableError(self._why(error)) from error

    def close(self) -> None:
        """Give it back."""
        self.module.nvmlShutdown()

    def driver(self) -> str | None:
        """Version of the driver."""
        try:
            return _text(self.module.nvmlSystemGetDriverVersion())
        except Exception:
            return None

    def gpus(self) -> list[NvmlGpu]:
        """Every GPU that NVML lists, in its order.

        Raises:
            NvmlUnavailableError: it cannot list them.
        """
        try:
            count = self.module.nvmlDeviceGetCount()
            return [NvmlGpu(self, index, self.module.nvmlDeviceGetHandleByIndex(index)) for index in range(count)]
        except Exception as error:
            raise NvmlUnavailableError(self._why(error)) from error

    def find(self, uuid: str | None, pci_bus_id: str | None) -> NvmlGpu:
        """The GPU of a UUID, or else of a PCI bus id.

        Raises:
            NvmlUnavailableError: NVML lists no such GPU.
            UnreadableError: MIG is on.
        """
        for gpu in self.gpus():
            same = _plain(gpu.identity.uuid) == _plain(uuid) if uuid and gpu.identity.uuid else False
            if same or (pci_bus_id and bus_id(gpu.identity.pci_bus_id) == bus_id(pci_bus_id)):
                if gpu.mig_is_on():
                    raise UnreadableError(MIG_REFUSED.format(what=f"a part of {gpu.identity.name}"))
                return gpu
        raise NvmlUnavailableError(f"NVML lists no GPU with the UUID {uuid} or the PCI bus id {pci_bus_id}")

    def _why(self, error: Exception) -> str:
        """NVML's errors as reasons; what kind they are is told by the names of their classes."""
        kind = type(error).__name__.removeprefix("NVMLError_")
        said = {
            "LibraryNotFound": "no NVIDIA driver on this machine",
            "DriverNotLoaded": "the NVIDIA driver is not loaded",
            "LibRmVersionMismatch": "the NVML library and the loaded driver are of different versions (reboot, or "
            "mount the library of the running driver)",
            "NotSupported": "not supported by this GPU or driver",
            "NoPermission": "permission denied (in a container, or without the rights that an administrator gives)",
            "FunctionNotFound": "not in this version of the driver",
            "GpuIsLost": "the GPU has fallen off the bus",
            "InsufficientPower": "a power cable is not attached",
        }.get(kind)
        return f"{said} (NVML: {error})" if said else f"NVML: {error}"


class NvmlGpu:
    """One GPU of NVML.

    Args:
        nvml: the library.
        index: in NVML's order.
        handle: NVML's.
    """

    def __init__(self, nvml: Nvml, index: int, handle: Any) -> None:
        self._nvml, self._handle, module = nvml, handle, nvml.module
        self.identity = GpuIdentity(
            index=index,
            name=_text(module.nvmlDeviceGetName(handle)),
            uuid=self._or_none(lambda: _text(module.nvmlDeviceGetUUID(handle))),
            pci_bus_id=self._or_none(lambda: _text(module.nvmlDeviceGetPciInfo(handle).busId)),
            memory_gib=self._or_none(lambda: int(module.nvmlDeviceGetMemoryInfo(handle).total) / 2**30),
        )

    def mig_is_on(self) -> bool:
        """Whether the GPU is cut into slices; of parts that cannot be, no."""
        mode = self._or_none(lambda: self._nvml.module.nvmlDeviceGetMigMode(self._handle))
        return bool(mode and mode[0])

    def energy_j(self) -> float:
        """Energy since the driver was loaded; from Volta on."""
        return float(self._read("nvmlDeviceGetTotalEnergyConsumption")) / 1e3

    def instant_w(self) -> float:
        """Power at this moment, as far as the sensor looks.

        Where the driver has no field for it, `nvmlDeviceGetPowerUsage` of parts up to the A100.
        """
        try:
            return float(self._field("NVML_FI_DEV_POWER_INSTANT")) / 1e3
        except UnreadableError:
            if self._usage_is_instant():
                return float(self._read("nvmlDeviceGetPowerUsage")) / 1e3
            raise

    def one_second_average_w(self) -> float:
        """Mean power over the second before.

        Where the driver has no field for it, `nvmlDeviceGetPowerUsage` of parts after the A100.
        """
        try:
            return float(self._field("NVML_FI_DEV_POWER_AVERAGE")) / 1e3
        except UnreadableError:
            if self._usage_is_instant() is False:
                return float(self._read("nvmlDeviceGetPowerUsage")) / 1e3
            raise

    def sm_mhz(self) -> float:
        """Clock of the multiprocessors."""
        return float(self._read("nvmlDeviceGetClockInfo", "NVML_CLOCK_SM"))

    def memory_mhz(self) -> float:
        """Clock of the memory."""
        return float(self._read("nvmlDeviceGetClockInfo", "NVML_CLOCK_MEM"))

    def temperature_c(self) -> float:
        """Temperature of the chip."""
        return float(self._read("nvmlDeviceGetTemperature", "NVML_TEMPERATURE_GPU"))

    def throttle_reasons(self) -> list[str]:
        """Why clocks are lower than they could be at this moment."""
        try:
            bits = int(self._read("nvmlDeviceGetCurrentClocksEventReasons"))
        except UnreadableError:
            bits = int(self._read("nvmlDeviceGetCurrentClocksThrottleReasons"))
        unknown = bits & ~sum(THROTTLE_REASONS)
        known = [name for bit, name in THROTTLE_REASONS.items() if bits & bit]
        return [*known, hex(unknown)] if unknown else known

    def _usage_is_instant(self) -> bool | None:
        """What `nvmlDeviceGetPowerUsage` is of this part; None where that cannot be told."""
        capability = self._or_none(lambda: self._nvml.module.nvmlDeviceGetCudaComputeCapability(self._handle))
        return tuple(capability) <= LAST_INSTANT_USAGE if capability else None

    def _read(self, function: str, *constants: str) -> Any:
        """One of NVML's functions of this GPU.

        Raises:
            UnreadableError: says why it gave nothing.
        """
        module = self._nvml.module
        missing = [name for name in (function, *constants) if not hasattr(module, name)]
        if missing:
            raise UnreadableError(f"{owner_of_pynvml()} has no {missing[0]}")
        try:
            return getattr(module, function)(self._handle, *(getattr(module, name) for name in constants))
        except Exception as error:
            raise UnreadableError(self._nvml._why(error)) from error

    def _field(self, name: str) -> int:
        """A field of `nvmlDeviceGetFieldValues`, which has a return code of its own."""
        module = self._nvml.module
        missing = [one for one in (name, "nvmlDeviceGetFieldValues") if not hasattr(module, one)]
        if missing:
            raise UnreadableError(f"{owner_of_pynvml()} has no {missing[0]}")
        try:
            value = module.nvmlDeviceGetFieldValues(self._handle, [getattr(module, name)])[0]
            if value.nvmlReturn != module.NVML_SUCCESS:
                raise module.NVMLError(value.nvmlReturn)
        except Exception as error:
            raise UnreadableError(self._nvml._why(error)) from error
        return int(value.value.uiVal)

    @staticmethod
    def _or_none(read: Callable[[], Any]) -> Any:
        try:
            return read()
        except Exception:
            return None


def visible(gpus: Sequence[GpuIdentity], environment: Mapping[str, str] = os.environ) -> list[GpuIdentity]:
    """Those of NVML's GPUs that CUDA sees, in CUDA's order, by `CUDA_VISIBLE_DEVICES` in any of its forms.

    As CUDA does: entries count up to the first that names no GPU; a UUID may be cut short while it is unique; one GPU
    named twice leaves none.

    Args:
        gpus: all of this machine, in NVML's order.
        environment: with `CUDA_VISIBLE_DEVICES` and `CUDA_DEVICE_ORDER`.

    Raises:
        NoGpuError: none is visible, a MIG slice is named, or an index does not tell which GPU it means.
    """
    if not gpus:
        raise NoGpuError("the NVIDIA driver lists no GPU")
    value = environment.get("CUDA_VISIBLE_DEVICES")
    if value is None:
        return list(gpus)
    shown, chosen = f"CUDA_VISIBLE_DEVICES is {value!r}", []
    for entry in (part.strip() for part in value.split(",")):
        if entry.upper().startswith("MIG-"):
            raise NoGpuError(f"{shown}: {MIG_REFUSED.format(what=entry)}")
        found = _named(entry, gpus, environment, shown)
        if found is None:
            break
        chosen.append(found)
    if len({gpu.index for gpu in chosen}) < len(chosen):
        raise NoGpuError(f"{shown}: it names one GPU twice, and CUDA then shows none")
    if not chosen:
        raise NoGpuError(f"{shown}: it hides every GPU of this machine; unset it, or name one of 0 to {len(gpus) - 1}")
    return chosen


def _named(entry: str, gpus: Sequence[GpuIdentity], environment: Mapping[str, str], shown: str) -> GpuIdentity | None:
    """The GPU of an index, a UUID or the beginning of one; None where the entry names none."""
    if entry.isdecimal():
        if int(entry) >= len(gpus):
            return None
        alike = len({gpu.name for gpu in gpus}) == 1
        if not alike and environment.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
            raise NoGpuError(
                f"{shown}, GPUs of this machine differ, and CUDA counts the fastest first: name them by UUID, or set"
                " CUDA_DEVICE_ORDER=PCI_BUS_ID"
            )
        return gpus[int(entry)]
    if not entry.upper().startswith("GPU-"):
        return None
    matching = [gpu for gpu in gpus if gpu.uuid and _plain(gpu.uuid).startswith(_plain(entry))]
    return matching[0] if len(matching) == 1 else None


def is_slice(name: str) -> bool:
    """Whether a device of that name is a MIG slice: CUDA calls one `NVIDIA H100 80GB HBM3 MIG 1g.10gb`."""
    return "MIG" in name.split()


def bus_id(text: str | None) -> tuple[int, ...] | None:
    """A PCI bus id as numbers, so that `0000:18:00.0` and `00000000:18:00.0` are one; None for what is none."""
    try:
        domain, bus, rest = (text or "").split(":")
        device, _, function = rest.partition(".")
        return int(domain, 16), int(bus, 16), int(device, 16), int(function or "0", 16)
    except ValueError:
        return None


def owner_of_pynvml() -> str:
    """Which package the module `pynvml` is of: two claim that name, and the one installed last overwrites the other."""
    owners = metadata.packages_distributions().get("pynvml", ["pynvml"])
    named = [f"{name} {metadata.version(name)}" for name in dict.fromkeys(owners) if name != "pynvml"] or ["pynvml"]
    return " over ".join(named)


def _import() -> Any:
    try:
        import pynvml
    except ImportError as error:
        raise NvmlUnavailableError("nvidia-ml-py is not installed") from error
    return pynvml


def _plain(uuid: str | None) -> str:
    return (uuid or "").lower().removeprefix("gpu-")


def _text(value: Any) -> str:
    """NVML's strings: bytes in old versions of its module."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
