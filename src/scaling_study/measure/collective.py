"""A collective run on this rank: the result checked once, calls thrown away, then calls timed one by one."""

from __future__ import annotations

import socket
import time

import torch
import torch.distributed as dist

from scaling_study.measure.machine import cpu_name
from scaling_study.measure.report import Measurement, ProgressFile, environment
from scaling_study.processes import available_cores
from scaling_study.spec import Assignment, AttemptFiles, CollectiveReport, CollectiveRun
from scaling_study.training.collectives import Primitive


def measure_collective(assignment: Assignment, files: AttemptFiles, rank: int) -> Measurement:
    """Measure on this rank by the run's protocol; the process group exists already.

    Calls follow one another without a barrier, as in nccl-tests: a call begins when this rank's last one is over.

    Raises:
        WrongResultError: the primitive returns wrong values.
    """
    run, progress = assignment.run, ProgressFile(assignment, files, rank)
    assert isinstance(run, CollectiveRun)
    primitive = Primitive(run, torch.device("cpu"))
    primitive.check()
    for call in range(run.protocol.warmup):
        primitive()
        progress(call + 1)  # later ones are not told: a rank that writes makes the others wait
    dist.barrier()
    call_ns = []
    for _ in range(run.protocol.repeats):
        start_ns = time.perf_counter_ns()
        primitive()
        call_ns.append(time.perf_counter_ns() - start_ns)
    report = CollectiveReport(
        rank=rank,
        host=socket.gethostname(),
        device=cpu_name(),
        cores=available_cores(),
        threads=torch.get_num_threads(),
        call_ns=call_ns,
    )
    return Measurement(report=report, environment=environment(assignment))
