"""What forks ranks in a replayed check: the real server, and in it a replayed GPU in the place of the real one.

`SCALING_STUDY_REPLAY` names the GPUs by their keys in the table, `SCALING_STUDY_REPLAY_CUDA` why PyTorch has none.
"""

import os

import scaling_study.measure.server  # noqa: F401  first: it ends this process with its driver
from scaling_study.measure import attention, device, inspection, profile
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
    cuda = Cuda(*NAMES, init=os.environ.get("SCALING_STUDY_REPLAY_CUDA"))
    no_driver = None if NAMES else "no_library"
    return LOOK(cuda, lambda: Nvml(replayed_nvml(*NAMES, init=no_driver)), os.environ)


device.open_device = attention.open_device = open_device
inspection.look = look
profile.read_trace = lambda path, rank: read_trace(TRACE, rank)  # what a CPU traced has no kernels
