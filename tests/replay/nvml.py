"""A module in the place of `pynvml`: its constants and errors are the real ones, its answers are from the table."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace

import pynvml

GPUS = json.loads((Path(__file__).parent / "gpus.json").read_text())
ERRORS = {
    "not_supported": pynvml.NVML_ERROR_NOT_SUPPORTED,
    "no_permission": pynvml.NVML_ERROR_NO_PERMISSION,
    "function_not_found": pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    "driver_mismatch": pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    "no_library": pynvml.NVML_ERROR_LIBRARY_NOT_FOUND,
    "driver_not_loaded": pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
    "lost": pynvml.NVML_ERROR_GPU_IS_LOST,
}


def answer(value):
    """A value of the table, or the error that it names."""
    if isinstance(value, str) and value in ERRORS:
        raise pynvml.NVMLError(ERRORS[value])
    return value


def replayed_nvml(*names, init=None, clock=time.monotonic, absent=()):
    """A replay of GPUs by their keys in the table.

    Args:
        init: the error that `nvmlInit` ends with.
        clock: seconds; the energy counters go up with it.
        absent: names that this version of the module does not have.
    """
    table, began_s = [GPUS[name] for name in names], clock()

    def init_nvml():
        answer(init)

    def read(handle, key):
        return answer(table[handle][key])

    def energy_mj(handle):
        base = read(handle, "energy_base_mj")
        return int(base + table[handle]["energy_w"] * (clock() - began_s) * 1000)

    def fields(handle, ids):
        values = []
        for one in ids:
            said = table[handle]["fields"][str(one)]
            failed = ERRORS.get(said, pynvml.NVML_SUCCESS) if isinstance(said, str) else pynvml.NVML_SUCCESS
            value = SimpleNamespace(uiVal=0 if failed else said)
            values.append(SimpleNamespace(nvmlReturn=failed, value=value))
        return values

    def event_reasons(handle):
        if "nvmlDeviceGetCurrentClocksEventReasons" in table[handle]["missing"]:
            raise pynvml.NVMLError(ERRORS["function_not_found"])
        return read(handle, "throttle")

    module = SimpleNamespace(
        NVML_SUCCESS=pynvml.NVML_SUCCESS,
        NVML_CLOCK_SM=pynvml.NVML_CLOCK_SM,
        NVML_CLOCK_MEM=pynvml.NVML_CLOCK_MEM,
        NVML_TEMPERATURE_GPU=pynvml.NVML_TEMPERATURE_GPU,
        NVML_FI_DEV_POWER_AVERAGE=pynvml.NVML_FI_DEV_POWER_AVERAGE,
        NVML_FI_DEV_POWER_INSTANT=pynvml.NVML_FI_DEV_POWER_INSTANT,
        NVMLError=pynvml.NVMLError,
        nvmlInit=init_nvml,
        nvmlShutdown=lambda: None,
        nvmlSystemGetDriverVersion=(table[0]["driver"] if table else "").encode,
        nvmlDeviceGetCount=lambda: len(table),
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetName=lambda handle: table[handle]["name"],
        nvmlDeviceGetUUID=lambda handle: table[handle]["uuid"],
        nvmlDeviceGetPciInfo=lambda handle: SimpleNamespace(busId=table[handle]["bus_id"]),
        nvmlDeviceGetMemoryInfo=lambda handle: SimpleNamespace(total=table[handle]["memory_mib"] * 2**20),
        nvmlDeviceGetMigMode=lambda handle: read(handle, "mig"),
        nvmlDeviceGetCudaComputeCapability=lambda handle: tuple(table[handle]["capability"]),
        nvmlDeviceGetTotalEnergyConsumption=energy_mj,
        nvmlDeviceGetPowerUsage=lambda handle: read(handle, "usage_mw"),
        nvmlDeviceGetFieldValues=fields,
        nvmlDeviceGetClockInfo=lambda handle, which: read(
            handle, "sm_mhz" if which == pynvml.NVML_CLOCK_SM else "memory_mhz"
        ),
        nvmlDeviceGetTemperature=lambda handle, which: read(handle, "temperature_c"),
        nvmlDeviceGetCurrentClocksEventReasons=event_reasons,
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda handle: read(handle, "throttle"),
    )
    for name in absent:
        delattr(module, name)
    return module
