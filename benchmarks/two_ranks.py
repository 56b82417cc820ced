"""Training tokens a second of two data-parallel ranks over gloo, every contestant sharded by FSDP2."""

from __future__ import annotations

from benchmarks.arena import Case
from benchmarks.lines import Line
from benchmarks.training import LARGER, SMALL, compare, training_run


def run(rounds: int, *, alike: bool = False) -> list[Line]:
    """A line for each model and peer."""
    small = training_run(SMALL, dp=2, micro_batch=2, sequence_length=64)
    larger = training_run(LARGER, dp=2, micro_batch=1, sequence_length=256)
    return [
        *compare("two ranks", Case(model=SMALL, run=small, threads=1, warmup=3, steps=10, alike=alike), rounds),
        *compare("two ranks", Case(model=LARGER, run=larger, threads=1, warmup=2, steps=3, alike=alike), rounds),
    ]
