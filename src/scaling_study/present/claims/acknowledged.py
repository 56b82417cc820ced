"""The verdicts that somebody has looked at: a small committed file, so that a verdict cannot change in silence."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from scaling_study.errors import UserError, read_bytes, write_atomically
from scaling_study.present.claims.verdicts import Judged
from scaling_study.spec import Place, Verdict

_COLUMNS = ("id", "place", "verdict")
Known = Mapping[tuple[str, Place], Verdict]


class Changed(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict that is not the acknowledged one; `was` is None where it is new, `now` where it is gone."""

    id: str
    place: Place
    was: Verdict | None
    now: Verdict | None

    def __str__(self) -> str:
        was, now = (one.value if one else "not there" for one in (self.was, self.now))
        return f"{self.id} ({self.place}): {now}, was {was}"


def read_acknowledged(path: Path) -> Known:
    """The acknowledged verdicts; none where there is no file yet.

    Raises:
        UserError: a line is not valid.
    """
    if not path.exists():
        return {}
    rows = csv.DictReader(io.StringIO(read_bytes(path).decode("utf-8", errors="replace")))
    try:
        return {(row["id"], Place(row["place"])): Verdict(row["verdict"]) for row in rows}
    except (KeyError, ValueError) as error:
        raise UserError(
            f"line {rows.line_num} is not valid: {error}",
            where=str(path),
            remedy="Restore it from git, or write it anew with `scaling-study claims --acknowledge`.",
        ) from error


def acknowledge(path: Path, judged: Sequence[Judged]) -> None:
    """Write the verdicts as those that are known.

    Raises:
        UserError: the file cannot be written.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    writer.writerows((one.id, one.place.value, one.verdict.value) for one in judged)
    write_atomically(path, text.getvalue().encode())


def changes(judged: Sequence[Judged], known: Known) -> list[Changed]:
    """Where verdicts differ from the acknowledged ones, in the order of the claims, what is gone last."""
    now = {(one.id, one.place): one.verdict for one in judged}
    keys = [*now, *(key for key in known if key not in now)]
    return [
        Changed(id=key[0], place=key[1], was=known.get(key), now=now.get(key))
        for key in keys
        if known.get(key) != now.get(key)
    ]
