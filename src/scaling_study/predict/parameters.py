"""The physical constants of the model: what each means, what is known about it before any training run is seen.

A constant has a prior (data sheets, micro-benchmarks, papers, NCCL's source), and the calibration moves it only as far
as measured training runs ask for. Most are properties of software or of physics that all parts share; the others are
of a family of parts and have a prior of their own there.
"""

from __future__ import annotations

import msgspec


class Constants(msgspec.Struct, frozen=True, kw_only=True):
    """One value of every constant; `KNOBS` says what each is."""

    matmul_rate: float
    matmul_quantisation: float
    matmul_prologue: float
    memory_rate: float
    power_exponent: float
    flash_rate: float
    flash_backward: float
    flash_ramp_tokens: float
    flash_head_overhead: float
    flash1_forward: float
    flash1_backward: float
    cudnn_speedup: float
    score_matmul_rate: float
    softmax_bytes: float
    eager_bytes: float
    rotary_bytes: float
    logit_bytes: float
    optimizer_bytes: float
    launch_us: float
    collective_launch_us: float
    dtensor_launch_us: float
    unit_launch_us: float
    overlap_sharpness: float
    ring_rate: float
    network_rate: float
    collective_start_us: float
    link_latency: float
    network_latency: float
    tp_backward_exposed: float
    dtensor_exposed: float
    async_exposed: float
    overlap_slowdown: float
    message_cost: float
    stage_sync_us: float
    stage_jitter: float
    step_ms: float
    scale_jitter: float


