"""What forks ranks in a replayed check: the real server, and in it a replayed GPU in the place of the real one.

`SCALING_STUDY_REPLAY` names the GPUs by their keys in the table; without one there is no driver.
"""

import os

import scaling_study.measure.server  # noqa: F401  it ends this process with its driver
import tests.replay.without  # noqa: F401
from scaling_study.measure import attention, device, inspection, power, profile
from scaling_study.measure.nvml import Nvml
from scaling_study.timeline import read_trace
from tests.replay.cuda import Cuda, ReplayedDevice
from tests.replay.nvml import replayed_nvml
from tests.replay.traces import TRACE

NAMES = [name for name in os.environ.get("SCALING_STUDY_REPLAY", "").split(",") if name]
LOOK = inspection.look


def open_device(gpu, local_rank):
    return device.CpuDevice() if gpu is None else ReplayedDevice(gpu, local_rank, NAMES)


def look():
    if not NAMES:
        return LOOK(Cuda(init="Found no NVIDIA driver on your system."), lambda: Nvml(replayed_nvml(init="no_library")))
    return LOOK(Cuda(*NAMES), lambda: Nvml(replayed_nvml(*NAMES)), os.environ)


device.open_device = attention.open_device = open_device
inspection.look = look
power.LEAST_WINDOW_S = 0.0  # of models that take milliseconds
profile.read_trace = lambda path, rank: read_trace(TRACE, rank)  # what was traced on a CPU has no kernels
