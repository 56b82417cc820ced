"""Setups that several tests are about."""

from scaling_study.predict.batch import batch_of
from scaling_study.predict.library import Library
from scaling_study.predict.setup import Attention, Decoder, Elementwise, Part, Setup, Sharding, Stack
from tests.unit.samples import CONFIG

LIBRARY = Library(CONFIG.root)

A100 = LIBRARY.part("A100-SXM-80GB")
H100 = LIBRARY.part("H100-SXM-80GB")
ROUND = Part(
    name="round",
    family="a100",
    memory_gib=100,
    memory_gb_per_s=1000,
    peak_tflops=100,
    multiprocessors=100,
    link_gb_per_s=200,
    network_gb_per_s=100,
    power_limit_w=100,
)

LLAMA_7B = Decoder(layers=32, hidden=4096, heads=32, kv_heads=32, ffn=11008, vocabulary=32000)

PLAIN = Stack(
    attention=Attention.FLASH2,
    elementwise=Elementwise.FUSED,
    sequence_parallel=False,
    tp_overlap=False,
    dp_overlap=False,
    dtensor=False,
)


def setup(**fields):
    """7B on eight A100s of one node, replicated data parallelism, one micro-batch of one sequence."""
    stack = {name: fields.pop(name) for name in list(fields) if name in Stack.__struct_fields__}
    defaults = {
        "decoder": LLAMA_7B,
        "part": A100,
        "power_limit_w": 400,
        "gpus_per_node": 8,
        "node_network_gb_per_s": 200,
        "dp": 8,
        "micro_batch": 1,
        "global_batch": 8,
        "sequence_length": 2048,
        "sharding": Sharding.NONE,
        "shard_group": fields.get("dp", 8),
    }
    plain = {name: getattr(PLAIN, name) for name in Stack.__struct_fields__}
    return Setup(stack=Stack(**{**plain, **stack}), **{**defaults, **fields})


def one(**fields):
    """The same as a batch of one."""
    return batch_of([setup(**fields)])
