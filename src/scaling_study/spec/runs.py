"""A run: one point of a sweep, frozen, with an identity that is the same on every machine.

`canonical_json` leaves out every field at its default, so a field added later keeps old identities, and nothing
of host, path, time or code style enters it. When what is measured changes, `Protocol.revision` is raised by hand.
"""

from __future__ import annotations

import functools
import hashlib
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from scaling_study.spec.hardware import Hardware
from scaling_study.spec.models import Model
from scaling_study.spec.words import (
    ActivationCheckpointing,
    AttentionBackend,
    CollectiveOp,
    Pacing,
    PipelineSchedule,
    Precision,
    ReductionDtype,
)

Positive = Annotated[int, Meta(gt=0)]
NonNegative = Annotated[int, Meta(ge=0)]


class Protocol(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a run is measured.

    Attributes:
        iterations: timed iterations in all; the paper's 60.
        discard: first iterations left out of every aggregate; the paper's 10.
        profiled_iterations: iterations under the profiler, after and outside the timed ones.
        data: name of the data set in `config/data`.
        learning_rate: of AdamW.
        max_gradient_norm: gradients are scaled down to this global norm, over all ranks; None leaves them.
        observe_synchronisation: record when ranks arrive at collectives (`measure.observer`).
        revision: raised by hand when what is measured changes.
    """

    iterations: Positive = 60
    discard: NonNegative = 10
    profiled_iterations: Positive = 3
    data: Annotated[str, Meta(pattern="^[a-z0-9-]+$")] = "wikipedia-stackexchange"
    learning_rate: Annotated[float, Meta(gt=0)] = 3e-4
    max_gradient_norm: Annotated[float, Meta(gt=0)] | None = None
    observe_synchronisation: bool = False
    revision: Positive = 1

    def __post_init__(self) -> None:
        if self.discard >= self.iterations:
            raise ValueError(f"discard ({self.discard}) must be smaller than iterations ({self.iterations})")


class TrainingRun(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="training"
):
    """Training a model in one layout on one hardware.

    `dp * tp * pp` ranks; the global batch is in sequences an iteration, the micro-batch in sequences a forward pass.
    """

    model: str
    hardware: str
    nodes: Positive
    dp: Positive
    tp: Positive = 1
    pp: Positive = 1
    virtual_stages: Positive = 1
    micro_batch: Positive
    global_batch: Positive
    sequence_length: Positive = 4096
    precision: Precision = Precision.BF16
    reduction_dtype: ReductionDtype = ReductionDtype.FP32
    attention: AttentionBackend = AttentionBackend.XFORMERS
    reshard_after_forward: bool = False
    activation_checkpointing: ActivationCheckpointing = ActivationCheckpointing.NONE
    schedule: PipelineSchedule = PipelineSchedule.ONE_F_ONE_B
    pacing: Pacing = Pacing.OFF
    protocol: Protocol = Protocol()
    repeat: NonNegative = 0

    @property
    def ranks(self) -> int:
        """Ranks of the run, one an accelerator."""
        return self.dp * self.tp * self.pp

    @property
    def model_parallel(self) -> int:
        """Total degree of model parallelism, `tp * pp`."""
        return self.tp * self.pp

    @property
    def uses_fsdp(self) -> bool:
        """Whether FSDP2 wraps parameters: to shard them, or for its mixed precision on a single replica."""
        return self.dp > 1 or self.precision is not Precision.FP32

    @property
    def is_observed(self) -> bool:
        """Whether arrivals at collectives are recorded; pacing needs them."""
        return self.protocol.observe_synchronisation or self.pacing is not Pacing.OFF

    @property
    def local_batch(self) -> int:
        """Sequences of one data-parallel replica in an iteration."""
        return self.global_batch // self.dp

    @property
    def microbatches(self) -> int:
        """Micro-batches of one replica in an iteration."""
        return self.local_batch // self.micro_batch

    @property
    def tokens_per_iteration(self) -> int:
        """Tokens of one iteration over all ranks."""
        return self.global_batch * self.sequence_length


class CollectiveProtocol(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a collective is measured: calls thrown away, then calls timed one by one, back to back."""

    warmup: NonNegative = 5
    repeats: Positive = 20
    revision: Positive = 1


class CollectiveRun(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="collective"
):
    """One communication primitive over all ranks of some nodes.

    Attributes:
        message_bytes: the whole buffer, as nccl-tests counts it: of an all-gather what each rank ends with, of a
            reduce-scatter what each rank starts with; with `send_recv` each rank sends it to the next one.
    """

    op: CollectiveOp
    hardware: str
    nodes: Positive
    message_bytes: Positive
    dtype: Precision = Precision.BF16
    protocol: CollectiveProtocol = CollectiveProtocol()
    repeat: NonNegative = 0


Run = TrainingRun | CollectiveRun


def ranks_of(run: Run, hardware: Hardware) -> int:
    """Ranks of a run, one an accelerator."""
    return run.ranks if isinstance(run, TrainingRun) else run.nodes * hardware.gpus_per_node


def steps_of(run: Run) -> int:
    """What a run does one after another: iterations, profiled ones included, or calls, thrown away ones included."""
    if isinstance(run, TrainingRun):
        return run.protocol.iterations + run.protocol.profiled_iterations
    return run.protocol.warmup + run.protocol.repeats


#: msgspec looks up a type's annotations at every call, which takes longer than all the rest of an identity.
_fields = functools.cache(msgspec.structs.fields)


def canonical(struct: msgspec.Struct) -> dict[str, Any]:
    """The fields that differ from their default, nested ones likewise, as plain builtins."""
    config = type(struct).__struct_config__
    out: dict[str, Any] = {config.tag_field: config.tag} if config.tag_field else {}
    for field in _fields(type(struct)):
        value = getattr(struct, field.name)
        if isinstance(value, msgspec.Struct):
            nested = canonical(value)
            if nested or field.required:
                out[field.name] = nested
        elif field.required or value != field.default:
            out[field.name] = msgspec.to_builtins(value)
    return out


def canonical_json(run: Run) -> bytes:
    """The identity of a run as bytes: sorted keys, no spaces, defaults left out."""
    return msgspec.json.encode(canonical(run), order="sorted")


def run_id(run: Run) -> str:
    """A readable slug and ten hexadecimal digits of the canonical JSON's SHA-256."""
    if isinstance(run, TrainingRun):
        layout = f"dp{run.dp}-tp{run.tp}-pp{run.pp}"
        batch = f"mb{run.micro_batch}-gb{run.global_batch}-s{run.sequence_length}"
        slug = f"{run.model}_{run.hardware}_n{run.nodes}_{layout}_{batch}_{run.precision}"
    else:
        slug = f"{run.op.replace('_', '-')}_{run.hardware}_n{run.nodes}_{run.message_bytes}B_{run.dtype}"
    return f"{slug}_{hashlib.sha256(canonical_json(run)).hexdigest()[:10]}"


def decode_run(content: bytes) -> Run:
    """A run from its JSON (canonical or full).

    Raises:
        msgspec.ValidationError: the JSON is not a run.
    """
    run: Run = msgspec.json.decode(content, type=Run)
    return run


def encode_run(run: Run) -> bytes:
    """A run as JSON with every field spelled out."""
    return msgspec.json.encode(run)


def collective_violations(run: CollectiveRun, hardware: Hardware) -> list[str]:
    """Every invariant that the run breaks, as sentences; empty for a possible one."""
    ranks, found = ranks_of(run, hardware), []
    if ranks < 2:
        found.append(f"a collective needs at least two ranks, nodes ({run.nodes}) gives {ranks}")
    if run.message_bytes % (ranks * run.dtype.element_bytes):
        found.append(f"message_bytes ({run.message_bytes}) cannot be split evenly over {ranks} ranks of {run.dtype}")
    return found


def can_measure(run: Run, hardware: Hardware) -> bool:
    """Whether ranks on a hardware can measure a run: it is of theirs, and GPUs do not observe synchronisations yet."""
    observed = isinstance(run, TrainingRun) and run.is_observed
    return run.hardware == hardware.name and not (observed and hardware.part is not None)


def violations(run: TrainingRun, model: Model, hardware: Hardware, *, part_of_node: bool = False) -> list[str]:
    """Every invariant that the run breaks, as sentences that say how to mend it; empty for a possible layout.

    Args:
        part_of_node: a run on one node may have fewer ranks than the node has GPUs.
    """

    def indivisible(what: str, value: int, by: str, divisor: int) -> str | None:
        return f"{what} ({value}) is not divisible by {by} ({divisor})" if value % divisor else None

    found: list[str | None] = []
    gpus = run.nodes * hardware.gpus_per_node
    if run.ranks != gpus and not (part_of_node and run.nodes == 1 and run.ranks < gpus):
        found.append(
            f"dp*tp*pp ({run.dp}*{run.tp}*{run.pp} = {run.ranks}) is not the number of GPUs "
            f"({run.nodes} nodes of {hardware.gpus_per_node} = {gpus})"
        )
    found += [
        indivisible("heads", model.heads, "tp", run.tp),
        indivisible("kv_heads", model.kv_heads, "tp", run.tp),
        indivisible("ffn", model.ffn, "tp", run.tp),
        indivisible("vocabulary", model.vocabulary, "tp", run.tp),
        indivisible("sequence_length", run.sequence_length, "tp", run.tp),
        indivisible("layers", model.layers, "pp*virtual_stages", run.pp * run.virtual_stages),
        indivisible("global_batch", run.global_batch, "dp*micro_batch", run.dp * run.micro_batch),
    ]
    if run.pp > 1 and run.microbatches < run.pp:
        found.append(
            f"a pipeline of {run.pp} stages needs at least {run.pp} micro-batches, "
            f"global_batch/(dp*micro_batch) gives {run.microbatches}"
        )
    if run.virtual_stages > 1 and run.schedule is not PipelineSchedule.INTERLEAVED:
        found.append(f"virtual_stages ({run.virtual_stages}) needs the schedule {PipelineSchedule.INTERLEAVED}")
    if run.schedule is PipelineSchedule.INTERLEAVED:
        if run.pp == 1 or run.virtual_stages == 1:
            found.append(f"the schedule {run.schedule} needs pp > 1 and virtual_stages > 1")
        rounds = max(1, run.microbatches // run.pp)
        found.append(indivisible("micro-batches", run.microbatches, "rounds of the interleaved schedule", rounds))
    return [sentence for sentence in found if sentence]
