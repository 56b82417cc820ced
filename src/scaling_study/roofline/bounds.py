"""The least time of a layer and of an iteration of a run: by compute, memory, communication and overhead.

Each bound stands alone: what overlaps perfectly still takes as long as the longest of them, and that one names the
regime. They hold for a mean rank, and leave out what a pipeline waits and what activations move.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from scaling_study.roofline.links import Load, group_of, load_of
from scaling_study.roofline.network import Network, network_of
from scaling_study.roofline.peaks import memory_bytes_per_s, peak_flops
from scaling_study.spec import Axis, CollectiveOp, Hardware, Model, NumberFormat, Regime, TrainingRun

#: What may stay on the chip from one pass to the next: caches, registers and shared memory of the largest part here
#: (H100: 50 MB of L2, 132 multiprocessors with 256 KB of each), rounded up.
ON_CHIP_BYTES = 128e6
#: AdamW reads and writes an fp32 weight and two fp32 moments a parameter.
OPTIMIZER_BYTES = 2 * (4 + 4 + 4)
#: Kernels of a block that is not fused. Forward: 7 matmuls, attention, 2 norms, 2 rotary embeddings, 2 of SwiGLU, 2
#: additions. Backward: 14 matmuls, attention, 2 norms, 2 rotary embeddings, 4 of SwiGLU and of additions.
FORWARD_KERNELS, BACKWARD_KERNELS = 16, 23
#: Between two launches of one thread, where nothing better is known (CR's example of a starved GPU).
LAUNCH_INTERVAL_S = 10e-6


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """A time that cannot be beaten, and how it comes about; None, and why, where a number is not published."""

    regime: Regime
    seconds: float | None
    arithmetic: str


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of one thing."""

    what: str
    bounds: tuple[Bound, ...]

    @property
    def longest(self) -> Bound | None:
        """The bound that limits; None where nothing is known."""
        return max(self._known(), key=lambda one: one.seconds or 0.0, default=None)

    @property
    def hardest_s(self) -> float | None:
        """The longest of those that no software shortens: launches can be fused or captured, the others cannot."""
        return max((one.seconds or 0.0 for one in self._known() if one.regime is not Regime.OVERHEAD), default=None)

    def _known(self) -> list[Bound]:
        return [one for one in self.bounds if one.seconds is not None]


def bounds_of_layer(
    run: TrainingRun, model: Model, hardware: Hardware, *, launch_interval_s: float = LAUNCH_INTERVAL_S
) -> list[Bounds]:
    """Forward and backward of one block on one rank, over all micro-batches of an iteration."""
    network, count = network_of(model), run.microbatches
    number_format, tokens = NumberFormat(run.precision.value), run.local_batch * run.sequence_length
    weights = network.blocks / network.layers / run.tp
    attention = 2 * network.hidden * run.sequence_length / run.tp
    tensor = _tensor_load(run, network, hardware).times(count)
    found = []
    for what, work, kernels, sharded in zip(
        ("layer, forward", "layer, backward"),
        (1, 2),
        (FORWARD_KERNELS, BACKWARD_KERNELS),
        _parameter_loads(weights, run, hardware),
        strict=True,
    ):
        flops = work * tokens * (2 * weights + attention)
        traffic = count * work * weights * number_format.element_bytes  # backward writes a gradient of each weight too
        bounds = (
            compute_bound(flops, number_format, hardware),
            memory_bound(traffic, hardware),
            _communication({Axis.TENSOR: tensor, Axis.DATA: sharded}, hardware),
            _overhead(count * kernels, launch_interval_s),
        )
        found.append(Bounds(what=what, bounds=bounds))
    return found


def bounds_of_iteration(
    run: TrainingRun, model: Model, hardware: Hardware, *, launch_interval_s: float = LAUNCH_INTERVAL_S
) -> Bounds:
    """An iteration on a mean rank."""
    flops = network_of(model).training_flops(run.sequence_length) * run.tokens_per_iteration / run.ranks
    kernels = (FORWARD_KERNELS + BACKWARD_KERNELS) * model.layers / run.pp * run.microbatches
    bounds = (
        compute_bound(flops, NumberFormat(run.precision.value), hardware),
        memory_bound(least_traffic(run, model), hardware),
        _communication(loads_of_iteration(run, model, hardware), hardware),
        _overhead(round(kernels), launch_interval_s),
    )
    return Bounds(what="iteration", bounds=bounds)


