"""From a data set's definition to its token file: `<name>.bin`, `<name>.tokenizer.json`, and last `<name>.json`.

A synthetic data set is small and made at once. Public text is streamed, encoded in parts beside the token file (in
`<name>.parts`), and put together at the end; a preparation that was stopped goes on behind its last whole part and
ends with the same bytes. At no time is more than a part in memory.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from scaling_study.errors import write_atomically
from scaling_study.spec import Dataset, DataSource, SourceCount, TokenManifest
from scaling_study.training.corpus import generate_documents
from scaling_study.training.documents import FORMAT_VERSION
from scaling_study.training.mixture import Given, Mixture
from scaling_study.training.parts import Definition, Parts, discard
from scaling_study.training.sources import TextStream, local_files
from scaling_study.training.vocabulary import encode, train_vocabulary

Say = Callable[[str], None]

#: 32 MiB, and at most as many tokens are lost where a preparation is stopped.
PART_TOKENS = 1 << 24
#: As much is encoded at once, on all cores.
BATCH_TOKENS = 1 << 21
SAY_EVERY_S = 5.0


def prepare(dataset: Dataset, folder: Path, say: Say = lambda _: None) -> TokenManifest:
    """Write the token file, the vocabulary and the manifest of a data set into a folder.

    Args:
        dataset: what to prepare.
        folder: where.
        say: is told what goes on, a line every few seconds at most.

    Raises:
        UserError: the documents cannot be had, are too few, or the folder cannot be written.
    """
    if dataset.source is DataSource.SYNTHETIC:
        return _prepare_synthetic(dataset, folder, say)
    if dataset.source is DataSource.RANDOM:
        return _prepare_random(dataset, folder)
    return _prepare_text(dataset, folder, say)


def _prepare_synthetic(dataset: Dataset, folder: Path, say: Say) -> TokenManifest:
    say(f"writing {dataset.documents:,} documents")
    documents = list(generate_documents(dataset))
    say(f"training a vocabulary of {dataset.vocabulary:,} tokens")
    tokenizer = train_vocabulary(
        documents, dataset.vocabulary, where=_where(dataset), remedy="Raise documents or words."
    )
    say("encoding")
    content = np.concatenate(encode(tokenizer, documents)).tobytes()
    write_atomically(_path(dataset, folder, "tokenizer.json"), tokenizer.to_str().encode())
    write_atomically(_path(dataset, folder, "bin"), content)
    return _write_manifest(
        folder, TokenManifest(dataset=dataset, tokens=len(content) // 2, sha256=hashlib.sha256(content).hexdigest())
    )


def _prepare_random(dataset: Dataset, folder: Path) -> TokenManifest:
    """Tokens of a seeded generator (PCG64); there is no vocabulary, and the file of it says so."""
    drawn = np.random.default_rng(dataset.seed).integers(dataset.vocabulary, size=dataset.tokens, dtype=np.uint16)
    content = drawn.tobytes()
    write_atomically(_path(dataset, folder, "tokenizer.json"), b"null\n")
    write_atomically(_path(dataset, folder, "bin"), content)
    return _write_manifest(
        folder, TokenManifest(dataset=dataset, tokens=len(drawn), sha256=hashlib.sha256(content).hexdigest())
    )


def _prepare_text(dataset: Dataset, folder: Path, say: Say) -> TokenManifest:
    place = folder / f"{dataset.name}.parts"
    files = _local_files(dataset)
    manifest = _prepared(dataset, files, folder)
    if manifest:
        say("prepared already")
    else:
        parts = Parts(place, Definition(dataset=dataset, files=files, made_with=_made_with()))
        tokenizer = parts.tokenizer() or _train(dataset, parts, say)
        _encode(dataset, parts, tokenizer, say)
        manifest = _finish(dataset, files, parts, tokenizer, folder)
    discard(place)
    return manifest


def _made_with() -> dict[str, str]:
    """Versions of what turns rows into tokens: parts of several are not mixed."""
    return {name: version(name) for name in ("datasets", "tokenizers")} | {"documents": str(FORMAT_VERSION)}


def _prepared(dataset: Dataset, files: dict[str, tuple[int, int]], folder: Path) -> TokenManifest | None:
    """The manifest, if everything that it describes is there and is of today's definition and files."""
    try:
        manifest = msgspec.json.decode(_path(dataset, folder, "json").read_bytes(), type=TokenManifest)
        if (manifest.dataset, manifest.files) != (dataset, files) or not _path(
            dataset, folder, "tokenizer.json"
        ).exists():
            return None
        with _path(dataset, folder, "bin").open("rb") as tokens:
            sha256 = hashlib.file_digest(tokens, "sha256").hexdigest()
    except (OSError, msgspec.DecodeError):
        return None
    return manifest if manifest.sha256 == sha256 else None


