"""Pacing on and off on gloo ranks with injected delays: pairs of runs, throughput and variation, whatever they are.

Delays are made here, between the iterations' begin and the training step; nothing in the package can inject one.

Example: python -m benchmarks.pacing --ranks 8 --pairs 10
"""

from __future__ import annotations

import multiprocessing
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec
import numpy as np
import torch
import torch.distributed as dist
from rich.console import Console
from rich.table import Table

from scaling_study.errors import write_atomically
from scaling_study.measure.arrivals import synchronisation_of
from scaling_study.measure.observer import observer_of, watched_backend
from scaling_study.spec import AttentionBackend, Model, Pacing, Precision, Protocol, TrainingRun
from scaling_study.spec.synchronisation import Cause
from scaling_study.training.step import Trainer

MODEL = Model(name="tiny", layers=2, hidden=64, heads=4, kv_heads=4, ffn=176, vocabulary=256, source="benchmark")
ITERATIONS, DISCARD = 56, 8
DELAY_S = 0.25  # more than five times the spread of iterations on a machine that is not overrun
LATE = 5

CONTEXT: Any = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["benchmarks.preload"])


def _never(_step: int, _rank: int, _ranks: int) -> bool:
    return False


def _one(_step: int, rank: int, ranks: int) -> bool:
    return rank == LATE % ranks


