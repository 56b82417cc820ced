"""Collectives of device timelines: how long calls of one kind and size take, and how long ranks wait for each other."""

from __future__ import annotations

import polars as pl

from scaling_study.spec import SpanKind


def by_collective(device: pl.DataFrame) -> pl.DataFrame:
    """Calls by what they do, their bytes and the ranks of their group.

    Args:
        device: the columns of `DEVICE_SCHEMA`, of any ranks.

    Returns:
        Columns `op`, `axis`, `bytes`, `group_ranks`, `calls`, `total_ns`, `median_ns`, `least_ns`; largest total first.
        The duration of a call on one rank holds the wait for later ranks: the least is the nearest to the transfer.
    """
    length = pl.col("end_ns") - pl.col("start_ns")
    return (
        device.filter(pl.col("kind") == SpanKind.COMMUNICATION)
        .group_by("op", "axis", "bytes", "group_ranks")
        .agg(
            calls=pl.len(),
            total_ns=length.sum(),
            median_ns=length.median().round().cast(pl.Int64),
            least_ns=length.min(),
        )
        .sort("total_ns", "op", "bytes", descending=[True, False, False], nulls_last=True)
    )


def waits(device: pl.DataFrame) -> pl.DataFrame:
    """How long each rank waits in collectives for the last of its group.

    All ranks of a collective leave it together, so a rank that enters it earlier stays longer: what it waited is its
    duration less that of the rank with the shortest. That needs no common clock. Calls are matched by group, operation
    and their place in the group's sequence on each rank; of a group whose ranks do not show equally many calls, the
    calls that all of them show are taken, from the last one back.

    Args:
        device: the columns of `DEVICE_SCHEMA`, of several ranks of one run; point-to-point transfers do not count.

    Returns:
        Columns `rank`, `group`, `calls`, `waited_ns`, `last_share`: the share of calls that waited for this rank.
    """
    calls = device.filter(
        (pl.col("kind") == SpanKind.COMMUNICATION) & pl.col("group").is_not_null() & (pl.col("op") != "send_recv")
    )
    numbered = calls.sort("rank", "start_ns", "end_ns").with_columns(
        length=pl.col("end_ns") - pl.col("start_ns"),
        back=pl.int_range(pl.len()).reverse().over("rank", "group", "op"),
    )
    matched = numbered.with_columns(
        ranks=pl.col("rank").n_unique().over("group"),
        found=pl.len().over("group", "op", "back"),
        shortest=pl.col("length").min().over("group", "op", "back"),
    ).filter((pl.col("found") == pl.col("ranks")) & (pl.col("ranks") > 1))
    return (
        matched.group_by("rank", "group")
        .agg(
            calls=pl.len(),
            waited_ns=(pl.col("length") - pl.col("shortest")).sum(),
            last_share=(pl.col("length") == pl.col("shortest")).mean(),
        )
        .sort("group", "rank")
    )
