"""What one rank does in one iteration of our training code, in closed form: every operation and message, in order.

All tensor-parallel ranks and all replicas of a pipeline stage do the same, so a workload belongs to a pipeline rank. It
is kept small: passes of one kind are one object, and within a pass equal blocks are one part with a count. Written out
(`Workload.steps`) it equals, step by step, what the training code does under fake tensors (`predict.extract`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec

from scaling_study.predict import blocks, gradients
from scaling_study.predict.blocks import Steps
from scaling_study.predict.operations import Communication, Direction, Operation, Step
from scaling_study.predict.pipeline import (
    Action,
    ActionKind,
    actions_of,
    gathered_after,
    reduces_gradients,
    stages_of,
)
from scaling_study.predict.share import Share, block_parameters, root_parameters, share_of
from scaling_study.spec import Axis, CollectiveOp, Model, TrainingRun


class Part(msgspec.Struct, frozen=True):
    """Steps that follow one another, `count` times."""

    steps: Steps
    count: int = 1


class Pass(msgspec.Struct, frozen=True):
    """Everything that a rank does for one action on one stage (of the whole pipeline, -1: all of its stages)."""

    kind: ActionKind
    stage: int
    parts: tuple[Part, ...]

    def steps(self) -> Iterator[Step]:
        """Every step in order."""
        for part in self.parts:
            for _ in range(part.count):
                yield from part.steps


class Workload(msgspec.Struct, frozen=True):
    """One rank's iteration.

    Attributes:
        passes: the distinct ones.
        order: indices into them, in the order of execution.
    """

    passes: tuple[Pass, ...]
    order: tuple[int, ...]

    def steps(self) -> Iterator[Step]:
        """Every step of the iteration in order."""
        for index in self.order:
            yield from self.passes[index].steps()

    def tally(self) -> dict[Step, int]:
        """How often each distinct step happens."""
        counts: Counter[Step] = Counter()
        for index, times in Counter(self.order).items():
            for part in self.passes[index].parts:
                for step in part.steps:
                    counts[step] += times * part.count
        return counts

    @property
    def flops(self) -> int:
        """FLOPs of the iteration on this rank, what is computed again included."""
        return sum(step.flops * times for step, times in self.tally().items() if isinstance(step, Operation))


def workload_of(run: TrainingRun, model: Model, pipeline_rank: int = 0) -> Workload:
    """What every rank at a place in the pipeline does in one iteration.

    Args:
        run: a possible one (`spec.violations` finds nothing).
        model: the run's.
        pipeline_rank: in range(run.pp); with an interleaved schedule it holds several stages.
    """
    stages = {index: _Stage(run, model, index) for index in stages_of(run, pipeline_rank)}
    passes: list[Pass] = []
    places: dict[int, int] = {}
    order = []
    for action in actions_of(run, pipeline_rank):
        one = _update(run, stages) if action.kind is ActionKind.UPDATE else stages[action.stage].do(action)
        if id(one) not in places:
            places[id(one)] = len(passes)
            passes.append(one)
        if one.parts:
            order.append(places[id(one)])
    return Workload(tuple(passes), tuple(order))


def _update(run: TrainingRun, stages: dict[int, _Stage]) -> Pass:
    parameters = tuple(one for stage in stages.values() for one in stage.parameters)
    return Pass(ActionKind.UPDATE, -1, (Part(gradients.update(run, parameters)),))


class _Variant(msgspec.Struct, frozen=True):
    """What may differ between passes of one kind on one stage.

    Attributes:
        gathers: FSDP2 has to gather the parameters.
        reduces: a backward pass that reduces the gradients when they are complete.
        first: the first micro-batch, whose gradients are added to nothing.
    """

    kind: ActionKind
    gathers: bool = False
    reduces: bool = False
    first: bool = False


class _Stage:
    """One pipeline stage on one rank; remembers whether FSDP2 has its parameters gathered."""

    def __init__(self, run: TrainingRun, model: Model, index: int) -> None:
        self.run, self.index = run, index
        self.count = run.pp * run.virtual_stages
        self.layers = model.layers // self.count
        self.first, self.last = index == 0, index == self.count - 1
        self.share: Share = share_of(run, model)
        self.block = block_parameters(self.share)
        self.root = root_parameters(self.share, first=self.first, last=self.last)
        self.parameters = self.root + self.block * self.layers
        self.gathered = False
        self._made: dict[_Variant, Pass] = {}

    def do(self, action: Action) -> Pass:
        """The pass of an action; one object for all actions that are alike."""
        variant = self._variant(action)
        self.gathered = gathered_after(self.run, action, gathered=self.gathered)
        if variant not in self._made:
            self._made[variant] = Pass(action.kind, self.index, _compress(self._steps_of(variant)))
        return self._made[variant]

    def _variant(self, action: Action) -> _Variant:
        if action.kind is ActionKind.BACKWARD:
            return _Variant(action.kind, not self.gathered, reduces_gradients(self.run, action), action.microbatch == 0)
        if action.kind in (ActionKind.FORWARD, ActionKind.UNSHARD):
            return _Variant(action.kind, not self.gathered)
        return _Variant(action.kind)

    def _steps_of(self, variant: _Variant) -> list[Steps]:
        kind = variant.kind
        if kind is ActionKind.FORWARD:
            return self._forward(variant.gathers)
        if kind is ActionKind.BACKWARD:
            return self._backward(variant)
        if kind is ActionKind.UNSHARD:
            return [self._gather_root(), *[self._gather_block()] * self.layers] if variant.gathers else []
        if kind is ActionKind.RESHARD:
            return []
        return self._reduce() if kind is ActionKind.REDUCE else [(self._message(kind),)]

    def _gather_root(self) -> Steps:
        return gradients.gather(self.run, self.root, "root")

    def _gather_block(self) -> Steps:
        return gradients.gather(self.run, self.block, "block")

    def _forward(self, gathers: bool) -> list[Steps]:
        root, block = (self._gather_root(), self._gather_block()) if gathers else ((), ())
        before = blocks.embedding_forward(self.share) if self.first else ()
        after = blocks.head_forward(self.share) if self.last else ()
        return [root + before, *[block + blocks.block_forward(self.share)] * self.layers, after]

    def _backward(self, variant: _Variant) -> list[Steps]:
        """Blocks from last to first; each gathers the one before it while it computes."""
        before, within = self._gathers_of_backward() if variant.gathers else ((), ())
        head = blocks.head_backward(self.share) if self.last else ()
        block = blocks.block_backward(self.share, self.run.activation_checkpointing)
        block += gradients.accumulate(self.run, self.block, "block", first=variant.first)
        end = blocks.embedding_backward(self.share) if self.first else ()
        end += gradients.accumulate(self.run, self.root, "root", first=variant.first)
        if variant.reduces:
            block += gradients.reduce(self.run, self.block, "block", backward=True)
            end += gradients.reduce(self.run, self.root, "root", backward=True)
        inner = [within + block] * (self.layers - 1)
        if self.last:
            return [before + head, *inner, block, end]
        return [before + block, *inner[1:], block, end] if inner else [before + block, end]

    def _gathers_of_backward(self) -> tuple[Steps, Steps]:
        """What is gathered before anything else, and what each block gathers ahead.

        On the last stage the root comes first, with the head. Elsewhere its output is the last block's, whose hook runs
        before it.
        """
        root, block = self._gather_root(), self._gather_block()
        if self.last:
            return root + block, block
        return block + (block if self.layers > 1 else ()) + root, block

    def _reduce(self) -> list[Steps]:
        """After the last backward pass in a pipeline: the root's gradients first, then the blocks' in order."""
        root = gradients.reduce(self.run, self.root, "root", backward=False)
        block = gradients.reduce(self.run, self.block, "block", backward=False)
        return [root, *[block] * self.layers, gradients.average(self.run, self.parameters)]

    def _message(self, kind: ActionKind) -> Communication:
        receives = kind in (ActionKind.RECEIVE_FORWARD, ActionKind.RECEIVE_BACKWARD)
        towards_first = kind in (ActionKind.RECEIVE_FORWARD, ActionKind.SEND_BACKWARD)
        activations = kind in (ActionKind.RECEIVE_FORWARD, ActionKind.SEND_FORWARD)
        return Communication(
            op=CollectiveOp.SEND_RECV,
            message_bytes=self.share.local_tokens * self.share.hidden * self.share.dtype_bytes,
            axis=Axis.PIPELINE,
            ranks=self.run.pp,
            dtype_bytes=self.share.dtype_bytes,
            name="activations" if activations else "gradients of activations",
            direction=Direction.RECEIVE if receives else Direction.SEND,
            peer=(self.index + (-1 if towards_first else 1)) % self.run.pp,
        )


def _compress(steps: list[Steps]) -> tuple[Part, ...]:
    """Equal neighbours as one part with a count."""
    parts: list[tuple[Steps, int]] = []
    for one in steps:
        if not one:
            continue
        if parts and (parts[-1][0] is one or parts[-1][0] == one):
            parts[-1] = (one, parts[-1][1] + 1)
        else:
            parts.append((one, 1))
    return tuple(Part(one, count) for one, count in parts)
