"""Two accounts of one rank's iteration, closed forms and what was extracted, put side by side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Any

from scaling_study.predict.operations import Communication, OperationKind, Step


def essence(step: Step) -> tuple[Any, ...] | None:
    """What must be equal in both accounts, names aside; None for element-wise operations.

    Those are not compared: PyTorch runs many small ones where the closed forms have a fused one.
    """
    if isinstance(step, Communication):
        message = (step.op.value, step.message_bytes, step.dtype_bytes)
        return (*message, step.axis, step.ranks, step.direction, step.peer)
    if step.kind is OperationKind.ELEMENTWISE:
        return None
    return (step.kind.value, step.shape, step.flops, step.moved_bytes, step.dtype_bytes, step.backward)


def essences(steps: Iterable[Step]) -> Iterator[tuple[Any, ...]]:
    """The essence of every step that has one, in order."""
    for step in steps:
        found = essence(step)
        if found is not None:
            yield found


def first_difference(predicted: Iterable[Step], extracted: Iterable[Step]) -> str | None:
    """Where two accounts part, as a sentence; None where they are the same from beginning to end."""
    for place, (mine, theirs) in enumerate(zip_longest(essences(predicted), essences(extracted))):
        if mine != theirs:
            return f"step {place}: predicted {mine}, extracted {theirs}"
    return None
