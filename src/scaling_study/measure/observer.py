"""Synchronisation under observation, on this rank: when it arrives at every collective of the mesh, and what it did.

The observer reads clocks and appends to lists; nothing is sent, but a few maxima every few iterations where ranks are
paced, and these are read when the next are sent and they have long arrived. Its own time is counted, so that a run
says what it cost. On a CPU a rank arrives when it calls; on a GPU the host would call long before the device arrives,
so runs there are not observed yet.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from scaling_study.measure.arrivals import Columns, RankArrivals
from scaling_study.measure.clocks import machine, offset_to_rank_0
from scaling_study.measure.groups import WatchedGroup, register
from scaling_study.spec import Axis, Pacing, TrainingRun
from scaling_study.synchronisation.controller import EXCHANGE_EVERY, PacingController, PacingSettings

_now = time.perf_counter_ns


class _Call:
    """One collective on this rank; nanoseconds."""

    __slots__ = ("arrived", "done", "held", "iteration", "own")

    def __init__(self, iteration: int, arrived: int, own: int) -> None:
        self.iteration, self.arrived, self.own, self.held, self.done = iteration, arrived, own, 0, 0


class _News(NamedTuple):
    """What a rank shares of an iteration: its arrivals and the iteration's length; and whether it was paced."""

    arrived: list[int]
    iteration_ns: int
    paced: bool


class _Group:
    """What is kept of one group; a `groups.Watcher`."""

    def __init__(self, observer: Observer, axis: Axis) -> None:
        self.observer, self.axis = observer, axis
        self.calls: list[_Call] = []
        self._before = _now() - observer.blocked_ns  # at the last arrival: the clock without waiting

    def enter(self, *, reduces: bool) -> _Call | None:
        """Keep an arrival, and hold back where that is due."""
        observer = self.observer
        if observer.iteration is None:
            return None
        now = _now()
        unblocked = now - observer.blocked_ns
        call = _Call(observer.iteration, now, unblocked - self._before)
        self._before = unblocked
        self.calls.append(call)
        if reduces and self.axis is Axis.DATA:
            observer.hold(call)
        observer.own_ns += _now() - now - call.held
        return call

    def waits(self) -> int:
        """When that began."""
        return _now()

    def left(self, call: _Call | None, began: int) -> None:
        """Keep when the result was there."""
        now = _now()
        self.observer.blocked_ns += now - began
        if call is not None and not call.done:
            call.done = now
        self.observer.own_ns += _now() - now


