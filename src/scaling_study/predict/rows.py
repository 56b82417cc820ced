"""A row of a table of foreign runs (columns of `runs.csv`) into a `Setup`, or a reason why it is none.

Nothing is guessed: a cell that is missing, a name that is not known or numbers that exclude each other give a reason,
and the other rows go on.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
import polars as pl
from msgspec import Meta

from scaling_study.errors import UserError, explain_os_error
from scaling_study.predict.library import Library
from scaling_study.predict.setup import (
    Attention,
    Decoder,
    Elementwise,
    Recompute,
    Setup,
    Sharding,
    Stack,
)
from scaling_study.spec import Precision

Positive = Annotated[int, Meta(ge=1)]
Flag = Annotated[int, Meta(ge=0, le=1)]


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """The columns that describe a run, typed; others are ignored."""

    source_id: str = ""
    gpu: str
    power_limit_w: Annotated[float, Meta(gt=0)] | None = None
    num_gpus: Positive
    gpus_per_node: Positive
    node_network_gb_per_s: Annotated[float, Meta(gt=0)]
    framework: str = ""
    layers: Positive
    hidden: Positive
    heads: Positive
    kv_heads: Positive
    ffn: Positive
    gated_mlp: Flag
    tied_embeddings: Flag
    rotary: Flag
    linear_bias: Flag = 0
    dropout: Flag = 0
    vocab: Positive
    seq_len: Positive
    micro_batch: Positive
    global_batch: Positive
    tp: Positive
    pp: Positive
    virtual_pp: Positive = 1
    cp: Positive = 1
    dp: Positive
    sharding: Sharding
    shard_group: Positive | None = None
    reshard_after_forward: Flag = 0
    activation_checkpointing: Recompute
    recomputed_block_fraction: Annotated[float, Meta(ge=0, le=1)] | None = None
    sequence_parallel: Flag = 0
    precision: Precision
    reduce_bytes: Positive
    attention: Attention
    norm_kernels: Elementwise
    tp_overlap: Flag = 0
    dp_overlap: Flag = 0
    assumed: str = ""


_COLUMNS = set(Row.__struct_fields__)


def read_rows(path: Path) -> pl.DataFrame:
    """A table of runs, every cell as text; an empty cell is null.

    Raises:
        UserError: the file cannot be read or is no table.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise explain_os_error(error, where=str(path)) from error
    try:
        return pl.read_csv(content, infer_schema=False)
    except pl.exceptions.PolarsError as error:
        first = str(error).splitlines()[0]
        raise UserError(
            f"not a table of comma-separated values: {first}", where=str(path), remedy="Mend the file."
        ) from error


def setup_of(row: Mapping[str, Any], library: Library) -> Setup | str:
    """The setup of a row, or the reason why there is none."""
    given = {name: value for name, value in row.items() if name in _COLUMNS and value not in (None, "")}
    try:
        typed = msgspec.convert(given, Row, strict=False)
    except msgspec.ValidationError as error:
        return _reason(str(error))
    reason = _impossible(typed, library)
    return reason if reason else _setup(typed, library)


def _reason(message: str) -> str:
    """A message of msgspec in the words of a table."""
    what, _, where = message.partition(" - at `$.")
    if "missing required field" in what:
        return f"{what.split('`')[1]} is missing"
    return f"{where.rstrip('`')}: {what[:1].lower()}{what[1:]}" if where else message


def _impossible(row: Row, library: Library) -> str | None:
    """What excludes such a run, if anything does."""
    if library.part(row.gpu) is None:
        return f"unknown GPU {row.gpu!r}; known: {', '.join(library.part_names)}"
    if row.precision is Precision.FP32:
        return "the model knows 16-bit training only"
    ranks = row.dp * row.tp * row.pp * row.cp
    if ranks != row.num_gpus:
        return f"dp*tp*pp*cp is {ranks}, num_gpus is {row.num_gpus}"
    divisors = [
        ("hidden", row.hidden, "heads", row.heads),
        ("heads", row.heads, "kv_heads", row.kv_heads),
        ("heads", row.heads, "tp", row.tp),
        ("ffn", row.ffn, "tp", row.tp),
        ("seq_len", row.seq_len, "cp", row.cp),
        ("seq_len", row.seq_len, "tp", row.tp if row.sequence_parallel else 1),
        ("global_batch", row.global_batch, "dp*micro_batch", row.dp * row.micro_batch),
        ("dp", row.dp, "shard_group", row.shard_group or 1),
    ]
    for what, value, by, divisor in divisors:
        if value % divisor:
            return f"{what} ({value}) is not divisible by {by} ({divisor})"
    return _incomplete(row)


def _incomplete(row: Row) -> str | None:
    if row.layers < row.pp * row.virtual_pp:
        return f"{row.layers} layers do not fill pp*virtual_pp ({row.pp * row.virtual_pp}) stages"
    if row.virtual_pp > 1 and row.pp == 1:
        return "virtual_pp above 1 needs pp above 1"
    if row.sharding is Sharding.HSDP and row.shard_group is None:
        return "shard_group is missing; hsdp needs it"
    if row.activation_checkpointing is Recompute.FRACTION_OF_BLOCKS and row.recomputed_block_fraction is None:
        return "recomputed_block_fraction is missing; fraction_of_blocks needs it"
    return None


def _network(row: Row, library: Library) -> float:
    """The row's network, or the published one where the row says that its own is assumed."""
    known = library.networks.get(row.source_id)
    return known.node_network_gb_per_s if known and "network" in row.assumed else row.node_network_gb_per_s


def _setup(row: Row, library: Library) -> Setup:
    part = library.part(row.gpu)
    assert part is not None, "checked before"
    return Setup(
        decoder=Decoder(
            layers=row.layers,
            hidden=row.hidden,
            heads=row.heads,
            kv_heads=row.kv_heads,
            ffn=row.ffn,
            vocabulary=row.vocab,
            gated_mlp=bool(row.gated_mlp),
            tied_embeddings=bool(row.tied_embeddings),
            rotary=bool(row.rotary),
            linear_bias=bool(row.linear_bias),
            dropout=bool(row.dropout),
        ),
        stack=_stack(row, library),
        part=part,
        power_limit_w=row.power_limit_w or part.power_limit_w,
        gpus_per_node=row.gpus_per_node,
        node_network_gb_per_s=_network(row, library),
        dp=row.dp,
        tp=row.tp,
        pp=row.pp,
        cp=row.cp,
        virtual_stages=row.virtual_pp,
        micro_batch=row.micro_batch,
        global_batch=row.global_batch,
        sequence_length=row.seq_len,
        sharding=row.sharding,
        shard_group=row.shard_group or row.dp,
        reshard_after_forward=bool(row.reshard_after_forward),
        recompute=row.activation_checkpointing,
        recomputed_block_fraction=1.0 if row.recomputed_block_fraction is None else row.recomputed_block_fraction,
        precision=row.precision,
        reduce_bytes=row.reduce_bytes,
    )


def _stack(row: Row, library: Library) -> Stack:
    traits = msgspec.structs.asdict(library.traits(row.framework))
    traits["fused_pointwise"] &= row.norm_kernels is not Elementwise.EAGER
    return Stack(
        attention=row.attention,
        elementwise=row.norm_kernels,
        sequence_parallel=bool(row.sequence_parallel) and row.tp > 1,
        tp_overlap=bool(row.tp_overlap),
        dp_overlap=bool(row.dp_overlap),
        **traits,
    )
