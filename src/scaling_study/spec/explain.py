"""Validation errors as sentences a person can act on."""

from __future__ import annotations

import difflib
import re

import msgspec

from scaling_study.errors import UserError


def explain_validation_error(error: msgspec.ValidationError, where: str) -> UserError:
    """A msgspec error as a sentence: the place in the file, and for an unknown key the nearest known one."""
    message = str(error)
    what, _, place = message.partition(" - at ")
    if place:
        where = (
            f"{where}, at {place.strip('`').removeprefix('$').removeprefix('.').replace('[...]', '.*') or 'top level'}"
        )
    unknown = re.search(r"unknown field `([^`]+)`", what)
    if unknown:
        key = unknown.group(1)
        close = difflib.get_close_matches(key, sorted(_known_keys(msgspec.Struct)), n=1)
        remedy = f"Did you mean {close[0]!r}?" if close else "Remove it."
        if close and close[0] == key:
            remedy = "It is known, but belongs elsewhere in the file."
        return UserError(f"unknown key {key!r}", where=where, remedy=remedy)
    return UserError(what[0].lower() + what[1:] if what else message, where=where, remedy="Mend the value.")


def _known_keys(kind: type[msgspec.Struct]) -> set[str]:
    """The keys of every type of this package that a file may hold."""
    keys: set[str] = set()
    for subclass in kind.__subclasses__():
        if subclass.__module__.startswith("scaling_study.spec."):
            keys |= set(subclass.__struct_fields__)
    return keys