class Observer:
    """Watches the groups of a mesh on this rank from its construction to `finish`.

    Args:
        mesh: of watched groups.
        pacing: constants of the controller; None where nobody holds back.
        every: how many iterations are exchanged at once.
    """

    def __init__(self, mesh: DeviceMesh, pacing: PacingSettings | None = None, every: int = EXCHANGE_EVERY) -> None:
        self.iteration: int | None = None
        self.own_ns = self.blocked_ns = 0
        self._spent: list[tuple[int, int]] = []  # of each iteration: inside the observer, and in all
        self._used: list[tuple[int, int]] = []  # since the iteration before ended: processor time, time away from it
        self._before = self._clocks()
        self.offset_ns, self.clock_error_ns = offset_to_rank_0(machine())
        self._settings, self._controller, self._paced = pacing, None, False
        self._groups: dict[Axis, _Group] = {}
        self._real: dict[Axis, WatchedGroup] = {}
        for axis in Axis:
            group = mesh.get_group(axis.value)
            if isinstance(group, WatchedGroup) and group.size() > 1:
                self._groups[axis], self._real[axis] = _Group(self, axis), group
                group.watcher = self._groups[axis]
        self._every = every
        self._mine: list[int] = []  # arrivals at held synchronisations in this iteration, on the common clock
        self._unsent: list[_News] = []
        self._sent: tuple[torch.Tensor, list[_News], dist.Work] | None = None

    _controller: PacingController | None

    @contextlib.contextmanager
    def watching(self, iteration: int) -> Iterator[None]:
        """The iteration that goes on inside is kept; the last thing in it is the exchange of what pacing needs."""
        self.iteration, self.own_ns, start_ns = iteration, 0, _now()
        self._mine.clear()
        self._paced = self._controller is not None and self._controller.paced
        yield
        self.iteration = None
        if self._settings is not None and Axis.DATA in self._real:
            self._exchange(_News(self._mine.copy(), _now() - start_ns, self._paced))
        before, self._before = self._before, self._clocks()
        wall_ns, processor_ns, blocked_ns = (now - then for now, then in zip(self._before, before, strict=True))
        self._used.append((processor_ns, max(0, wall_ns - processor_ns - blocked_ns)))
        self._spent.append((self.own_ns, _now() - start_ns))

    def _clocks(self) -> tuple[int, int, int]:
        """Time, processor time of this thread, time blocked; the second is a system call, hence once an iteration."""
        return _now(), time.thread_time_ns(), self.blocked_ns

    def hold(self, call: _Call) -> None:
        """Hold this rank back before a gradient synchronisation, as long as its controller says."""
        self._mine.append(call.arrived + self.offset_ns)
        hold_s = float(self._controller.hold_s) if self._controller else 0.0
        if hold_s > 0:
            time.sleep(hold_s)
            call.held = _now() - call.arrived
            self.blocked_ns += call.held

    def _exchange(self, news: _News) -> None:
        """Keep what others must know of an iteration; of several together, share it and take in the last news."""
        began_ns = _now()
        self._unsent.append(news)
        if len(self._unsent) == self._every:
            self._take_in()
            content = torch.tensor([value for one in self._unsent for value in (*one.arrived, one.iteration_ns)])
            options = dist.AllreduceOptions()
            options.reduceOp = dist.ReduceOp.MAX
            self._sent = content, self._unsent, self._real[Axis.DATA].inner.allreduce([content], options)
            self._unsent = []
        self.own_ns += _now() - began_ns

    def _take_in(self) -> None:
        if self._sent is None:
            return
        content, mine, work = self._sent
        work.wait()
        values = iter(content.tolist())
        for one in mine:
            slack_ns = [next(values) - own for own in one.arrived]
            if self._controller is None:
                self._controller = PacingController(len(one.arrived), self._settings)
            self._controller.observe(statistics.fmean(slack_ns or [0]) / 1e9, next(values) / 1e9, paced=one.paced)

    def finish(self, host: str, rank: int) -> RankArrivals:
        """Stop watching, and say what was seen."""
        for group in self._real.values():
            group.watcher = None
        if self._sent is not None:
            self._sent[2].wait()
        controller = self._controller
        return RankArrivals(
            rank=rank,
            host=host,
            clock_error_ns=self.clock_error_ns,
            spent_ns=self._spent,
            used_ns=self._used,
            verdicts=controller.verdicts if controller else [],
            calls={axis.value: _table(group.calls, self.offset_ns) for axis, group in self._groups.items()},
            members={axis.value: dist.get_process_group_ranks(group) for axis, group in self._real.items()},
        )


def _table(calls: list[_Call], offset_ns: int) -> Columns:
    """Columns of the calls, in order."""
    return {
        "iteration": [call.iteration for call in calls],
        "arrived_ns": [call.arrived + offset_ns for call in calls],
        "held_ns": [call.held for call in calls],
        "done_ns": [(call.done or call.arrived) + offset_ns for call in calls],
        "own_ns": [call.own for call in calls],
    }


def watched_backend(run: TrainingRun) -> str | None:
    """The backend of a run's process groups where they are watched; None where the default one serves."""
    return register() if run.is_observed else None


def observer_of(run: TrainingRun, mesh: DeviceMesh) -> Observer | None:
    """What watches a run on this rank, if the run asks for it."""
    if not run.is_observed:
        return None
    return Observer(mesh, PacingSettings() if run.pacing is Pacing.ADAPTIVE else None)
