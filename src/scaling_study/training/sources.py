"""Documents of public text, streamed: from the Hugging Face Hub or from local files, both through `datasets`.

A stream hands out one document after another and knows its position, so that another process goes on behind the last
one. The position is that of `datasets`: files that are done with are not opened again, where `skip` would read them.
"""

from __future__ import annotations

import glob
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scaling_study.errors import UserError
from scaling_study.spec import TextSource
from scaling_study.training.documents import FORMATS, RowError

_READERS = {".parquet": "parquet", ".jsonl": "json", ".jsonl.gz": "json"}


class TextStream:
    """The documents of a source.

    Args:
        source: which.
        seed: of the order in which its files are read.
        cache: folder for the locks of `datasets`.
        position: of an earlier stream of the same source and seed, behind whose last document this one begins.

    Raises:
        UserError: it cannot be opened, or lacks a column.
    """

    def __init__(self, source: TextSource, seed: int, cache: Path, position: dict[str, Any] | None = None) -> None:
        self.name = source.name
        self._source, self._format = source, FORMATS[source.format]
        self._started = dict(position or {})
        self._documents: Iterator[str] | None = None
        with _explained(source):
            rows = _open(source, cache)
            self._check_columns(rows.column_names)
            # One file after another; with a buffer of one row nothing is lost where a stream is left.
            self._rows = rows.shuffle(seed=seed, buffer_size=1, max_buffer_input_shards=1)
            if position:
                self._rows.load_state_dict(position)

    @property
    def position(self) -> dict[str, Any]:
        """Behind the last document that was handed out, as plain builtins; empty at the very start."""
        return self._started if self._documents is None else dict(self._rows.state_dict())

    def next_document(self) -> str | None:
        """The next document that holds text; None where there is none any more.

        Raises:
            UserError: the source cannot be read on, or a row is not of its format.
        """
        if self._documents is None:
            self._documents = filter(None, map(self._format.document, self._rows))
        with _explained(self._source):
            return next(self._documents, None)

    def _check_columns(self, found: list[str] | None) -> None:
        missing = [column for column in self._format.columns if found is not None and column not in found]
        if missing:
            raise UserError(
                f"there is no column {missing[0]!r}, but {', '.join(map(repr, found or []))}",
                where=_place(self._source),
                remedy=f"The format {self._source.format.value!r} needs {' and '.join(self._format.columns)}.",
            )


def local_files(source: TextSource) -> list[Path]:
    """The files that a source names, sorted; none for a source on the hub.

    Raises:
        UserError: a pattern has no file, or the files are of no known kind or of several.
    """
    paths: set[Path] = set()
    for pattern in source.files:
        found = [path for name in glob.glob(pattern, recursive=True) if (path := Path(name)).is_file()]  # noqa: PTH207  also absolute ones
        if not found:
            raise UserError(
                f"there is no file {pattern}",
                where=f"source {source.name!r}",
                remedy="Check the pattern; it is relative to the working directory.",
            )
        paths.update(found)
    kinds = {_kind(path) for path in paths}
    if None in kinds or len(kinds) > 1:
        raise UserError(
            "its files must all be parquet or all JSON lines",
            where=_place(source),
            remedy=f"Name files that end in {', '.join(_READERS)}.",
        )
    return sorted(paths)


def _kind(path: Path) -> str | None:
    return next((kind for suffix, kind in _READERS.items() if path.name.endswith(suffix)), None)


def _open(source: TextSource, cache: Path) -> Any:
    datasets = _datasets()
    if source.path:
        return datasets.load_dataset(
            source.path,
            source.config,
            split=source.split,
            revision=source.revision,
            streaming=True,
            cache_dir=str(cache),
        )
    files = local_files(source)
    return datasets.load_dataset(
        _kind(files[0]), data_files=[str(path) for path in files], split="train", streaming=True, cache_dir=str(cache)
    )


def _datasets() -> Any:
    """The library: it says nothing but that it tries again, and tells no server what is read."""
    try:
        import datasets
    except ImportError as error:
        raise UserError(
            "public text needs the package datasets", remedy="Install it: pip install 'scaling-study[data]'."
        ) from error
    datasets.config.HF_UPDATE_DOWNLOAD_COUNTS = False  # a request for every set that is opened, local ones included
    datasets.logging.set_verbosity(datasets.logging.CRITICAL)
    logging.getLogger("datasets.utils.file_utils").setLevel(logging.WARNING)
    return datasets


def _place(source: TextSource) -> str:
    return f"source {source.name!r} ({source.path or ', '.join(source.files)})"


@contextmanager
def _explained(source: TextSource) -> Iterator[None]:
    """One message for whatever the library raises: it passes on what its many readers do."""
    try:
        yield
    except UserError:
        raise
    except RowError as error:
        raise UserError(
            f"a row is not of the format {source.format.value!r}: {error}",
            where=_place(source),
            remedy="Choose the format that its rows have, or other text.",
        ) from error
    except Exception as error:
        raise UserError(
            f"it cannot be read: {_problem(error)}",
            where=_place(source),
            remedy=_remedy(source, error),
        ) from error


def _problem(error: Exception) -> str:
    if isinstance(error, StopIteration):
        return "there are no rows"  # so the library ends where it wants to see the first one
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _remedy(source: TextSource, error: Exception) -> str:
    if source.files:
        return "Mend or replace the file; of other files everything is prepared anew."
    if isinstance(error, FileNotFoundError | ValueError):
        return "Check path, config, split and revision."
    return "Check the network. What is prepared is kept: start again, and it goes on from there."
