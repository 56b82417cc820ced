"""A module in the place of `torch.cuda`, and a rank's GPU made of it: tensors are on the CPU, all else is replayed."""

from __future__ import annotations

import resource
import time
from types import SimpleNamespace

import torch

from scaling_study.measure.device import CudaDevice
from scaling_study.measure.nvml import Nvml
from tests.replay.nvml import GPUS, replayed_nvml


class Event:
    """An event of a stream that is a CPU: it is reached when it is recorded."""

    def __init__(self, enable_timing):
        assert enable_timing
        self.at_ns = None

    def record(self):
        self.at_ns = time.perf_counter_ns()

    def synchronize(self):
        assert self.at_ns is not None

    def elapsed_time(self, end):
        return (end.at_ns - self.at_ns) / 1e6


class Cuda:
    """What `CudaDevice` asks of `torch.cuda`, for GPUs by their keys in the table."""

    def __init__(self, *names, init=None):
        self.table, self._init, self.Event = [GPUS[name] for name in names], init, Event
        self.retries, self.synchronised, self.chosen = 0, 0, None
        self.nccl = SimpleNamespace(version=lambda: (2, 27, 3))

    def init(self):
        if self._init:
            raise RuntimeError(self._init)

    def device_count(self):
        return len(self.table)

    def set_device(self, index):
        self.chosen = index

    def get_device_properties(self, index):
        one = self.table[index]
        domain, bus, device = one["bus_id"].partition(".")[0].split(":")
        return SimpleNamespace(
            name=one["name"], uuid=one["uuid"].removeprefix("GPU-"), total_memory=one["memory_mib"] * 2**20,
            pci_domain_id=int(domain, 16), pci_bus_id=int(bus, 16), pci_device_id=int(device, 16),
            major=one["capability"][0], minor=one["capability"][1],
        )  # fmt: skip

    def synchronize(self, device):
        self.synchronised += 1

    def memory_stats(self, device):
        return {"num_alloc_retries": self.retries}

    def reset_peak_memory_stats(self, device):
        pass

    def max_memory_allocated(self, device):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    def max_memory_reserved(self, device):
        return self.max_memory_allocated(device) + 2**20


class ReplayedDevice(CudaDevice):
    """A rank's GPU: the real class but for where tensors live and who moves them."""

    backend = "gloo"

    def __init__(self, gpu, local_rank, names):
        super().__init__(gpu, local_rank, Cuda(*names), lambda: Nvml(replayed_nvml(*names)))
        self.torch_device = torch.device("cpu")

    def group_options(self):
        return {}

    def put(self, tensor):
        return tensor