def least_traffic(run: TrainingRun, model: Model) -> float:
    """Bytes that one rank's memory must move in an iteration: its share of the optimizer, and weights pass by pass.

    Every micro-batch reads a stage's weights forward and backward; what may stay on the chip is not counted.
    """
    network = network_of(model)
    optimizer = OPTIMIZER_BYTES * model.parameters / run.ranks
    weights = network.multiplied / (run.tp * run.pp) * run.precision.element_bytes
    passes = 2 * run.microbatches
    return max(0.0, optimizer - ON_CHIP_BYTES) + passes * max(0.0, weights - ON_CHIP_BYTES)


def loads_of_iteration(run: TrainingRun, model: Model, hardware: Hardware) -> dict[Axis, Load]:
    """What must pass links in an iteration, by parallel axis; nothing where an axis has one rank."""
    network = network_of(model)
    gather, scatter = _parameter_loads(network.multiplied / (run.tp * run.pp), run, hardware)
    message = run.micro_batch * run.sequence_length * model.hidden * run.precision.element_bytes / run.tp
    stage = load_of(CollectiveOp.SEND_RECV, group_of(Axis.PIPELINE, run, hardware), message)
    passes = 2 * model.layers / run.pp * run.microbatches
    return {
        Axis.DATA: gather + scatter,
        Axis.TENSOR: _tensor_load(run, network, hardware).times(passes),
        Axis.PIPELINE: stage.times(run.microbatches),
    }


def _parameter_loads(weights: float, run: TrainingRun, hardware: Hardware) -> tuple[Load, Load]:
    """Gathering weights, and scattering their gradients, over the data-parallel ranks."""
    group = group_of(Axis.DATA, run, hardware)
    gather = load_of(CollectiveOp.ALL_GATHER, group, weights * run.precision.element_bytes)
    return gather, load_of(CollectiveOp.REDUCE_SCATTER, group, weights * run.reduction_dtype.element_bytes)


def _tensor_load(run: TrainingRun, network: Network, hardware: Hardware) -> Load:
    """What one pass of a block makes its tensor-parallel ranks exchange: two all-reduces of its activations."""
    message = run.micro_batch * run.sequence_length * network.hidden * run.precision.element_bytes
    return load_of(CollectiveOp.ALL_REDUCE, group_of(Axis.TENSOR, run, hardware), message).times(2)


def compute_bound(flops: float, number_format: NumberFormat, hardware: Hardware) -> Bound:
    """The time of FLOPs at the dense peak of one accelerator."""
    peak = peak_flops(hardware, number_format)
    if peak is None:
        return Bound(regime=Regime.COMPUTE, seconds=None, arithmetic=f"no peak is published for {number_format}")
    return Bound(
        regime=Regime.COMPUTE,
        seconds=flops / peak,
        arithmetic=f"{flops / 1e12:.4g} TFLOP / {peak / 1e12:.4g} TFLOP/s dense {number_format}",
    )


def memory_bound(traffic_bytes: float, hardware: Hardware) -> Bound:
    """The time of bytes at the bandwidth of one accelerator's memory."""
    rate = memory_bytes_per_s(hardware)
    if rate is None:
        return Bound(regime=Regime.MEMORY, seconds=None, arithmetic="no memory bandwidth is published")
    return Bound(
        regime=Regime.MEMORY,
        seconds=traffic_bytes / rate,
        arithmetic=f"{traffic_bytes / 1e9:.4g} GB / {rate / 1e9:.4g} GB/s",
    )


def _communication(loads: Mapping[Axis, Load], hardware: Hardware) -> Bound:
    """The time of what all axes make pass the same links, and what each would take alone."""
    load = sum(loads.values(), Load())
    alone = {axis: one.seconds(hardware) for axis, one in loads.items() if one != Load()}
    times = [load.seconds(hardware), *alone.values()]  # together they may use links that one of them cannot
    seconds = None if None in times else max(time or 0.0 for time in times)
    rank, node = max(load.rank_in, load.rank_out) / 1e9, max(load.node_in, load.node_out) / 1e9
    said = f"{rank:.4g} GB a rank, {node:.4g} GB a node" if alone else "one rank"
    if seconds is None:
        said += "; no link is published"
    elif len(alone) > 1:
        said += f" ({', '.join(f'{axis} alone {1e3 * (time or 0):.4g} ms' for axis, time in alone.items())})"
    return Bound(regime=Regime.COMMUNICATION, seconds=seconds, arithmetic=said)


def _overhead(kernels: int, interval_s: float) -> Bound:
    return Bound(
        regime=Regime.OVERHEAD,
        seconds=kernels * interval_s,
        arithmetic=f"{kernels:,} kernels x {interval_s * 1e6:.4g} us between launches",
    )
