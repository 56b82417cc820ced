"""Contestants in processes of their own, who step in turn: while one steps, the others wait.

A process of its own, because a training step's speed depends on what the process freed before. In turn and in a
different order each time, because the speed of a machine drifts. Several rounds with new processes, because where a
process finds its memory is luck.
"""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec

from scaling_study.spec import Model, TrainingRun

_TIMEOUT_S = 300.0
_SAME_LOSS = {0: 1e-5}  # by step, relative; rounding grows from step to step
_SAME_LOSS_LATER = 1e-3

#: Processes are forked from a server that has imported every contestant once.
CONTEXT: Any = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["benchmarks.preload"])


class ContestantError(Exception):
    """A contestant failed; the message is its traceback."""


class UnavailableError(Exception):
    """A contestant cannot be had here; the message is the reason."""


class DifferentLossError(Exception):
    """Contestants do not compute the same, so their speed says nothing."""


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """What all contestants train.

    Attributes:
        model: dimensions.
        run: layout and batch; one process a rank.
        threads: of each rank.
        warmup: first steps of a round that are not counted.
        steps: counted steps of a round.
        alike: peers are given what our ranks set up for themselves, too.
    """

    model: Model
    run: TrainingRun
    threads: int
    warmup: int
    steps: int
    alike: bool = False


class _Answer(msgspec.Struct):
    duration_s: float = 0.0
    loss: float = 0.0
    error: str = ""
    unavailable: bool = False


class Contestant:
    """The ranks of one contestant.

    Args:
        name: of the contestant.
        case: what it trains.
        folder: an empty one, where its ranks meet.
    """

    def __init__(self, name: str, case: Case, folder: str) -> None:
        self.name = name
        pipes = [CONTEXT.Pipe() for _ in range(case.run.ranks)]
        self._connections: list[Connection] = [ours for ours, _ in pipes]
        self._processes = [
            CONTEXT.Process(target=_serve, args=(theirs, name, case, folder, rank), daemon=True)
            for rank, (_, theirs) in enumerate(pipes)
        ]
        for process in self._processes:
            process.start()
        for _, theirs in pipes:
            theirs.close()

    def ready(self) -> None:
        """Wait until every rank is built.

        Raises:
            UnavailableError, ContestantError: it cannot be built.
        """
        self._answers()

    def step(self, iteration: int) -> _Answer:
        """One training step: the time of the slowest rank, the mean loss of all.

        Raises:
            ContestantError: the step failed.
        """
        for connection in self._connections:
            connection.send(iteration)
        answers = self._answers()
        mean = sum(answer.loss for answer in answers) / len(answers)
        return _Answer(duration_s=max(answer.duration_s for answer in answers), loss=mean)

    def end(self) -> None:
        """Stop every rank."""
        for process in self._processes:
            process.kill()
            process.join()

    def _answers(self) -> list[_Answer]:
        answers = []
        for connection in self._connections:
            if not connection.poll(_TIMEOUT_S):
                raise ContestantError(f"{self.name} said nothing for {_TIMEOUT_S:.0f} s")
            try:
                answer = connection.recv()
            except EOFError:
                raise ContestantError(f"a process of {self.name} died") from None
            if answer.error:
                raise (UnavailableError if answer.unavailable else ContestantError)(answer.error)
            answers.append(answer)
        return answers


def durations(names: Sequence[str], case: Case, rounds: int) -> list[list[dict[str, float]]]:
    """Seconds of each step by contestant, one list a round.

    Raises:
        UnavailableError, ContestantError: a contestant cannot be had, or failed.
        DifferentLossError: their losses differ on the same batch.
    """
    return [_round(names, case, number) for number in range(rounds)]


def _round(names: Sequence[str], case: Case, number: int) -> list[dict[str, float]]:
    with _contestants(names, case) as contestants:
        counted = []
        for iteration in range(case.warmup + case.steps):
            first = (number + iteration) % len(names)
            order = [*contestants[first:], *contestants[:first]]
            order = order[::-1] if iteration % 2 else order
            answers = {contestant.name: contestant.step(iteration) for contestant in order}
            _check_losses(answers, _SAME_LOSS.get(iteration, _SAME_LOSS_LATER))
            if iteration >= case.warmup:
                counted.append({name: answer.duration_s for name, answer in answers.items()})
    return counted


@contextlib.contextmanager
def _contestants(names: Sequence[str], case: Case) -> Iterator[list[Contestant]]:
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        contestants = []
        for name in names:
            contestant = Contestant(name, case, str(Path(folder) / name))
            stack.callback(contestant.end)
            contestants.append(contestant)
            contestant.ready()  # one after another, or they disturb each other
        yield contestants


def _check_losses(answers: dict[str, _Answer], tolerance: float) -> None:
    losses = {name: answer.loss for name, answer in answers.items()}
    first = next(iter(losses.values()))
    if not all(math.isclose(loss, first, rel_tol=tolerance) for loss in losses.values()):
        raise DifferentLossError(f"the same weights and batch, but losses {losses}")


def _serve(connection: Connection, name: str, case: Case, folder: str, rank: int) -> None:
    """A rank of a contestant: build, then one step for every number that comes."""
    try:
        _train(connection, name, case, folder, rank)
    except (EOFError, BrokenPipeError):
        pass  # the other end has gone
    except ImportError as error:
        connection.send(_Answer(error=str(error), unavailable=True))
    except BaseException:
        connection.send(_Answer(error=traceback.format_exc()))


def _train(connection: Connection, name: str, case: Case, folder: str, rank: int) -> None:
    import torch
    import torch.distributed as dist

    from benchmarks.contestants import OURS, build
    from scaling_study.measure.machine import keep_freed_memory

    if name == OURS or case.alike:
        keep_freed_memory()  # as every rank of ours does
    torch.set_num_threads(case.threads)
    store = dist.FileStore(folder, case.run.ranks)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=case.run.ranks)
    step = build(name, case.model, case.run)
    connection.send(_Answer())
    while True:
        iteration = connection.recv()
        tokens_BT, target_BT = batch(case.model, case.run, seed=iteration * case.run.ranks + rank)
        dist.barrier()
        start_s = time.perf_counter()
        loss = step(tokens_BT, target_BT).item()
        connection.send(_Answer(duration_s=time.perf_counter() - start_s, loss=loss))


def batch(model: Model, run: TrainingRun, seed: int) -> tuple[Any, Any]:
    """Tokens of one replica, each (local batch, sequence), and the tokens that follow them; at random."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    both = torch.randint(model.vocabulary, (run.local_batch, run.sequence_length + 1), generator=generator)
    return both[:, :-1].contiguous(), both[:, 1:].contiguous()
