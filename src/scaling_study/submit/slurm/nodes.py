"""Nodes that runs failed on: one small file a failure, so that all drivers of a store share what each of them learns.

A node is avoided after several failures, or at once where a check of the nodes has named it. Who deletes its folder
takes it back.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from scaling_study.errors import write_atomically


class Blame(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One failure of a node.

    Attributes:
        of: the attempt at a run, or the check that found it.
        why: in words.
        at: when, UTC, ISO 8601.
        conclusive: whether this one alone is enough to avoid the node.
    """

    of: str
    why: str
    at: str
    conclusive: bool = False


def folder_of(store_root: Path) -> Path:
    """Where a store's blames lie, a folder a node."""
    return store_root / "nodes"


def blame(store_root: Path, node: str, one: Blame) -> None:
    """Write a failure of a node down.

    Raises:
        UserError: the store cannot be written.
    """
    write_atomically(folder_of(store_root) / node / f"{one.of}.json", msgspec.json.encode(one))


def forgive(store_root: Path, node: str, of: str) -> None:
    """Take a failure of a node back, if it was written down."""
    (folder_of(store_root) / node / f"{of}.json").unlink(missing_ok=True)


def blamed(store_root: Path) -> dict[str, list[Blame]]:
    """The failures of each node that has some, by name; what cannot be read is left out."""
    found: dict[str, list[Blame]] = {}
    for path in sorted(folder_of(store_root).glob("*/*.json")):
        try:
            one = msgspec.json.decode(path.read_bytes(), type=Blame)
        except (OSError, msgspec.DecodeError):
            continue
        found.setdefault(path.parent.name, []).append(one)
    return found


def avoided(store_root: Path, after: int) -> list[str]:
    """Nodes that no job is to have.

    Args:
        after: so many failures.
    """
    return [
        node
        for node, blames in blamed(store_root).items()
        if len(blames) >= after or any(one.conclusive for one in blames)
    ]
