"""Platforms: where runs execute. Nothing of a machine is in the code; it is all here and in `config/platforms`."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from scaling_study.spec.words import Executor

#: The platform that runs nothing: the performance model, for every hardware that it knows.
PREDICT = "predict"

Seconds = Annotated[float, Meta(gt=0)]


class Platform(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One place that measures runs of one hardware.

    Attributes:
        hardware: the only hardware that it measures.
        threads_per_rank: threads of one operator; the same for every run, so that a rank has the same compute at
            every scale.
        first_iteration_limit_s: from the start of a run to the end of its first iteration.
        iteration_limit_s: between two later iterations.
        run_limit_s: one run in all.
        attempts: how often a run is started when a rank is killed from outside.
    """

    name: str
    title: str
    executor: Executor
    hardware: str
    first_iteration_limit_s: Seconds = 120.0
    iteration_limit_s: Seconds = 60.0
    run_limit_s: Seconds = 600.0
    threads_per_rank: Annotated[int, Meta(gt=0)] = 1
    attempts: Annotated[int, Meta(gt=0)] = 2
