"""Process groups whose collectives can be watched: the real group inside, and someone who is told of every call.

PyTorch lets a backend be a process group in Python (`Backend.register_backend`), so FSDP2, DTensor and pipeline
schedules are watched without a change in them or in the training code, whichever way they call. What is computed and
sent is the inner group's alone. With nobody watching, a call only passes through.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed as dist

#: The name under which gloo groups that can be watched are registered.
WATCHED_GLOO = "watched_gloo"

#: Collectives by their names in PyTorch 2.10 to 2.13: those that reduce, others, and those of two ranks alone.
_REDUCTIONS = (
    "allreduce", "allreduce_coalesced", "reduce", "reduce_scatter", "_reduce_scatter_base", "reduce_scatter_single",
    "reduce_scatter_single_coalesced", "reduce_scatter_tensor_coalesced",
)  # fmt: skip
_OTHERS = (
    "allgather", "_allgather_base", "allgather_coalesced", "allgather_into_tensor_coalesced", "all_gather_single",
    "all_gather_single_coalesced", "alltoall", "alltoall_base", "all_to_all_single", "broadcast", "gather", "scatter",
    "barrier",
)  # fmt: skip
_BETWEEN_TWO = ("send", "recv", "recv_anysource")


class Watcher(Protocol):
    """Who is told of a group's calls."""

    def enter(self, *, reduces: bool) -> Any:
        """A rank is about to enter a collective, and does so when this returns; what is returned names the call."""

    def waits(self) -> Any:
        """It begins to wait for a call; what is returned is given back."""

    def left(self, call: Any, began: Any) -> None:
        """It has waited for a call, None for a message between two ranks."""


class WatchedWork(dist.Work):
    """A call under way.

    Args:
        inner: the real one.
        watcher: is told when somebody waits for it.
        call: what the watcher named it.
    """

    def __init__(self, inner: dist.Work, watcher: Watcher, call: Any) -> None:
        super().__init__()
        self._inner, self._watcher, self._call = inner, watcher, call

    def wait(self, timeout: timedelta = timedelta()) -> bool:
        """Wait for the real call."""
        began = self._watcher.waits()
        done = self._inner.wait() if timeout == timedelta() else self._inner.wait(timeout)
        self._watcher.left(self._call, began)
        return bool(done)

    def get_future(self) -> Any:
        """Of the real call."""
        return self._inner.get_future()

    def is_completed(self) -> bool:
        """Whether the real call is over."""
        return bool(self._inner.is_completed())

    def result(self) -> Any:
        """Of the real call."""
        return self._inner.result()


class WatchedGroup(dist.ProcessGroup):
    """A process group that passes every call on to another one.

    Args:
        inner: the real one.
    """

    def __init__(self, inner: dist.ProcessGroup) -> None:
        super().__init__(inner.rank(), inner.size())
        self.inner, self.watcher = inner, None
        self._name = self._description = ""

    watcher: Watcher | None

    def getBackendName(self) -> str:  # noqa: N802 - PyTorch's name
        """What PyTorch calls it."""
        return WATCHED_GLOO

    @property
    def group_name(self) -> str:
        """The name by which C++ finds it."""
        return self._name

    def _set_group_name(self, name: str) -> None:
        self._name = name

    @property
    def group_desc(self) -> str:
        """What it is for."""
        return self._description

    def _set_group_desc(self, description: str) -> None:
        self._description = description

    def _call(self, name: str, reduces: bool | None, arguments: tuple[Any, ...]) -> Any:
        """Pass a call on.

        Args:
            reduces: whether it is a reduction; None for a message between two ranks.
        """
        if self.watcher is None:
            return getattr(self.inner, name)(*arguments)
        call = None if reduces is None else self.watcher.enter(reduces=reduces)
        return WatchedWork(getattr(self.inner, name)(*arguments), self.watcher, call)


def _passed_on(name: str, reduces: bool | None) -> Any:
    def method(self: WatchedGroup, *arguments: Any) -> Any:
        return self._call(name, reduces, arguments)

    method.__name__ = name
    return method


for _names, _reduces in ((_REDUCTIONS, True), (_OTHERS, False), (_BETWEEN_TWO, None)):
    for _name in _names:
        if hasattr(dist.ProcessGroup, _name):
            setattr(WatchedGroup, _name, _passed_on(_name, _reduces))


def _create(store: dist.Store, rank: int, size: int, timeout: timedelta) -> WatchedGroup:
    """A gloo group inside a watched one."""
    inner = dist.ProcessGroup(store, rank, size)
    gloo = dist.ProcessGroupGloo(store, rank, size, timeout=timeout)
    inner._set_default_backend(dist.ProcessGroup.BackendType.GLOO)
    inner._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, gloo)
    return WatchedGroup(inner)


def register() -> str:
    """Make watched groups known to PyTorch, again if need be; the name of their backend."""
    dist.Backend.register_backend(WATCHED_GLOO, _create, devices=["cpu"])
    return WATCHED_GLOO
