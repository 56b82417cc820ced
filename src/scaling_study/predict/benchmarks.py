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

from scaling_study.predict.batch import Array, Batch, batch_of
from scaling_study.predict.collectives import Group, all_gather, all_reduce, fabric_of
from scaling_study.predict.kernels import device_of, matmul
from scaling_study.predict.library import Library
from scaling_study.predict.parameters import Constants
from scaling_study.predict.setup import Attention, Decoder, Elementwise, Part, Setup, Sharding, Stack
from scaling_study.roofline import bus_factor
from scaling_study.spec import CollectiveOp

_LARGE = 128 * 2**20  # bytes from which a collective is bound by bandwidth


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


def _batch(part: Part) -> Batch:
    """A setup of no more interest than its part."""
    stack = Stack(
        attention=Attention.FLASH2,
        elementwise=Elementwise.FUSED,
        sequence_parallel=False,
        tp_overlap=False,
        dp_overlap=False,
        dtensor=False,
    )
    setup = Setup(
        decoder=Decoder(layers=1, hidden=128, heads=1, kv_heads=1, ffn=128, vocabulary=128),
        stack=stack,
        part=part,
        power_limit_w=part.power_limit_w,
        gpus_per_node=8,
        node_network_gb_per_s=part.network_gb_per_s,
        dp=1,
        micro_batch=1,
        global_batch=1,
        sequence_length=128,
        sharding=Sharding.NONE,
        shard_group=1,
    )
    return batch_of([setup])


def _by_part(path: Path, library: Library, *keys: str) -> Iterator[tuple[tuple[Any, ...], Part, pl.DataFrame]]:
    table = pl.read_csv(path)
    for key, rows in sorted(table.group_by("part", *keys), key=lambda item: str(item[0])):
        part = library.part(str(key[0]))
        if part is not None:
            yield key, part, rows


def _matmuls(library: Library, constants: Callable[[str], Constants]) -> Iterator[Comparison]:
    for key, part, rows in _by_part(library.folder / "matmuls.csv", library, "source_id"):
        device = device_of(_batch(part), constants(part.family))
        sizes = [rows[name].cast(pl.Float64).to_numpy() for name in ("m", "n", "k")]
        yield _compared(f"matmuls, {key[0]} ({key[1]})", matmul(device, *sizes), rows["time_ms"].to_numpy() / 1e3)


def _additions(library: Library, constants: Callable[[str], Constants]) -> Iterator[Comparison]:
    for key, part, rows in _by_part(library.folder / "memops.csv", library, "source_id"):
        device = device_of(_batch(part), constants(part.family))
        seconds = rows["moved_bytes"].to_numpy() / device.memory
        yield _compared(f"additions, {key[0]} ({key[1]})", seconds, rows["time_ms"].to_numpy() / 1e3)


def _collectives(library: Library, constants: Callable[[str], Constants]) -> Iterator[Comparison]:
    for key, part, rows in _by_part(library.folder / "collectives.csv", library, "source_id", "op"):
        op = CollectiveOp(key[2])
        predicted = collective_seconds(part, constants(part.family), op, rows)
        factors = np.array([bus_factor(op, ranks) for ranks in rows["gpus"]])
        message = rows["message_bytes"].cast(pl.Float64).to_numpy()
        measured = message * factors / (rows["bus_gb_per_s"].to_numpy() * 1e9)
        for name, chosen in (("from 128 MiB", message >= _LARGE), ("below 128 MiB", message < _LARGE)):
            if chosen.any():
                what = f"{op.value} {name}, {key[0]} ({key[1]})"
                yield _compared(what, predicted[chosen], measured[chosen])


def collective_seconds(part: Part, constants: Constants, op: CollectiveOp, rows: pl.DataFrame) -> Array:
    """Predicted seconds of rows with `nodes`, `gpus` and `message_bytes`; all GPUs of each node take part."""
    nodes = rows["nodes"].cast(pl.Float64).fill_null(1.0).to_numpy()
    ranks = rows["gpus"].cast(pl.Float64).to_numpy()
    group = Group(
        ranks=ranks, per_node=ranks / nodes, network_bytes_per_s=np.full(len(ranks), part.network_gb_per_s * 1e9)
    )
    run = all_reduce if op is CollectiveOp.ALL_REDUCE else all_gather
    fabric = fabric_of(_batch(part), constants, part.family)
    return run(fabric, group, rows["message_bytes"].cast(pl.Float64).to_numpy())