def _local_files(dataset: Dataset) -> dict[str, tuple[int, int]]:
    paths = [path for source in dataset.sources for path in local_files(source)]
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in paths}


def _mixture(dataset: Dataset, cache: Path, given: Mapping[str, Given]) -> Mixture:
    """The documents of a data set behind those that are given."""
    streams = {
        source.name: TextStream(source, dataset.seed, cache, given.get(source.name, Given()).position)
        for source in dataset.sources
    }
    return Mixture(streams, {source.name: source.weight for source in dataset.sources}, given, _where(dataset))


def _train(dataset: Dataset, parts: Parts, say: Say) -> Any:
    """The vocabulary, trained on the first documents of the mixture, and kept."""
    wanted = dataset.vocabulary_documents or 0
    say(f"training a vocabulary of {dataset.vocabulary:,} tokens on {wanted:,} documents")
    mixture, progress = _mixture(dataset, parts.cache, {}), Progress(say)

    def documents() -> Iterator[str]:
        for number in range(wanted):
            yield mixture.next_document()[1]
            progress(partial("{:,} of {:,} documents read".format, number + 1, wanted))

    tokenizer = train_vocabulary(
        documents(), dataset.vocabulary, where=_where(dataset), remedy="Raise vocabulary_documents."
    )
    parts.keep_tokenizer(tokenizer)
    return tokenizer


def _encode(dataset: Dataset, parts: Parts, tokenizer: Any, say: Say) -> None:
    """Add parts until all tokens are there; the last document is cut where they are."""
    wanted, there = dataset.tokens or 0, parts.tokens
    say(f"encoding {wanted:,} tokens" + (f"; {there:,} are there already" if there else ""))
    if there == wanted:
        return
    mixture, progress, began = _mixture(dataset, parts.cache, parts.given), Progress(say), time.monotonic()
    tokens = {name: given.tokens for name, given in parts.given.items()}
    while parts.tokens < wanted:
        part: list[Any] = []
        size, left = 0, wanted - parts.tokens
        while size < min(PART_TOKENS, left):
            batch = mixture.take(min(BATCH_TOKENS, PART_TOKENS - size, left - size))
            for (name, _), encoded in zip(batch, encode(tokenizer, [text for _, text in batch]), strict=True):
                part.append(encoded[: left - size])
                size += len(part[-1])
                tokens[name] = tokens.get(name, 0) + len(part[-1])
            progress(partial(_rate, parts.tokens + size, wanted, there, began))
        parts.add(np.concatenate(part), mixture.given(tokens))


def _rate(done: int, wanted: int, there: int, began: float) -> str:
    per_second = (done - there) / max(time.monotonic() - began, 1e-9)
    return f"{done:,} of {wanted:,} tokens ({done / wanted:.1%}), {per_second:,.0f} a second"


def _finish(
    dataset: Dataset, files: dict[str, tuple[int, int]], parts: Parts, tokenizer: Any, folder: Path
) -> TokenManifest:
    sha256 = parts.join(_path(dataset, folder, "bin"))
    write_atomically(_path(dataset, folder, "tokenizer.json"), tokenizer.to_str().encode())
    sources = {name: SourceCount(documents=given.documents, tokens=given.tokens) for name, given in parts.given.items()}
    manifest = TokenManifest(dataset=dataset, tokens=parts.tokens, sha256=sha256, sources=sources, files=files)
    return _write_manifest(folder, manifest)


def _write_manifest(folder: Path, manifest: TokenManifest) -> TokenManifest:
    """The manifest comes last: without it nothing is prepared."""
    path = _path(manifest.dataset, folder, "json")
    write_atomically(path, msgspec.json.format(msgspec.json.encode(manifest)))
    return manifest


def _path(dataset: Dataset, folder: Path, suffix: str) -> Path:
    return folder / f"{dataset.name}.{suffix}"


def _where(dataset: Dataset) -> str:
    return f"data set {dataset.name}"


class Progress:
    """Says a line, but not sooner than some seconds after the last."""

    def __init__(self, say: Say, clock: Callable[[], float] = time.monotonic) -> None:
        self._say, self._clock = say, clock
        self._last_s = clock()

    def __call__(self, line: Callable[[], str]) -> None:
        """Say it, if it is time; otherwise the line is not even made."""
        if self._clock() - self._last_s >= SAY_EVERY_S:
            self._say(line())
            self._last_s = self._clock()
