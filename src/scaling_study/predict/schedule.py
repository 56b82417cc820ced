"""The timeline of an iteration: every stage of a pipeline works through its actions, and waits for messages.

Passes take what the closed form says of a stage (`fast`), their inside is `passes`, their order is PyTorch's
(`pipeline`). One rank a stage; nothing is random. The end of the timeline and the closed form agree within a per cent.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from scaling_study.predict.batch import Batch, batch_of
from scaling_study.predict.fast import Iteration, iteration, layer_parameters
from scaling_study.predict.parameters import Constants
from scaling_study.predict.passes import (
    COMPUTE_STREAM,
    DATA_STREAM,
    PIPELINE_STREAM,
    Beside,
    BlockTimes,
    Pass,
    Span,
    build_pass,
)
from scaling_study.predict.pipeline import Action, ActionKind, actions_of, needed_message
from scaling_study.predict.setup import Setup
from scaling_study.spec import Axis, SpanKind, TrainingRun
from scaling_study.timeline import SCHEMA

Integers = NDArray[np.int64]

_BYTES = 2
_PASSES = (ActionKind.FORWARD, ActionKind.BACKWARD)
_RECEIVES = (ActionKind.RECEIVE_FORWARD, ActionKind.RECEIVE_BACKWARD)
_SENDS = {
    ActionKind.SEND_FORWARD: (ActionKind.RECEIVE_FORWARD, 1),
    ActionKind.SEND_BACKWARD: (ActionKind.RECEIVE_BACKWARD, -1),
}


#: The pass of a direction (backward?), of a micro-batch's place, of a stage's place.
Passes = Callable[[bool, str, str], Pass]


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """Spans of one iteration, a rank a stage, and its length."""

    spans: pl.DataFrame
    iteration_ns: int


class _Placed(msgspec.Struct, frozen=True):
    """Spans that start at a moment on a rank."""

    rank: int
    at_s: float
    spans: tuple[Span, ...]


def timeline(run: TrainingRun, setup: Setup, constants: Constants) -> Timeline:
    """Simulate one iteration of a run."""
    batch = batch_of([setup])
    found = iteration(batch, constants, setup.part.family)

    @functools.cache
    def passes(backward: bool, place: str, ends: str) -> Pass:
        return _pass(batch, found, constants, run, backward, place, ends)

    placed, end_s = _simulate(run, passes, float(found.message[0]))
    placed, total_s = _finish(run, batch, found, constants, placed, end_s)
    return Timeline(spans=_table(placed), iteration_ns=round(total_s * 1e9))


def _ends(run: TrainingRun, stage: int) -> str:
    if run.pp == 1 or stage == run.pp * run.virtual_stages - 1:
        return "last"
    return "first" if stage == 0 else "middle"


def _pass(
    batch: Batch, found: Iteration, constants: Constants, run: TrainingRun, backward: bool, place: str, ends: str
) -> Pass:
    """A pass of a stage: the first forward pass gathers, the last backward pass reduces."""
    block, setup_layers = found.block, float(batch.stage_layers[0])
    whole, compute, exposed = (
        (block.backward, block.backward_compute, block.backward_exposed)
        if backward
        else (block.forward, block.forward_compute, block.forward_exposed)
    )
    tensor = bool(batch.tp[0] > 1)
    times = BlockTimes(
        whole=float(whole[0]),
        compute=float(compute[0]),
        exposed=float(exposed[0]) if tensor else 0.0,
        wire=float(block.tensor_wire[0]) / 2,
        attention_share=_attention_share(batch),
        tensor=tensor,
        sequence=bool(batch.sequence_parallel[0]),
        message_bytes=int(_BYTES * batch.tokens[0] * batch.hidden[0]),
    )
    stage = found.stage_backward if backward else found.stage_forward
    around = float(stage[0]) - setup_layers * times.whole if ends == "last" else 0.0
    blocks = int(setup_layers) // run.virtual_stages
    beside = _beside(batch, found, constants, backward, place)
    made = build_pass(blocks, times, beside, around, backward=backward)
    sync = constants.stage_sync_us * 1e-6 / len(_PASSES) if run.pp > 1 else 0.0
    return msgspec.structs.replace(made, seconds=made.seconds + sync)


def _beside(batch: Batch, found: Iteration, constants: Constants, backward: bool, place: str) -> Beside:
    if not batch.gathers[0] or batch.shard_group[0] * batch.cp[0] == 1:
        return Beside()
    gathers = bool(batch.reshard[0]) or (place == "first" and not backward)
    reduces = backward and (place == "last" or bool(batch.sync_every_microbatch[0]))
    parameters = float(layer_parameters(batch)[0])
    return Beside(
        gather=float(found.gather[0]) if gathers else 0.0,
        reduce=float(found.reduce[0]) if reduces else 0.0,
        gather_ends=float(found.gather_ends[0]) if gathers and not backward else 0.0,
        reduce_ends=float(found.reduce_ends[0]) if reduces else 0.0,
        gather_bytes=int(_BYTES * parameters),
        reduce_bytes=int(batch.reduce_bytes[0] * parameters),
        slowdown=constants.overlap_slowdown,
    )


def _attention_share(batch: Batch) -> float:
    """Attention's share of a block's FLOPs."""
    width, ffn = float(batch.hidden[0]), float(batch.ffn[0]) * (3 if batch.gated[0] else 2)
    attention = 2 * width * (1 + float(batch.kv_share[0])) + float(batch.sequence[0])
    return attention / (attention + ffn)


def _simulate(run: TrainingRun, passes: Passes, message_s: float) -> tuple[list[_Placed], float]:
    """Every rank goes on as soon as what its next action needs has arrived; the last one's end is the pipeline's."""
    lists, stages = [actions_of(run, rank) for rank in range(run.pp)], run.pp * run.virtual_stages
    position, clock = [0] * run.pp, [0.0] * run.pp
    sent: dict[Action, float] = {}
    posted: dict[Action, float] = {}
    placed: list[_Placed] = []
    message = (_message(message_s),)
    while any(position[rank] < len(lists[rank]) for rank in range(run.pp)):
        moved = False
        for rank, actions in enumerate(lists):
            while position[rank] < len(actions):
                action = actions[position[rank]]
                needed = needed_message(action, stages)
                if needed is not None and needed not in sent:
                    break
                if needed is not None:
                    start = max(posted[needed], sent[needed])
                    placed.append(_Placed(rank, start, message))
                    clock[rank] = max(clock[rank], start + message_s)
                clock[rank] = _do(action, run, passes, rank, clock[rank], sent, posted, placed)
                position[rank] += 1
                moved = True
        assert moved, "PyTorch's schedules do not wait for each other for ever"
    return placed, max(clock)


def _do(
    action: Action, run: TrainingRun, passes: Passes, rank: int, now: float,
    sent: dict[Action, float], posted: dict[Action, float], placed: list[_Placed],
) -> float:  # fmt: skip
    """The rank's clock after an action. A message starts when both of its sides are there."""
    if action.kind in _PASSES:
        backward = action.kind is ActionKind.BACKWARD
        found = passes(backward, _place(run, action), _ends(run, action.stage))
        placed.append(_Placed(rank, now, found.spans))
        return now + found.seconds
    if action.kind in _SENDS:
        receive, step = _SENDS[action.kind]
        sent[Action(receive, action.stage + step, action.microbatch)] = now
    elif action.kind in _RECEIVES:
        posted[action] = now
    return now


