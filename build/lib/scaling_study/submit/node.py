"""What runs on the node: one function of one run. `measure` is imported there, never by the driver."""

from __future__ import annotations

import os


def start_rank(payload: str, address: str) -> None:
    """The task of a job: decode the assignment, ask the job which rank this is, measure.

    Args:
        payload: an `Assignment` as JSON.
        address: the address of rank 0's host for the others.
    """
    import msgspec
    from submitit import JobEnvironment

    from scaling_study.measure.rank import run_one
    from scaling_study.spec import Assignment

    assignment = msgspec.json.decode(payload, type=Assignment)
    os.environ["OMP_NUM_THREADS"] = str(assignment.threads_per_rank)
    job = JobEnvironment()
    run_one(assignment, job.global_rank, job.num_tasks, address)
