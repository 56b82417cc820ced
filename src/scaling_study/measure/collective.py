"""A collective run on this rank: the result checked once, calls thrown away, then calls timed one by one."""

from __future__ import annotations

import socket
from collections.abc import Callable

import torch
import torch.distributed as dist

from scaling_study.measure.device import Device
from scaling_study.measure.report import Measurement, environment
from scaling_study.processes import available_cores
from scaling_study.spec import Assignment, CollectiveReport, CollectiveRun
from scaling_study.training.collectives import Primitive


def measure_collective(assignment: Assignment, rank: int, device: Device, step: Callable[[int], None]) -> Measurement:
    """Measure on this rank by the run's protocol; the process group exists already.

    Calls follow one another without a barrier, as in nccl-tests: a call begins when this rank's last one is over.

    Args:
        device: where the buffers of this rank live.
        step: is told how many calls are done.

    Raises:
        WrongResultError: the primitive returns wrong values.
    """
    run = assignment.run
    assert isinstance(run, CollectiveRun)
    primitive = Primitive(run, device.torch_device)
    primitive.check()
    for call in range(run.protocol.warmup):
        primitive()
        step(call + 1)  # later ones are not told: a rank that writes makes the others wait
    dist.barrier()
    device.synchronise()
    marks = []
    for _ in range(run.protocol.repeats):
        start = device.now()
        primitive()
        marks.append((start, device.now()))
    report = CollectiveReport(
        rank=rank,
        host=socket.gethostname(),
        device=device.name,
        cores=available_cores(),
        threads=torch.get_num_threads(),
        call_ns=[device.between_ns(start, end) for start, end in marks],
    )
    return Measurement(report=report, environment=environment(assignment, device))
