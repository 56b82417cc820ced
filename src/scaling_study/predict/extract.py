"""What a rank really does in one training step, recorded without a GPU, at any number of ranks.

The training code runs unchanged, on fake tensors (shapes and dtypes without storage) and in a fake process group that
answers at once. Recorded is the second step: during the first, DTensor works out its placements with operations of its
own, and AdamW makes its state. This is the one module of `predict` that needs torch and the training code.

What had to be arranged around the training code, and never in it:

- initial weights are allocated, not drawn (drawing them would take minutes and changes nothing that is recorded);
- attention is PyTorch's own fused kernel, whatever the run asks for, since the others do not exist on a CPU;
- pipeline stages are told their inputs and outputs, which they otherwise learn from their neighbours' messages;
- where the training code looks at a number, as the loss scaler does, it sees 1: finite.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import sys
import warnings
from collections.abc import Iterable, Iterator
from typing import Any
from unittest import mock

import msgspec
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.distributed import pipelining
from torch.distributed._tools.mem_tracker import MemTracker
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.pipelining import schedules
from torch.distributed.tensor import DTensor, _redistribute
from torch.distributed.tensor import debug as tensor_debug
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from scaling_study.predict.operations import Communication, Direction, Operation, OperationKind, Step
from scaling_study.spec import AttentionBackend, Axis, CollectiveOp, Model, TrainingRun
from scaling_study.tracking import Advance, unheard
from scaling_study.training import step as training_step
from scaling_study.training.parallel import DTYPES
from scaling_study.training.step import Trainer

_CPU = torch.device("cpu")
_MATMULS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm")
_ATTENTION = "aten::_scaled_dot_product"
_COLLECTIVES = {
    "_allgather_base_": CollectiveOp.ALL_GATHER,
    "all_gather_into_tensor": CollectiveOp.ALL_GATHER,
    "_reduce_scatter_base_": CollectiveOp.REDUCE_SCATTER,
    "reduce_scatter_tensor": CollectiveOp.REDUCE_SCATTER,
    "allreduce_": CollectiveOp.ALL_REDUCE,
    "all_reduce": CollectiveOp.ALL_REDUCE,
    "send": CollectiveOp.SEND_RECV,
    "recv_": CollectiveOp.SEND_RECV,
}
_SILENT = ("wait_tensor", "_wrap_tensor_autograd")
_DIRECTIONS = {"send": Direction.SEND, "recv_": Direction.RECEIVE}


class NotRecordedError(Exception):
    """The step does something that has no name here, so that the record would not be complete."""


class Place(msgspec.Struct, frozen=True):
    """Where a rank is on the mesh."""

    pipeline: int = 0
    replica: int = 0
    tensor: int = 0

    def rank(self, run: TrainingRun) -> int:
        """The rank in the whole group; tensor-parallel ranks are neighbours."""
        return (self.pipeline * run.dp + self.replica) * run.tp + self.tensor


_FIRST = Place()


class Extraction(msgspec.Struct, frozen=True):
    """What one rank did in one step.

    Attributes:
        steps: matrix products, attention, and everything that was sent; in order.
        peak_memory_bytes: the most bytes alive at once, as PyTorch's `MemTracker` counts them; None if not asked for.
        memory_by_kind: what they were at that moment, in the tracker's words.
    """

    steps: tuple[Step, ...]
    peak_memory_bytes: int | None = None
    memory_by_kind: dict[str, int] = {}


class Recorder(TorchDispatchMode):
    """Records operations and communications of everything that runs inside it; DTensors are seen as what they do here.

    Args:
        mesh: tells which axis a process group belongs to.
        advance: told of each step.
    """

    def __init__(self, mesh: DeviceMesh, advance: Advance = unheard) -> None:
        super().__init__()
        self.steps: list[Step] = []
        self._advance = advance
        names = mesh.mesh_dim_names or ()
        self._axes = {mesh[name].get_group().group_name: Axis(name) for name in names if mesh[name].size() > 1}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented
        if func is torch.ops.aten._local_scalar_dense.default and isinstance(args[0], FakeTensor):
            return 1.0
        result = func(*args, **(kwargs or {}))
        name = func._schema.name
        if name in _MATMULS:
            self._record(_matmul(name, args))
        elif name.startswith(_ATTENTION):
            self._record(_attention(name, args))
        elif func.namespace in ("c10d", "_c10d_functional"):
            self._communicate(name.split("::")[1], tree_leaves((args, kwargs, result)))
        return result

    def _record(self, step: Step) -> None:
        self.steps.append(step)
        self._advance(1)

    def _communicate(self, name: str, leaves: list[Any]) -> None:
        if name in _SILENT:
            return
        if name not in _COLLECTIVES:
            raise NotRecordedError(f"the step calls {name}, which is not among {', '.join(_COLLECTIVES)}")
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        group = next(found for leaf in leaves if (found := _group(leaf)) is not None)
        whole = max(tensors, key=lambda tensor: tensor.numel())
        direction = _DIRECTIONS.get(name)
        self._record(
            Communication(
                op=_COLLECTIVES[name],
                message_bytes=whole.numel() * whole.element_size(),
                axis=self._axes.get(group.group_name),
                ranks=group.size(),
                dtype_bytes=whole.element_size(),
                name=name,
                direction=direction,
                peer=next(leaf for leaf in leaves if type(leaf) is int) if direction else None,
            )
        )


def _group(leaf: Any) -> Any:
    """The process group that an argument of a collective names, or None."""
    if isinstance(leaf, torch.ScriptObject):
        with contextlib.suppress(RuntimeError):
            return dist.ProcessGroup.unbox(leaf)
    if isinstance(leaf, str):
        with contextlib.suppress(RuntimeError, ValueError):
            return dist.distributed_c10d._resolve_process_group(leaf)
    return None


def _in_backward() -> bool:
    """Whether autograd is at work, recomputation included."""
    return bool(torch._C._current_graph_task_id() != -1)


def _matmul(name: str, args: tuple[Any, ...]) -> Operation:
    left, right = args[-2:] if name in ("aten::addmm", "aten::baddbmm") else args[:2]
    batch = left.shape[0] if left.ndim == 3 else 1
    m, k, n = left.shape[-2], left.shape[-1], right.shape[-1]
    return Operation(
        name=name,
        kind=OperationKind.MATMUL,
        flops=2 * batch * m * n * k,
        moved_bytes=batch * (m * k + k * n + m * n) * left.element_size(),
        shape=(m, n, k) if left.ndim == 2 else (batch, m, n, k),
        backward=_in_backward(),
        dtype_bytes=left.element_size(),
    )


def _attention(name: str, args: tuple[Any, ...]) -> Operation:
    """Dense FLOPs of PyTorch's counter, which knows no grouped heads and not the kernel of a CPU."""
    backward = name.endswith("_backward")
    query, key = args[1:3] if backward else args[:2]
    batch, heads, length, width = query.shape
    logarithms = batch * heads * length * 4
    tensors = (2 * query.numel() + 2 * key.numel()) * query.element_size()
    return Operation(
        name=name,
        kind=OperationKind.ATTENTION,
        flops=(10 if backward else 4) * batch * heads * length * key.shape[2] * width,
        moved_bytes=tensors * (2 if backward else 1) + logarithms,
        shape=(batch, heads, key.shape[1], length, width),
        backward=_in_backward(),
        dtype_bytes=query.element_size(),
    )


