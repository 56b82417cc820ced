"""Training tokens a second in one process: on one thread, and on as many as there are cores."""

from __future__ import annotations

from benchmarks.arena import Case
from benchmarks.lines import Line
from benchmarks.training import LARGER, SMALL, compare, training_run
from scaling_study.processes import available_cores


def run(rounds: int, *, alike: bool = False) -> list[Line]:
    """A line for each model, number of threads and peer."""
    small = training_run(SMALL, dp=1, micro_batch=2, sequence_length=64)
    larger = training_run(LARGER, dp=1, micro_batch=1, sequence_length=256)
    lines = []
    for threads in sorted({1, available_cores()}):
        name = f"one process, {threads} thread{'s' if threads > 1 else ''}"
        lines += compare(name, Case(model=SMALL, run=small, threads=threads, warmup=3, steps=12, alike=alike), rounds)
        lines += compare(name, Case(model=LARGER, run=larger, threads=threads, warmup=2, steps=4, alike=alike), rounds)
    return lines
