"""The memory of one rank in one iteration of our training code, in closed form: its peak, and what it is made of.

Counted is what PyTorch's memory tracker counts, every tensor's storage once, from the moment that it is made until
nobody needs it. What lies outside tensors (the CUDA context, NCCL's buffers, fragmentation) is not in it.

The iteration is the same sequence of passes as in `predict.workload`; each pass is a swing of memory, and the peak is
the highest point of them one after another.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from scaling_study.predict import activations
from scaling_study.predict.activations import BlockWeights, Sizes, sizes_of
from scaling_study.predict.pipeline import (
    Action,
    ActionKind,
    actions_of,
    gathered_after,
    reduces_gradients,
    stages_of,
)
from scaling_study.predict.share import (
    FP32_BYTES,
    Matrix,
    Share,
    accumulates,
    block_parameters,
    elements,
    padded_elements,
    root_parameters,
    share_of,
)
from scaling_study.predict.swings import NOTHING, Change, Levels, MemoryKind, Swing, repeat, sequence, swing
from scaling_study.spec import Model, TrainingRun

_MOMENTS = 2  # of AdamW
_TOKEN_BYTES = 8


class MemoryEstimate(msgspec.Struct, frozen=True):
    """The peak of one rank.

    Attributes:
        peak_bytes: the most alive at once.
        by_kind: what it consists of at that moment, bytes.
    """

    peak_bytes: int
    by_kind: Levels

    @property
    def peak_gib(self) -> float:
        """The peak in 2**30 bytes."""
        return self.peak_bytes / 2**30


def memory_of(run: TrainingRun, model: Model, pipeline_rank: int = 0, replica: int = 0) -> MemoryEstimate:
    """The peak memory of any tensor-parallel rank at a place in the pipeline, in any iteration but the first.

    Args:
        run: a possible one.
        model: the run's.
        pipeline_rank: in range(run.pp).
        replica: in range(run.dp); the last ones may hold less, where rows do not split evenly.
    """
    stages = {index: _StageMemory(run, model, index, replica) for index in stages_of(run, pipeline_rank)}
    pieces = [swing(_resident(run, stages, replica))]
    for action in actions_of(run, pipeline_rank):
        if action.kind is ActionKind.UPDATE:
            pieces.append(_end_of_iteration(run, stages))
        else:
            pieces.append(stages[action.stage].do(action))
    whole = sequence(pieces)
    return MemoryEstimate(whole.rise, {kind: size for kind, size in whole.highest.items() if size})


def _resident(run: TrainingRun, stages: dict[int, _StageMemory], replica: int) -> Iterator[Change]:
    """What is there before an iteration and after it, and the last iteration's gradients, which its start releases."""
    parameters = [one for stage in stages.values() for one in stage.parameters]
    stored = sum(one.padded(run.dp) // run.dp for one in parameters) * FP32_BYTES
    held = sum(one.held(run.dp, replica) for one in parameters) * FP32_BYTES
    yield MemoryKind.WEIGHTS, stored
    yield MemoryKind.OPTIMIZER, _MOMENTS * held + FP32_BYTES * len(parameters)
    share = next(iter(stages.values())).share
    yield MemoryKind.OTHER, len(stages) * share.sequence * share.head_dim * FP32_BYTES
    yield MemoryKind.OTHER, 2 * run.local_batch * run.sequence_length * _TOKEN_BYTES
    yield MemoryKind.MESSAGES, sum(stage.messages for stage in stages.values())
    gradients = stored if run.uses_fsdp else sum(stage.gradients for stage in stages.values())
    yield MemoryKind.GRADIENTS, gradients
    yield MemoryKind.GRADIENTS, -gradients


def _end_of_iteration(run: TrainingRun, stages: dict[int, _StageMemory]) -> Swing:
    """A pipeline puts the logits of all micro-batches together once more before it returns."""
    last = [stage for stage in stages.values() if stage.last]
    if run.pp == 1 or not last:
        return NOTHING
    return swing([(MemoryKind.LOGITS, run.microbatches * last[0].sizes.logits)])


class _StageMemory:
    """The swings of one pipeline stage's passes; remembers whether FSDP2 has its parameters gathered."""

    def __init__(self, run: TrainingRun, model: Model, index: int, replica: int) -> None:
        self.run, self.replica = run, replica
        count = run.pp * run.virtual_stages
        self.layers = model.layers // count
        self.first, self.last = index == 0, index == count - 1
        self.share: Share = share_of(run, model)
        self.sizes: Sizes = sizes_of(self.share)
        self.block = block_parameters(self.share)
        self.root = root_parameters(self.share, first=self.first, last=self.last)
        self.parameters = self.root + self.block * self.layers
        self.gathered = False
        self._made: dict[tuple[ActionKind, bool, bool, bool], Swing] = {}

    @property
    def messages(self) -> int:
        """Buffers for what comes from neighbours: one a micro-batch, for activations and for gradients."""
        neighbours = 2 - self.first - self.last
        return neighbours * self.run.microbatches * self.sizes.local

    @property
    def _adds_in_another_dtype(self) -> bool:
        """Whether FSDP2 casts gradients before it adds them up; in the same dtype, autograd adds them in place."""
        return self.run.uses_fsdp and self.run.precision.value != self.run.reduction_dtype.value

    @property
    def gradients(self) -> int:
        """Bytes of all gradients after a backward pass."""
        return self._gradient(self.root) + self.layers * self._gradient(self.block)

    def do(self, action: Action) -> Swing:
        """The swing of an action."""
        reduces = reduces_gradients(self.run, action)
        key = (action.kind, self.gathered, reduces, action.microbatch == 0)
        if key not in self._made:
            self._made[key] = self._swing(*key)
        self.gathered = gathered_after(self.run, action, gathered=self.gathered)
        return self._made[key]

    def _swing(self, kind: ActionKind, gathered: bool, reduces: bool, first: bool) -> Swing:
        if kind is ActionKind.FORWARD:
            return self._forward(gathered)
        if kind is ActionKind.BACKWARD:
            return self._backward(gathered, reduces, first)
        if kind is ActionKind.UNSHARD and not gathered:
            return self._unshard()
        if kind is ActionKind.RESHARD and gathered:
            return swing([(MemoryKind.GATHERED, -self._whole(self.parameters))])
        if kind is ActionKind.REDUCE:
            return self._reduce_all(gathered)
        return NOTHING

    def _whole(self, parameters: tuple[Matrix, ...]) -> int:
        """Bytes of gathered parameters; none where FSDP2 does not wrap them."""
        if not self.run.uses_fsdp:
            return 0
        return padded_elements(parameters, self.run.dp) * self.run.precision.element_bytes

    def _gradient(self, parameters: tuple[Matrix, ...]) -> int:
        """Bytes of a backward pass's gradients, in the dtype of the parameters."""
        return self._gradient_elements(parameters) * self.run.precision.element_bytes

    def _sum(self, parameters: tuple[Matrix, ...]) -> int:
        """Bytes of gradients added up over micro-batches; where FSDP2 does it, in the reduction's dtype."""
        dtype = self.run.reduction_dtype if self.run.uses_fsdp else self.run.precision
        return self._gradient_elements(parameters) * dtype.element_bytes

    def _gradient_elements(self, parameters: tuple[Matrix, ...]) -> int:
        """The embedding's gradient has the rows of all tensor-parallel ranks, until it is reduced."""
        others = self.first and parameters == self.root
        rows = self.share.vocabulary - self.share.local_vocabulary if others else 0
        return elements(parameters) + rows * self.share.hidden

    def _gather(self, parameters: tuple[Matrix, ...]) -> list[Change]:
        """Copy in, all-gather, copy out; the all-gather's buffer stays for the caller to release."""
        whole = self._whole(parameters)
        if self.run.dp == 1:
            return [(MemoryKind.GATHERED, whole)]
        cast = whole // self.run.dp if self.sizes.narrow else 0
        return [(MemoryKind.GATHERED, size) for size in (cast, whole, -cast, whole)]

    def _buffer(self, parameters: tuple[Matrix, ...]) -> Change:
        """The all-gather's buffer goes."""
        return MemoryKind.GATHERED, 0 if self.run.dp == 1 else -self._whole(parameters)

    def _forward(self, gathered: bool) -> Swing:
        """A gather's buffer stays until the next gather is done; resharding lets go of a block after it."""
        z, gathers = self.sizes, not gathered and self.run.uses_fsdp
        compute = list(activations.block_forward(z, self.run.activation_checkpointing))
        compute += self._resharded(self.block)

        def block(previous: tuple[Matrix, ...]) -> Swing:
            return swing([*self._gather(self.block), self._buffer(previous), *compute] if gathers else compute)

        entry = activations.embedding_forward(z) if self.first else [(MemoryKind.ACTIVATIONS, z.local)]
        return sequence(
            [
                swing([*(self._gather(self.root) if gathers else []), *entry]),
                block(self.root),
                repeat(block(self.block), self.layers - 1),
                swing(self._end_of_forward([self._buffer(self.block)] if gathers else [])),
            ]
        )

    def _end_of_forward(self, gathered: list[Change]) -> Iterator[Change]:
        """Logits; then FSDP2's last buffer goes, and the parameters outside the blocks; then the loss."""
        if self.last:
            yield from activations.logits_forward(self.sizes)
        yield from gathered
        yield from self._resharded(self.root)
        if self.last:
            yield from activations.loss_forward(self.sizes)
        if self.last and self.run.pp == 1:
            yield MemoryKind.LOGITS, -self.sizes.logits

    def _resharded(self, parameters: tuple[Matrix, ...]) -> list[Change]:
        """After a forward pass, where the run asks for it."""
        return [(MemoryKind.GATHERED, -self._whole(parameters))] if self.run.reshard_after_forward else []

    def _backward(self, gathered: bool, reduces: bool, first: bool) -> Swing:
        """From the last block to the first; each gathers the one before it while it computes."""
        z, kept = self.sizes, first or self._adds_in_another_dtype
        gathers = not gathered and self.run.uses_fsdp
        compute = list(activations.block_backward(z, self.run.activation_checkpointing, self._block_weights(kept=kept)))
        pending = self._gather(self.block)[:-1] if gathers and self.run.dp > 1 else []
        arrive = [(MemoryKind.GATHERED, self._whole(self.block)), self._buffer(self.block)] if gathers else []

        def block(ahead: list[Change], previous: tuple[Matrix, ...]) -> Swing:
            after = self._after_backward(self.block, previous, reduces=reduces, first=first)
            return swing([*arrive, *ahead, *compute, *after])

        begin = list(activations.loss_backward(z)) if self.last else []
        begin += [*self._gather(self.root), self._buffer(self.root), *pending] if gathers else []
        begin += activations.logits_backward(z, self._table(), kept=kept) if self.last else []
        if self.layers == 1:
            middle = [block([], ())]
        else:
            inner = repeat(block(pending, self.block), self.layers - 2)
            middle = [block(pending, ()), inner, block([], self.block)]
        return sequence([swing(begin), *middle, swing(self._end_of_backward(kept, reduces, first))])

    def _end_of_backward(self, kept: bool, reduces: bool, first: bool) -> Iterator[Change]:
        """The embedding's gradient, or one for the stage before; then the parameters outside the blocks."""
        if self.first:
            yield from activations.embedding_backward(self.sizes, self._table() * self.run.tp, kept=kept)
        else:
            yield MemoryKind.ACTIVATIONS, -self.sizes.local
        yield from self._after_backward(self.root, self.block, reduces=reduces, first=first)
        if reduces and self.run.uses_fsdp:
            yield MemoryKind.REDUCTION, -self._reduction(self.root)

    def _table(self) -> int:
        return self.share.local_vocabulary * self.share.hidden * self.share.dtype_bytes

    def _block_weights(self, *, kept: bool) -> BlockWeights:
        share, element = self.share, self.share.dtype_bytes
        return BlockWeights(
            query=share.query * share.hidden * element,
            key=share.key * share.hidden * element,
            output=share.query * share.hidden * element,
            inner=share.ffn * share.hidden * element,
            kept=kept,
        )

    def _after_backward(
        self, parameters: tuple[Matrix, ...], previous: tuple[Matrix, ...], *, reduces: bool, first: bool
    ) -> list[Change]:
        """FSDP2 adds a group's gradients to the sum of earlier ones, or reduces them, and may let go of parameters.

        Args:
            parameters: of the group.
            previous: of the group reduced before it, whose buffer stays until then.
            reduces: whether this is the pass that reduces.
            first: whether there is no sum yet.
        """
        if not self.run.uses_fsdp or not parameters:
            return []
        changes: list[Change] = []
        if accumulates(self.run) and self._adds_in_another_dtype:
            if first:
                changes.append((MemoryKind.GRADIENTS, self._sum(parameters)))
            changes.append((MemoryKind.GRADIENTS, -self._gradient(parameters)))
        if self.run.pp == 1 and (reduces or self.run.reshard_after_forward):
            changes.append((MemoryKind.GATHERED, -self._whole(parameters)))
        return changes + (self._reduce(parameters, previous) if reduces else [])

    def _reduction(self, parameters: tuple[Matrix, ...]) -> int:
        return padded_elements(parameters, self.run.dp) * self.run.reduction_dtype.element_bytes

    def _reduce(self, parameters: tuple[Matrix, ...], previous: tuple[Matrix, ...]) -> list[Change]:
        """A buffer in the reduction's dtype takes the place of the gradients, then the shard in fp32."""
        whole = self._reduction(parameters)
        source = self._sum(parameters) if accumulates(self.run) else self._gradient(parameters)
        shard, final = whole // self.run.dp, padded_elements(parameters, self.run.dp) // self.run.dp * FP32_BYTES
        cast = [final, -shard] if shard != final else []
        buffers = [(MemoryKind.REDUCTION, size) for size in (-self._reduction(previous), whole)]
        return [*buffers, *((MemoryKind.GRADIENTS, size) for size in (-source, shard, *cast))]

    def _unshard(self) -> Swing:
        """All groups of the stage are gathered before the first is copied out."""
        if not self.run.uses_fsdp:
            return NOTHING
        groups = [group for group in (self.root, *[self.block] * self.layers) if group]
        if self.run.dp == 1:
            return swing((MemoryKind.GATHERED, self._whole(group)) for group in groups)
        buffers = [change for group in groups for change in self._gather(group)[:-1]]
        arrive = [
            change for group in groups for change in ((MemoryKind.GATHERED, self._whole(group)), self._buffer(group))
        ]
        return swing([*buffers, *arrive])

    def _reduce_all(self, gathered: bool) -> Swing:
        """After a pipeline's last backward pass, group by group."""
        if not self.run.uses_fsdp:
            return NOTHING
        changes: list[Change] = []
        previous: tuple[Matrix, ...] = ()
        for group in [group for group in (self.root, *[self.block] * self.layers) if group]:
            if gathered:
                changes.append((MemoryKind.GATHERED, -self._whole(group)))
            changes += self._reduce(group, previous)
            previous = group
        return swing([*changes, (MemoryKind.REDUCTION, -self._reduction(previous))])