def extract(
    run: TrainingRun, model: Model, place: Place = _FIRST, *, memory: bool = True, advance: Advance = unheard
) -> Extraction:
    """Run two training steps of one rank and record the second.

    Args:
        run: any possible run; nothing is allocated, so the number of ranks and the model's size do not matter.
        model: the run's.
        place: which rank.
        memory: also track the peak memory, which takes about twice as long.
        advance: told of each of the rank's steps, twice, and of what DTensor does of its own the first time.

    Raises:
        RuntimeError: this process is in a process group already.
        NotRecordedError: the step does something that cannot be recorded.
    """
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with _fake_world(run.ranks, place.rank(run)), _arranged(run, model, mode):
        trainer = Trainer(msgspec.structs.replace(run, attention=AttentionBackend.SDPA), model, _CPU)
        with mode:
            with Recorder(trainer.mesh, advance):
                trainer.step(*_batch(run))
            recorder = Recorder(trainer.mesh, advance)
            batch = _batch(run)
            tracker = _tracker(trainer, batch) if memory else None
            with tracker or contextlib.nullcontext(), recorder:
                trainer.step(*batch)
    return Extraction(tuple(recorder.steps), *_peak(tracker))


@contextlib.contextmanager
def _fake_world(ranks: int, rank: int) -> Iterator[None]:
    """A process group of so many ranks, in which this process is one and the others answer at once."""
    if dist.is_initialized():
        raise RuntimeError("this process belongs to a process group; extraction needs one of its own")
    hook = sys.excepthook  # torch puts the rank before every line of a traceback, for ever
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=ranks)
    try:
        yield
    finally:
        dist.destroy_process_group()
        sys.excepthook = hook
        _forget_meshes()
        gc.collect()  # trainers hold cycles


def _forget_meshes() -> None:
    """DTensor remembers results with their mesh; that of another rank is equal to it, but has other groups."""
    tensor_debug._clear_sharding_prop_cache()
    if hasattr(_redistribute, "clear_redistribute_planner_cache"):
        _redistribute.clear_redistribute_planner_cache()


