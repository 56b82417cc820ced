"""Rows of a table: every one a setup or a reason, never a guess."""

import polars as pl
import pytest

from scaling_study.errors import UserError
from scaling_study.predict.rows import read_rows, setup_of
from scaling_study.predict.setup import Attention, Elementwise, Recompute, Setup, Sharding
from scaling_study.spec import Precision
from tests.unit.predict.setups import LIBRARY

TABLE = LIBRARY.folder / "runs.csv"
ROWS = read_rows(TABLE).to_dicts()
GOOD = {
    "source_id": "somebody", "gpu": "H100-SXM-80GB", "num_gpus": "16", "gpus_per_node": "8",
    "node_network_gb_per_s": "400.0", "framework": "torchtitan", "layers": "32", "hidden": "4096", "heads": "32",
    "kv_heads": "8", "ffn": "14336", "gated_mlp": "1", "tied_embeddings": "0", "rotary": "1", "linear_bias": "0",
    "dropout": "0", "vocab": "128256", "seq_len": "8192", "micro_batch": "2", "global_batch": "16", "tp": "2",
    "pp": "1", "virtual_pp": "1", "cp": "1", "dp": "8", "sharding": "zero3", "shard_group": None,
    "reshard_after_forward": "1", "activation_checkpointing": "selective_ops", "recomputed_block_fraction": None,
    "sequence_parallel": "1", "precision": "bf16", "reduce_bytes": "4", "attention": "flash2",
    "norm_kernels": "compiled", "tp_overlap": "0", "dp_overlap": "1", "assumed": None,
}  # fmt: skip


def test_a_row_means_what_its_columns_say():
    found = setup_of(GOOD, LIBRARY)
    assert isinstance(found, Setup)
    assert (found.dp, found.tp, found.gpus, found.microbatches) == (8, 2, 16, 1)
    assert found.decoder.kv_heads == 8
    assert found.part.name == "h100-80gb"
    assert found.power_limit_w == 700
    assert (found.sharding, found.shard_group, found.reshard_after_forward) == (Sharding.ZERO3, 8, True)
    assert (found.recompute, found.precision, found.reduce_bytes) == (Recompute.SELECTIVE_OPS, Precision.BF16, 4)
    stack = found.stack
    assert (stack.attention, stack.elementwise, stack.dtensor) == (Attention.FLASH2, Elementwise.COMPILED, True)
    assert stack.sequence_parallel
    assert stack.early_stop


def test_every_committed_row_is_a_setup():
    reasons = {found for row in ROWS if isinstance(found := setup_of(row, LIBRARY), str)}
    assert reasons == set()
    assert len(ROWS) > 1000


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tp": None}, "tp is missing"),
        ({"dp": ""}, "dp is missing"),
        ({"gpu": "H900"}, "unknown GPU 'H900'"),
        ({"num_gpus": "24"}, "dp*tp*pp*cp is 16, num_gpus is 24"),
        ({"tp": "3", "num_gpus": "24"}, "heads (32) is not divisible by tp (3)"),
        ({"global_batch": "17"}, "global_batch (17) is not divisible by dp*micro_batch (16)"),
        ({"hidden": "4100"}, "hidden (4100) is not divisible by heads (32)"),
        ({"micro_batch": "0"}, "micro_batch:"),
        ({"micro_batch": "two"}, "micro_batch:"),
        ({"layers": "-1"}, "layers:"),
        ({"precision": "fp8"}, "precision:"),
        ({"precision": "fp32"}, "16-bit"),
        ({"sharding": "zero9"}, "sharding:"),
        ({"sharding": "hsdp"}, "shard_group is missing"),
        ({"attention": "magic"}, "attention:"),
        ({"pp": "64", "dp": "1", "num_gpus": "128", "global_batch": "64"}, "do not fill"),
        ({"virtual_pp": "2"}, "virtual_pp above 1 needs pp above 1"),
        ({"activation_checkpointing": "fraction_of_blocks"}, "recomputed_block_fraction is missing"),
        ({"seq_len": "8191"}, "seq_len (8191) is not divisible by tp (2)"),
    ],
)
def test_a_bad_row_has_a_reason(changes, words):
    reason = setup_of({**GOOD, **changes}, LIBRARY)
    assert isinstance(reason, str)
    assert words in reason


def test_a_stated_network_replaces_an_assumed_one_only():
    row = {**GOOD, "source_id": "hagemann2023_layouts"}
    assert setup_of(row, LIBRARY).node_network_gb_per_s == 400
    assert setup_of({**row, "assumed": "network"}, LIBRARY).node_network_gb_per_s == 25


def test_traits_follow_the_stack():
    named = {
        name: setup_of({**GOOD, "framework": name}, LIBRARY).stack
        for name in ("Megatron-LM", "AA-Scaling (Megatron-like)", "other")
    }
    assert named["Megatron-LM"].tp_backward_overlap
    assert not named["AA-Scaling (Megatron-like)"].tp_backward_overlap
    assert named["AA-Scaling (Megatron-like)"].reduce_by_all_reduce
    assert named["other"].early_stop


def test_a_table_that_cannot_be_read(tmp_path):
    with pytest.raises(UserError, match="no such file or folder"):
        read_rows(tmp_path / "none.csv")


def test_the_committed_table_names_a_source_for_each_row():
    table = pl.read_csv(TABLE, infer_schema=False)
    assert table["source_id"].null_count() == 0
    assert table["source_id"].n_unique() == 8
