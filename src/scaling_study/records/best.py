"""Choosing: the fastest `ok` record of a group stands for it, within one provenance."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from scaling_study.records.schema import LAYOUT
from scaling_study.spec import Outcome


def best_layouts(records: pl.DataFrame, by: Sequence[str] = LAYOUT) -> pl.DataFrame:
    """The record with most words per second of each group, `ok` ones only; ties go to the first run id.

    By default a layout stands for its fastest micro-batch, and nothing else is mixed.

    Args:
        records: rows of `SCHEMA`.
        by: columns of a group; `provenance` is always one of them.
    """
    group = ["provenance", *(name for name in by if name != "provenance")]
    return (
        records.filter(pl.col("outcome") == Outcome.OK)
        .sort(pl.col("words_per_second").fill_nan(None), "run_id", descending=[True, False], nulls_last=True)
        .unique(group, keep="first", maintain_order=True)
        .sort(*group)
    )
