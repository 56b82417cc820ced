"""How memory goes up and down: what a piece of work adds, and how high it rises on the way.

A swing is all that the peak of a long program needs to know of a piece, so that pieces can be put together, and a piece
repeated, without going through them again.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec


class MemoryKind(StrEnum):
    """What memory is used for."""

    WEIGHTS = "weights"
    OPTIMIZER = "optimizer"
    GRADIENTS = "gradients"
    GATHERED = "gathered parameters"
    REDUCTION = "buffers of reductions"
    ACTIVATIONS = "activations"
    LOGITS = "logits and loss"
    MESSAGES = "messages between stages"
    OTHER = "tokens and rotary angles"


Levels = dict[MemoryKind, int]
Change = tuple[MemoryKind, int]


class Swing(msgspec.Struct, frozen=True):
    """Bytes that a piece of work adds by kind, and the levels by kind at its highest moment, both over its start."""

    change: Levels
    highest: Levels

    @property
    def rise(self) -> int:
        """Bytes at the highest moment over the start."""
        return sum(self.highest.values())


NOTHING = Swing({}, {})


def swing(changes: Iterable[Change]) -> Swing:
    """The swing of allocations (positive) and releases (negative), one after another."""
    level: Levels = {}
    highest: Levels = {}
    total = most = 0
    for kind, size in changes:
        level[kind] = level.get(kind, 0) + size
        total += size
        if total > most:
            most, highest = total, dict(level)
    return Swing(level, highest)


def sequence(pieces: Iterable[Swing]) -> Swing:
    """Pieces one after another."""
    level: Levels = {}
    highest: Levels = {}
    most = 0
    for piece in pieces:
        if (top := sum(level.values()) + piece.rise) > most:
            most, highest = top, _add(level, piece.highest)
        level = _add(level, piece.change)
    return Swing(level, highest)


def repeat(piece: Swing, count: int) -> Swing:
    """A piece several times; where it leaves something behind, the last time is the highest."""
    if count == 0:
        return NOTHING
    before = {kind: size * (count - 1) for kind, size in piece.change.items()}
    grows = sum(piece.change.values()) > 0
    return Swing(_add(before, piece.change), _add(before, piece.highest) if grows else piece.highest)


def _add(one: Levels, other: Levels) -> Levels:
    result = dict(one)
    for kind, size in other.items():
        result[kind] = result.get(kind, 0) + size
    return result
