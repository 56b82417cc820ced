"""How long work says how far it has come, without knowing who shows it: loops by `Track`, all else by `Advance`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

T = TypeVar("T")

#: Told how much more is done, in whatever unit the whole was announced.
Advance = Callable[[int], None]


class Track(Protocol):
    """Passes items on, and may show how many of them are done and how long the others will take."""

    def __call__(self, items: Iterable[T], total: int) -> Iterable[T]:
        """The same items in the same order; `total` is how many there are."""
        ...


def untracked(items: Iterable[T], total: int) -> Iterable[T]:  # noqa: ARG001 (nobody looks)
    """The items, shown nowhere."""
    return items


def unheard(amount: int) -> None:
    """Nobody is told."""
