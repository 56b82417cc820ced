"""A preparation in parts: each part whole or not there, so that a preparation goes on where one was stopped.

A folder holds the definition that it serves, the vocabulary, and part files of tokens; beside each part stands what
the sources had given by its end. A part counts once that second file is there. The parts of another definition are
thrown away.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np

from scaling_study.errors import explain_os_error, write_atomically
from scaling_study.spec import Dataset
from scaling_study.training.mixture import Given

T = TypeVar("T")
_BYTES_OF_TOKEN = np.dtype(np.uint16).itemsize


class Definition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the parts are made of.

    Attributes:
        dataset: the data set.
        files: size in bytes and time of change in nanoseconds of each local file.
        made_with: versions of what makes tokens of rows.
    """

    dataset: Dataset
    files: dict[str, tuple[int, int]]
    made_with: dict[str, str] = {}


class PartState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How things stand at the end of a part.

    Attributes:
        tokens: of the part.
        given: by every source since the first part.
    """

    tokens: int
    given: dict[str, Given]


class Parts:
    """The parts of one definition.

    Args:
        folder: theirs alone; it is made, and emptied of what is of another definition.
        definition: what they are made of.

    Raises:
        UserError: the folder cannot be written.
    """

    def __init__(self, folder: Path, definition: Definition) -> None:
        self._folder = folder
        path = folder / "definition.json"
        if _read(path, Definition) != definition:
            discard(folder)
            write_atomically(path, msgspec.json.encode(definition))
        self._states: list[PartState] = []
        while (state := self._whole(len(self._states))) is not None:
            self._states.append(state)
        for later in folder.glob("part-*.json"):  # behind a part that is damaged
            if later.name >= self._path(len(self._states), "json").name:
                later.unlink()

    @property
    def cache(self) -> Path:
        """A folder that goes with the parts."""
        return self._folder / "cache"

    @property
    def tokens(self) -> int:
        """Of all parts."""
        return sum(state.tokens for state in self._states)

    @property
    def given(self) -> Mapping[str, Given]:
        """What the sources have given to all parts."""
        return self._states[-1].given if self._states else {}

    def tokenizer(self) -> Any | None:
        """The vocabulary, if it is there and whole."""
        from tokenizers import Tokenizer

        try:
            return Tokenizer.from_file(str(self._tokenizer_path))
        except Exception:
            return None

    def keep_tokenizer(self, tokenizer: Any) -> None:
        """Keep the vocabulary."""
        write_atomically(self._tokenizer_path, tokenizer.to_str().encode())

    def add(self, tokens: Any, given: dict[str, Given]) -> None:
        """Keep a part, and what the sources have given by its end."""
        number = len(self._states)
        state = PartState(tokens=len(tokens), given=given)
        write_atomically(self._path(number, "bin"), tokens.tobytes())
        write_atomically(self._path(number, "json"), msgspec.json.encode(state))
        self._states.append(state)

    def join(self, target: Path) -> str:
        """Write all parts, one after another, as one file that appears complete; returns its SHA-256."""
        digest, whole = hashlib.sha256(), self._folder / "whole.bin"
        try:
            with whole.open("wb") as file:
                for number in range(len(self._states)):
                    content = self._path(number, "bin").read_bytes()
                    digest.update(content)
                    file.write(content)
                file.flush()
                os.fsync(file.fileno())
            whole.replace(target)
        except OSError as error:
            raise explain_os_error(error, where=str(target)) from error
        return digest.hexdigest()

    @property
    def _tokenizer_path(self) -> Path:
        return self._folder / "tokenizer.json"

    def _path(self, number: int, suffix: str) -> Path:
        return self._folder / f"part-{number:05d}.{suffix}"

    def _whole(self, number: int) -> PartState | None:
        """The state of a part whose tokens are all there."""
        state, path = _read(self._path(number, "json"), PartState), self._path(number, "bin")
        if state is None or not path.exists() or path.stat().st_size != state.tokens * _BYTES_OF_TOKEN:
            return None
        return state


def discard(folder: Path) -> None:
    """Remove the folder of parts and all in it, if it is there.

    Raises:
        UserError: something in it cannot be removed.
    """
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise explain_os_error(error, where=str(folder)) from error


def _read(path: Path, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
        return None
