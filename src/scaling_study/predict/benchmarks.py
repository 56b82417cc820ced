"""Kernels and collectives of the model against micro-benchmarks that it is not fitted on.

The tables are small and sourced (`config/calibration`): matmuls, additions and collectives. A short benchmark runs
faster than training does for hours under a power limit, so what is told is the ratio and its spread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl

from scaling_study.predict.batch import Array
from scaling_study.predict.kernels import device_of, matmul
from scaling_study.predict.library import Library
from scaling_study.predict.parameters import Constants
from scaling_study.predict.primitives import LARGE_MESSAGE, batch_of_part, primitive_seconds
from scaling_study.predict.setup import Part
from scaling_study.roofline import bus_factor
from scaling_study.spec import CollectiveOp


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Predicted over measured time of some rows: the median ratio, and the median distance from it, percent."""

    what: str
    rows: int
    ratio: float
    spread_percent: float


def compare(library: Library, constants: Callable[[str], Constants]) -> list[Comparison]:
    """Every table, by part and source."""
    found = [*_matmuls(library, constants), *_additions(library, constants), *_collectives(library, constants)]
    return sorted(found, key=lambda one: one.what)


def _compared(what: str, predicted: Array, measured: Array) -> Comparison:
    ratio = predicted / measured
    middle = float(np.median(ratio))
    spread = 100 * float(np.median(np.abs(ratio / middle - 1)))
    return Comparison(what=what, rows=len(ratio), ratio=middle, spread_percent=spread)


def _by_part(path: Path, library: Library, *keys: str) -> Iterator[tuple[tuple[Any, ...], Part, pl.DataFrame]]:
    table = pl.read_csv(path)
    for key, rows in sorted(table.group_by("part", *keys), key=lambda item: str(item[0])):
        part = library.part(str(key[0]))
        if part is not None:
            yield key, part, rows


def _matmuls(library: Library, constants: Callable[[str], Constants]) -> Iterator[Comparison]:
    for key, part, rows in _by_part(library.folder / "matmuls.csv", library, "source_id"):
        device = device_of(batch_of_part(part), constants(part.family))
        sizes = [rows[name].cast(pl.Float64).to_numpy() for name in ("m", "n", "k")]
        yield _compared(f"matmuls, {key[0]} ({key[1]})", matmul(device, *sizes), rows["time_ms"].to_numpy() / 1e3)


def _additions(library: Library, constants: Callable[[str], Constants]) -> Iterator[Comparison]:
    for key, part, rows in _by_part(library.folder / "memops.csv", library, "source_id"):
        device = device_of(batch_of_part(part), constants(part.family))
        seconds = rows["moved_bytes"].to_numpy() / device.memory
        yield _compared(f"additions, {key[0]} ({key[1]})", seconds, rows["time_ms"].to_numpy() / 1e3)


def call_ratios(
    library: Library, constants: Callable[[str], Constants], *, large: bool
) -> dict[str, list[tuple[str, float]]]:
    """Measured over predicted time of the tables' collectives with its source, by family of parts.

    Args:
        large: of messages from `LARGE_MESSAGE` bytes, or of smaller ones.
    """
    found: dict[str, list[tuple[str, float]]] = {}
    for key, part, predicted, measured, message in _called(library, constants):
        ratios = (measured / predicted)[(message >= LARGE_MESSAGE) == large].tolist()
        found.setdefault(part.family, []).extend((key[1], ratio) for ratio in ratios)
    return found


def _collectives(library: Library, constants: Callable[[str], Constants]) -> Iterator[Comparison]:
    for key, _, predicted, measured, message in _called(library, constants):
        for name, chosen in (("from 128 MiB", message >= LARGE_MESSAGE), ("below 128 MiB", message < LARGE_MESSAGE)):
            if chosen.any():
                what = f"{key[2]} {name}, {key[0]} ({key[1]})"
                yield _compared(what, predicted[chosen], measured[chosen])


def _called(
    library: Library, constants: Callable[[str], Constants]
) -> Iterator[tuple[tuple[Any, ...], Part, Array, Array, Array]]:
    """Part, source and op; then predicted and measured seconds, and message bytes; all GPUs of a node take part."""
    for key, part, rows in _by_part(library.folder / "collectives.csv", library, "source_id", "op"):
        op = CollectiveOp(key[2])
        nodes, ranks, message = (
            rows[name].cast(pl.Float64).fill_null(1.0).to_numpy() for name in ("nodes", "gpus", "message_bytes")
        )
        factors = np.array([bus_factor(op, int(count)) for count in ranks])
        measured = message * factors / (rows["bus_gb_per_s"].to_numpy() * 1e9)
        yield key, part, primitive_seconds(part, constants(part.family), op, nodes, ranks, message), measured, message