def _message(seconds: float) -> Span:
    return Span(PIPELINE_STREAM, SpanKind.COMMUNICATION, "send_recv", Axis.PIPELINE, None, 0.0, seconds)


def _place(run: TrainingRun, action: Action) -> str:
    if action.kind is ActionKind.FORWARD:
        return "first" if action.microbatch == 0 else "between"
    return "last" if action.microbatch == run.microbatches - 1 else "between"


def _finish(
    run: TrainingRun, batch: Batch, found: Iteration, constants: Constants, placed: list[_Placed], end_s: float
) -> tuple[list[_Placed], float]:
    """What follows the pipeline on every rank: skew of arrival, late reductions, the optimizer."""
    jitter = 1 + constants.scale_jitter * float(np.log2(max(1.0, batch.gpus[0] / batch.gpus_per_node[0])))
    stages = 1 + (constants.stage_jitter if run.pp > 1 else 0.0)
    late = float(found.reduction[0])
    reached = (end_s * stages + late) * jitter
    total = reached + float(found.optimizer[0])
    waits = Span(DATA_STREAM, SpanKind.COMMUNICATION, "arrival", Axis.DATA, None, 0.0, reached - end_s)
    steps = Span(COMPUTE_STREAM, SpanKind.COMPUTE, "optimizer", None, None, reached - end_s, total - end_s)
    tail = [_Placed(rank, end_s, (waits, steps) if reached > end_s else (steps,)) for rank in range(run.pp)]
    return [*placed, *tail], total


def _table(placed: list[_Placed]) -> pl.DataFrame:
    """The span table; times in nanoseconds from the start of the iteration.

    Passes repeat: the spans of each are looked at once, and its rows taken as often as it was placed.
    """
    distinct = {id(one.spans): one.spans for one in placed}
    first_row = dict(zip(distinct, np.cumsum([0, *map(len, distinct.values())]).tolist(), strict=False))
    once = [span for spans in distinct.values() for span in spans]
    counts = np.array([len(one.spans) for one in placed])
    starts_at = np.array([first_row[id(one.spans)] for one in placed])
    taken = np.arange(counts.sum()) + np.repeat(starts_at - np.concatenate([[0], np.cumsum(counts)[:-1]]), counts)
    offsets = np.repeat(np.array([one.at_s for one in placed]), counts)

    def nanoseconds(seconds: list[float]) -> Integers:
        whole: Integers = np.rint((offsets + np.array(seconds)[taken]) * 1e9).astype(np.int64)
        return whole

    axes = [span.axis.value if span.axis else None for span in once]
    described = pl.DataFrame(
        {
            "stream": [span.stream for span in once],
            "kind": [span.kind.value for span in once],
            "op": [span.op for span in once],
            "group": [f"mesh_{axis}" if axis else None for axis in axes],
            "axis": axes,
            "bytes": [span.message_bytes for span in once],
        },
        schema={name: SCHEMA[name] for name in ("stream", "kind", "op", "group", "axis", "bytes")},
    )
    rows: pl.DataFrame = described[taken]
    return (
        rows.with_columns(
            rank=pl.Series(np.repeat([one.rank for one in placed], counts), dtype=SCHEMA["rank"]),
            start_ns=pl.Series(nanoseconds([span.start_s for span in once])),
            end_ns=pl.Series(nanoseconds([span.end_s for span in once])),
        )
        .select(*SCHEMA)
        .sort("rank", "start_ns", "end_ns", maintain_order=True)
    )
