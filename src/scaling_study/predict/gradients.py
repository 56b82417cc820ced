"""What happens to parameters and gradients around the passes: FSDP2's gathers and reductions, clipping, the update.

FSDP2 gathers and reduces the parameters of a block together, and those outside the blocks (embedding, final norm, head)
as one more group, the root's. Rows are padded to a multiple of the data-parallel ranks. Norm weights are replicated
over the tensor-parallel group, so their gradients, partial sums over each rank's tokens, are added up over it first.
"""

from __future__ import annotations

from scaling_study.predict.blocks import Steps, elementwise
from scaling_study.predict.operations import Communication
from scaling_study.predict.share import (
    FP32_BYTES,
    Matrix,
    accumulates,
    elements,
    padded_elements,
)
from scaling_study.spec import Axis, CollectiveOp, Precision, TrainingRun

#: AdamW in one kernel: reads weight, gradient and two moments, writes weight and moments, all fp32.
_UPDATE_BYTES = (4 + 3) * FP32_BYTES


def gather(run: TrainingRun, parameters: tuple[Matrix, ...], name: str) -> Steps:
    """FSDP2 makes the whole parameters of a group from the shards: cast, all-gather, copy out."""
    if not run.uses_fsdp or not parameters:
        return ()
    dtype = run.precision.element_bytes
    whole = padded_elements(parameters, run.dp)
    shard = whole // run.dp
    if run.dp == 1:
        return (elementwise(f"cast {name}", whole * (FP32_BYTES + dtype), dtype),)
    return (
        elementwise(f"copy into gather {name}", shard * (FP32_BYTES + dtype), dtype),
        _over(run, Axis.DATA, CollectiveOp.ALL_GATHER, whole, dtype, f"gather {name}"),
        elementwise(f"copy out of gather {name}", 2 * whole * dtype, dtype),
    )


def reduce(run: TrainingRun, parameters: tuple[Matrix, ...], name: str, *, backward: bool) -> Steps:
    """FSDP2 turns a group's whole gradients into the shard's, in the reduction's dtype and then in fp32."""
    if not run.uses_fsdp or not parameters:
        return ()
    dtype, reduced = run.precision.element_bytes, run.reduction_dtype.element_bytes
    source = reduced if accumulates(run) else dtype
    whole = padded_elements(parameters, run.dp)
    shard = whole // run.dp
    norms = _norm_reductions(run, parameters, source)
    copy_in = elementwise(f"copy into reduce {name}", whole * (source + reduced), reduced, backward=backward)
    copy_out = elementwise(f"copy out of reduce {name}", shard * (reduced + FP32_BYTES), reduced, backward=backward)
    if run.dp == 1:
        return (*norms, copy_in, copy_out)
    scatter = _over(run, Axis.DATA, CollectiveOp.REDUCE_SCATTER, whole, reduced, f"reduce {name}")
    return (*norms, copy_in, scatter, copy_out)


def accumulate(run: TrainingRun, parameters: tuple[Matrix, ...], name: str, *, first: bool) -> Steps:
    """A micro-batch's gradients added to those of earlier ones, in the reduction's dtype with FSDP2."""
    if not parameters or not accumulates(run) or (first and not run.uses_fsdp):
        return ()
    sum_bytes = run.reduction_dtype.element_bytes if run.uses_fsdp else FP32_BYTES
    moved = elements(parameters) * (run.precision.element_bytes + sum_bytes * (1 if first else 2))
    return (elementwise(f"accumulate {name}", moved, sum_bytes, backward=True),)


def average(run: TrainingRun, parameters: tuple[Matrix, ...]) -> Steps:
    """A rank's shards of the gradients divided by the number of micro-batches, which a pipeline does at the end."""
    held = sum(one.held(run.dp, 0) for one in parameters)
    return (elementwise("average gradients", 2 * held * FP32_BYTES, FP32_BYTES),)


def update(run: TrainingRun, parameters: tuple[Matrix, ...]) -> Steps:
    """Unscale, clip, AdamW over a rank's shards of all its parameters (`training.gradients`)."""
    held = sum(one.held(run.dp, 0) for one in parameters)
    partial = () if run.uses_fsdp else _norm_reductions(run, parameters, FP32_BYTES)
    return (
        *_unscale(run, held),
        *_clip(run, len(parameters), held, partial),
        *partial,
        elementwise("adamw", held * _UPDATE_BYTES, FP32_BYTES),
    )


def _unscale(run: TrainingRun, held: int) -> Steps:
    if run.precision is not Precision.FP16:
        return ()
    axes = [axis for axis, ranks in _axes(run).items() if ranks > 1]
    everyone = Communication(
        op=CollectiveOp.ALL_REDUCE,
        message_bytes=FP32_BYTES,
        axis=axes[0] if len(axes) == 1 else None,
        ranks=run.ranks,
        dtype_bytes=FP32_BYTES,
        name="finite",
    )
    return (elementwise("unscale", 3 * held * FP32_BYTES, FP32_BYTES), everyone)


def _clip(run: TrainingRun, count: int, held: int, partial: tuple[Communication, ...]) -> Steps:
    """The norm of every parameter, reduced as one vector axis by axis; then one number over pipeline stages."""
    if run.protocol.max_gradient_norm is None:
        return ()
    norms = tuple(
        _over(run, axis, CollectiveOp.ALL_REDUCE, size, FP32_BYTES, "gradient norm")
        for axis, size in ((Axis.DATA, count), (Axis.TENSOR, count), (Axis.PIPELINE, 1))
        if _axes(run)[axis] > 1
    )
    return (
        *partial,
        elementwise("gradient norm", held * FP32_BYTES, FP32_BYTES),
        *norms,
        elementwise("clip", 2 * held * FP32_BYTES, FP32_BYTES),
    )


def _norm_reductions(run: TrainingRun, parameters: tuple[Matrix, ...], dtype_bytes: int) -> tuple[Communication, ...]:
    if run.tp == 1:
        return ()
    return tuple(
        _over(run, Axis.TENSOR, CollectiveOp.ALL_REDUCE, one.elements, dtype_bytes, "gradient of a norm")
        for one in parameters
        if one.columns == 1
    )


def _axes(run: TrainingRun) -> dict[Axis, int]:
    return {Axis.DATA: run.dp, Axis.TENSOR: run.tp, Axis.PIPELINE: run.pp}


def _over(run: TrainingRun, axis: Axis, op: CollectiveOp, count: int, dtype_bytes: int, name: str) -> Communication:
    return Communication(
        op=op,
        message_bytes=count * dtype_bytes,
        axis=axis,
        ranks=_axes(run)[axis],
        dtype_bytes=dtype_bytes,
        name=name,
    )