@contextlib.contextmanager
def _arranged(run: TrainingRun, model: Model, mode: FakeTensorMode) -> Iterator[None]:
    """What the training code finds around it instead of the usual things, while it runs on fake tensors."""

    def allocate(stage: nn.Module, device: torch.device) -> None:
        with mode:
            stage.to_empty(device=device)

    def tell_mode(_schedule: Any, stages: list[Any], _has_backward: bool, _done: bool) -> None:
        from torch.distributed.pipelining._utils import InferenceMode

        for stage in stages:
            stage._inference_mode = InferenceMode.STATIC

    with contextlib.ExitStack() as stack:
        stack.enter_context(_quiet())
        stack.enter_context(mock.patch.object(training_step, "initialise", allocate))
        stack.enter_context(mock.patch.object(pipelining, "PipelineStage", _told_stage(run, model, mode)))
        if hasattr(schedules._PipelineSchedule, "_warmup_p2p"):  # torch 2.12 and later ask their neighbours
            stack.enter_context(mock.patch.object(schedules._PipelineSchedule, "_warmup_p2p", tell_mode))
        yield


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """PyTorch's advice on the training code is for those who train."""
    logger = logging.getLogger("torch.distributed.tensor._redistribute")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            yield
    finally:
        logger.setLevel(level)


def _told_stage(run: TrainingRun, model: Model, mode: FakeTensorMode) -> type:
    """A `PipelineStage` that knows its inputs and outputs from the start."""
    dtype = DTYPES[run.precision]

    def between() -> Tensor:
        shape = (run.micro_batch, run.sequence_length // run.tp, model.hidden)
        return torch.empty(shape, dtype=dtype, requires_grad=True)

    class ToldStage(pipelining.PipelineStage):
        def __init__(self, module: nn.Module, index: int, count: int, device: torch.device, **options: Any) -> None:
            with mode:
                tokens = torch.empty((run.micro_batch, run.sequence_length), dtype=torch.int64)
                logits = torch.empty((*tokens.shape, model.vocabulary), dtype=dtype, requires_grad=True)
                inputs = tokens if index == 0 else between()
                outputs = logits if index == count - 1 else between()
            super().__init__(module, index, count, device, input_args=(inputs,), output_args=(outputs,), **options)

    return ToldStage


def _batch(run: TrainingRun) -> tuple[Tensor, Tensor]:
    """A replica's tokens and targets; as fake tensors they have no values."""
    shape = (run.local_batch, run.sequence_length)
    return torch.empty(shape, dtype=torch.int64), torch.empty(shape, dtype=torch.int64)


class Totals(MemTracker):
    """PyTorch's memory tracker without its statistics a module, which know only one forward pass a step."""

    def _pre_fw_hook(self, module: nn.Module, inputs: Any) -> None:
        pass

    def _post_fw_hook(self, module: nn.Module, inputs: Any, outputs: Any) -> None:
        pass

    def _pre_bw_hook(self, module: nn.Module, args: Any) -> None:
        pass

    def _post_bw_hook(self, module: nn.Module, args: Any) -> None:
        pass


def _tracker(trainer: Trainer, batch: tuple[Tensor, Tensor]) -> Totals:
    """A memory tracker that knows what is alive before the step, buffers that wait empty included."""
    tracker = Totals()
    tracker.track_external(trainer.stages, trainer.optimizer, *batch)
    tracker.track_external(*_gathered_parameters(trainer.stages), *_receive_buffers(trainer._schedule))
    return tracker


def _gathered_parameters(module: nn.Module) -> Iterable[Tensor]:
    """FSDP2's whole parameters, which live on without storage while they are sharded."""
    for part in module.modules():
        if isinstance(part, FSDPModule):
            for group in fully_shard.state(part)._fsdp_param_groups:
                for parameter in group.fsdp_params:
                    yield from parameter.all_gather_outputs


def _receive_buffers(schedule: Any) -> Iterable[Tensor]:
    """Where a pipeline's stages receive activations and gradients: one buffer a micro-batch, kept for ever."""
    stages = [] if schedule is None else getattr(schedule, "_stages", None) or [schedule._stage]
    for stage in stages:
        for infos in (*stage.args_recv_info.values(), *stage.grad_recv_info.values()):
            yield from (info.buffer for info in infos if getattr(info, "buffer", None) is not None)


def _peak(tracker: Totals | None) -> tuple[int | None, dict[str, int]]:
    if tracker is None:
        return None, {}
    kinds = dict(tracker.get_tracker_snapshot("peak")[_CPU])
    total = kinds.pop("Total")
    return total, {str(getattr(kind, "value", kind)): size for kind, size in kinds.items() if size}