def _in_turn(step: int, rank: int, ranks: int) -> bool:
    """In every second iteration one rank."""
    return step % 2 == 1 and (step // 2) % ranks == rank


#: Of each scenario which rank is late when, and in which share of iterations 8 MB of others' traffic share the links.
SCENARIOS: dict[str, tuple[Callable[[int, int, int], bool], float]] = {
    "nothing injected": (_never, 0.0),
    "one slow rank": (_one, 0.0),
    "periodic jitter": (_in_turn, 0.0),
    "bursty network": (_never, 0.25),
}


class Half(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a pair.

    Attributes:
        losses: of rank 0.
        last_rank, lost_s: the rank that costs most, and what it costs by being away, an iteration.
    """

    pacing: str
    iteration_s: float
    cv: float
    losses: list[float]
    overhead: float
    held_s: float
    kept: list[bool]
    last_rank: int
    lost_s: float


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """Two runs, one after the other, without and with pacing."""

    scenario: str
    ranks: int
    off: Half
    adaptive: Half


@click.command(context_settings={"show_default": True})
@click.option("--ranks", type=click.IntRange(2), default=8, help="Processes on this machine.")
@click.option("--pairs", type=click.IntRange(1), default=10, help="Of each scenario.")
@click.option("--only", type=click.Choice(tuple(SCENARIOS)), multiple=True, help="Just this one; may be repeated.")
@click.option("--output", type=click.Path(path_type=Path), default="results/pacing.json", help="Every pair as JSON.")
def main(ranks: int, pairs: int, only: tuple[str, ...], output: Path) -> None:
    """Measure pairs of runs without and with pacing under injected delays; exit code 1 if losses differ."""
    found = [pair for name in only or SCENARIOS for pair in _on_ranks(ranks, name, pairs)]
    write_atomically(output, msgspec.json.format(msgspec.json.encode(found)))
    Console(width=None if sys.stdout.isatty() else 160).print(_table(found))
    sys.exit(0 if all(one.off.losses == one.adaptive.losses for one in found) else 1)


def _on_ranks(ranks: int, scenario: str, pairs: int) -> list[Pair]:
    click.echo(f"{scenario} ...", err=True)
    with tempfile.TemporaryDirectory() as folder:
        queue = CONTEXT.Queue()
        processes = [
            CONTEXT.Process(target=_rank, args=(queue, folder, rank, ranks, scenario, pairs), daemon=True)
            for rank in range(ranks)
        ]
        for process in processes:
            process.start()
        found = queue.get(timeout=1800)
        for process in processes:
            process.join(10)
            process.kill()
    if isinstance(found, str):
        raise click.ClickException(found)
    return [msgspec.convert(one, Pair) for one in found]


def _rank(queue: Any, folder: str, rank: int, ranks: int, scenario: str, pairs: int) -> None:
    torch.set_num_threads(1)
    try:
        dist.init_process_group("gloo", store=dist.FileStore(f"{folder}/store", ranks), rank=rank, world_size=ranks)
        halves = [_half(scenario, pacing, ranks) for _ in range(pairs) for pacing in Pacing]
        if rank == 0:
            both = zip(halves[::2], halves[1::2], strict=True)
            found = [
                Pair(scenario=scenario, ranks=ranks, off=off, adaptive=paced) for off, paced in both if off and paced
            ]
            queue.put(msgspec.to_builtins(found))
        dist.barrier()
    except BaseException:
        queue.put(traceback.format_exc())


def _half(scenario: str, pacing: Pacing, ranks: int) -> Half | None:
    """One run; what rank 0 makes of it, None on the others."""
    run = TrainingRun(
        model=MODEL.name, hardware="cpu", nodes=ranks, dp=ranks, micro_batch=1, global_batch=ranks, sequence_length=32,
        precision=Precision.FP32, attention=AttentionBackend.SDPA, pacing=pacing,
        protocol=Protocol(observe_synchronisation=True),
    )  # fmt: skip
    trainer = Trainer(run, MODEL, torch.device("cpu"), watched_backend(run))
    observer, rank = observer_of(run, trainer.mesh), dist.get_rank()
    assert observer is not None
    (is_late, share), message = SCENARIOS[scenario], torch.zeros(1 << 21)
    taken, losses = [], []
    for step in range(ITERATIONS):
        tokens = torch.randint(
            0, MODEL.vocabulary, (1, 33), generator=torch.Generator().manual_seed(step * ranks + rank)
        )
        start_s = time.perf_counter()
        with observer.watching(step):
            time.sleep(DELAY_S if is_late(step, rank, ranks) else 0)
            busy = np.random.default_rng(step).random() < share
            traffic = dist.all_reduce(message, async_op=True) if busy else None
            loss = trainer.step(tokens[:, :-1], tokens[:, 1:])
            losses.append(0.0 if loss is None else loss.item())
            if traffic is not None:
                traffic.wait()
        taken.append(time.perf_counter() - start_s)
    everyone: list[Any] | None = [None] * ranks if rank == 0 else None
    dist.gather_object((taken, observer.finish("host", rank)), everyone)
    if everyone is None:
        return None
    seen = synchronisation_of([arrivals for _, arrivals in everyone], DISCARD)
    slowest = [max(times) for times in zip(*(times for times, _ in everyone), strict=True)][DISCARD:]
    worst = max(seen.last, key=lambda one: sum(one.lost_s.values()))
    return Half(
        pacing=pacing.value,
        iteration_s=statistics.fmean(slowest),
        cv=statistics.stdev(slowest) / statistics.fmean(slowest),
        losses=losses,
        overhead=seen.overhead,
        held_s=seen.held_s,
        kept=[one.kept for one in seen.verdicts],
        last_rank=worst.rank,
        lost_s=worst.lost_s[Cause.HOST],
    )


def _table(found: list[Pair]) -> Table:
    table = Table()
    for name in ("scenario", "pairs", "change of throughput", "CV off", "CV adaptive", "losses", "overhead off",
                 "overhead adaptive", "kept", "costs most, and its absence"):  # fmt: skip
        table.add_column(name, justify="left" if name == "scenario" else "right")
    for scenario in dict.fromkeys(one.scenario for one in found):
        mine = [one for one in found if one.scenario == scenario]
        changes = [one.off.iteration_s / one.adaptive.iteration_s - 1 for one in mine]
        spread = 1.96 * statistics.stdev(changes) / len(changes) ** 0.5 if len(changes) > 1 else float("nan")
        verdicts = [kept for one in mine for kept in one.adaptive.kept]
        named = [one.off.last_rank for one in mine]
        most, absent_s = max(set(named), key=named.count), statistics.median(one.off.lost_s for one in mine)
        table.add_row(
            scenario,
            str(len(mine)),
            f"{statistics.fmean(changes):+.1%} ± {spread:.1%}",
            f"{statistics.median(one.off.cv for one in mine):.3f}",
            f"{statistics.median(one.adaptive.cv for one in mine):.3f}",
            "identical" if all(one.off.losses == one.adaptive.losses for one in mine) else "DIFFER",
            f"{statistics.median(one.off.overhead for one in mine):.2%}",
            f"{statistics.median(one.adaptive.overhead for one in mine):.2%}",
            f"{sum(verdicts)} of {len(verdicts)}",
            f"rank {most} ({named.count(most)} of {len(mine)}), {absent_s * 1e3:.1f} ms",
        )
    return table


if __name__ == "__main__":
    main()