class Knob(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about a constant beforehand.

    Attributes:
        value: the prior's median.
        spread: standard deviation of its logarithm.
        unit: of the value; empty for a ratio.
        meaning: one sentence.
        source: of the prior.
        by_family: medians that differ for a family of parts; such a constant is fitted for each family by itself.
    """

    value: float
    spread: float
    unit: str = ""
    meaning: str
    source: str
    by_family: dict[str, float] = {}


_NCCL = "NVIDIA/nccl src/graph/tuning.cc"
_FLASH2 = "Dao 2023, FlashAttention-2 (arXiv:2307.08691), figures 4 to 7 and section 4"
_OPS = "counted operators of public implementations at 2 bytes an element"
_MEMOPS = "memops.csv (vidur_mlp)"
_GEMM = "gemm.csv (vidur_mlp, xla_sm90_matmul)"
_EAGER = "typical cost of an eager PyTorch operator with autograd"

KNOBS: dict[str, Knob] = {
    "matmul_rate": Knob(
        value=0.75,
        spread=0.05,
        meaning="sustained share of the dense peak that large matmuls reach in training",
        source=f"{_GEMM}: 0.76 (A100), 0.75 (H100) in short bursts; less under the H100's power limit",
        by_family={"a100": 0.75, "h100": 0.65, "v100": 0.72, "h200": 0.65},
    ),
    "matmul_quantisation": Knob(
        value=0.31, spread=0.05, meaning="how much of a partly filled last wave of tiles is paid", source=_GEMM
    ),
    "matmul_prologue": Knob(
        value=104, spread=0.05, unit="elements of k", meaning="a tile's start and end, as extra depth", source=_GEMM
    ),
    "memory_rate": Knob(
        value=0.83, spread=0.06, meaning="share of memory bandwidth that element-wise kernels reach", source=_MEMOPS
    ),
    "power_exponent": Knob(
        value=0.4,
        spread=0.3,
        meaning="compute rate goes with (power limit / default limit) to this power",
        source="dynamic power is about cubic in the clock, with a static share",
    ),
    "flash_rate": Knob(
        value=0.62,
        spread=0.1,
        meaning="share of peak of FlashAttention-2's forward pass on long sequences",
        source=_FLASH2,
        by_family={"a100": 0.62, "h100": 0.35, "v100": 0.4, "h200": 0.35},
    ),
    "flash_backward": Knob(
        value=0.88, spread=0.1, meaning="rate of the backward pass over the forward's", source=_FLASH2
    ),
    "flash_ramp_tokens": Knob(
        value=500,
        spread=0.4,
        unit="tokens",
        meaning="sequence at which flash attention reaches half its rate",
        source=_FLASH2,
    ),
    "flash_head_overhead": Knob(
        value=15,
        spread=0.4,
        unit="elements",
        meaning="exponentials of a score, as extra head dimension",
        source=_FLASH2,
    ),
    "flash1_forward": Knob(
        value=0.62, spread=0.15, meaning="rate of FlashAttention-1 over FlashAttention-2, forward", source=_FLASH2
    ),
    "flash1_backward": Knob(
        value=0.58, spread=0.15, meaning="rate of FlashAttention-1 over FlashAttention-2, backward", source=_FLASH2
    ),
    "cudnn_speedup": Knob(
        value=1.5,
        spread=0.2,
        meaning="rate of cuDNN's fused attention over FlashAttention-2 on Hopper",
        source="Shah et al. 2024, FlashAttention-3 (arXiv:2407.08608), figure 5",
    ),
    "score_matmul_rate": Knob(
        value=0.55,
        spread=0.25,
        meaning="rate of the batched matmuls of un-fused attention over large matmuls'",
        source="depth of one head (64 to 128) against a prologue of about 100",
    ),
    "softmax_bytes": Knob(
        value=1.0,
        spread=0.15,
        meaning="bytes of un-fused attention's passes over the scores, over those counted",
        source=_OPS,
    ),
    "eager_bytes": Knob(
        value=1.0,
        spread=0.2,
        meaning="bytes of eager norms over those counted (36 forward, 60 backward an element)",
        source=_OPS,
    ),
    "rotary_bytes": Knob(
        value=60,
        spread=0.3,
        unit="bytes",
        meaning="of eager rotary embedding, an element of query or key and pass",
        source=_OPS,
    ),
    "logit_bytes": Knob(
        value=1.3,
        spread=0.25,
        meaning="bytes of the loss over those counted (6 forward, 10 backward a logit)",
        source=_OPS,
    ),
    "optimizer_bytes": Knob(
        value=34,
        spread=0.15,
        unit="bytes",
        meaning="moved by AdamW, norm and copies, a parameter",
        source="fp32 master, two moments, gradient: 16 read, 14 written, 4 for the norm",
    ),
    "launch_us": Knob(
        value=17,
        spread=0.3,
        unit="us",
        meaning="host time of one operator, forward or backward",
        source=f"{_EAGER}; by single-thread speed of the hosts of DGX-1V, DGX A100 and DGX H100",
        by_family={"a100": 17, "h100": 12, "v100": 20, "h200": 12},
    ),
    "collective_launch_us": Knob(
        value=60, spread=0.4, unit="us", meaning="host time of one collective", source="c10d and NCCL enqueue"
    ),
    "dtensor_launch_us": Knob(
        value=600,
        spread=0.4,
        unit="us",
        meaning="host time that DTensor adds to a block and pass that is not compiled",
        source="redistribution and dispatch in Python",
    ),
    "unit_launch_us": Knob(
        value=300, spread=0.4, unit="us", meaning="host time of FSDP's hooks, a unit and pass", source="hooks in Python"
    ),
    "overlap_sharpness": Knob(
        value=3.5,
        spread=0.15,
        meaning="exponent that joins host and device time: high where one hides the other wholly",
        source="our choice: 22% above the larger where both are equal",
    ),
    "ring_rate": Knob(
        value=0.8,
        spread=0.04,
        meaning="bus bandwidth of a ring inside a node over one direction of its links",
        source="collectives.csv (nvidia_gtc24_s62129_slide12: 122, 232, 370 GB/s; nccl_issue_1047)",
        by_family={"a100": 0.767, "h100": 0.8, "v100": 0.82, "h200": 0.8},
    ),
    "network_rate": Knob(
        value=0.85,
        spread=0.08,
        meaning="share of a node's injection bandwidth that collectives reach",
        source="collectives.csv (nvidia_gtc24_s62129_slide12: 192 of 200, 380 of 400; nccl_issue_1229: 260 to 360)",
    ),
    "collective_start_us": Knob(
        value=45,
        spread=0.25,
        unit="us",
        meaning="until a collective's pipeline of chunks is full, beyond NCCL's model",
        source="collectives.csv (vidur_a100_dgx, vidur_h100_dgx, stas00_h200_1node; 16 to 128 MiB)",
    ),
    "link_latency": Knob(
        value=1.0, spread=0.2, meaning="latency of a hop inside a node over NCCL's model", source=_NCCL
    ),
    "network_latency": Knob(
        value=1.0, spread=0.4, meaning="latency of a hop between nodes over NCCL's model", source=_NCCL
    ),
    "tp_backward_exposed": Knob(
        value=0.5,
        spread=0.3,
        meaning="of the backward all-reduce that runs beside a weight gradient, what is not hidden",
        source="it runs on streaming multiprocessors that the matmul then lacks",
    ),
    "dtensor_exposed": Knob(
        value=1.4,
        spread=0.25,
        meaning="time of a tensor-parallel collective through DTensor over NCCL's",
        source="copies around the collective",
    ),
    "async_exposed": Knob(
        value=0.6,
        spread=0.3,
        meaning="of asynchronous tensor parallelism's communication, what is not hidden, over NCCL's",
        source="decomposed into as many pieces as ranks; the first is exposed",
    ),
    "overlap_slowdown": Knob(
        value=0.3,
        spread=0.6,
        meaning="slowdown of computation, as a share of the communication that runs beside it",
        source="NCCL occupies multiprocessors and memory bandwidth",
        by_family={"a100": 0.3, "h100": 0.3, "v100": 0.3, "h200": 0.3},
    ),
    "message_cost": Knob(
        value=1.0,
        spread=0.2,
        meaning="time of a message between stages over its bytes by the network's rate",
        source="definition",
    ),
    "stage_sync_us": Knob(
        value=400,
        spread=0.7,
        unit="us",
        meaning="host and device synchronised around the messages of a micro-batch",
        source="batched point-to-point calls that wait on the host",
    ),
    "stage_jitter": Knob(
        value=0.01,
        spread=0.8,
        meaning="stages of a pipeline wait for the slowest one of each micro-batch",
        source="our estimate",
    ),
    "step_ms": Knob(
        value=10,
        spread=0.5,
        unit="ms",
        meaning="of an iteration that does not depend on its size",
        source="data, logging, clearing gradients, norm",
    ),
    "scale_jitter": Knob(
        value=0.003,
        spread=0.8,
        meaning="slowdown for each doubling of the GPUs beyond one node",
        source="arrival skew; our estimate",
    ),
}


def prior(family: str) -> Constants:
    """The constants of a family before any training run is seen."""
    return Constants(**{name: knob.by_family.get(family, knob.value) for name, knob in KNOBS.items()})
