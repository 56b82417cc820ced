"""The order in which a rank of a pipeline works: passes of micro-batches through its stages, messages between them.

It is PyTorch's own order (`torch.distributed.pipelining.schedules`, 2.13): 1F1B (Narayanan et al., 2019) with fused
sends and receives, and interleaved 1F1B (Narayanan et al., 2021), where FSDP gathers whole stages ahead and each
receive is posted when its sender has sent. Without a pipeline, micro-batches follow one another.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator
from enum import StrEnum

import msgspec

from scaling_study.spec import PipelineSchedule, TrainingRun

#: Stages whose parameters may be gathered at once with an interleaved schedule (`_add_unshard_reshard`).
GATHERED_STAGES = 3


class ActionKind(StrEnum):
    """What a rank does next."""

    FORWARD = "forward"
    BACKWARD = "backward"
    SEND_FORWARD = "send_forward"
    SEND_BACKWARD = "send_backward"
    RECEIVE_FORWARD = "receive_forward"
    RECEIVE_BACKWARD = "receive_backward"
    UNSHARD = "unshard"
    RESHARD = "reshard"
    REDUCE = "reduce"
    UPDATE = "update"


class Action(msgspec.Struct, frozen=True):
    """One action on one stage; stage or micro-batch are -1 where the action concerns them all."""

    kind: ActionKind
    stage: int = -1
    microbatch: int = -1


def stages_of(run: TrainingRun, pipeline_rank: int) -> range:
    """The stages that a pipeline rank holds, counted over the whole pipeline."""
    return range(pipeline_rank, run.pp * run.virtual_stages, run.pp)


def reduces_gradients(run: TrainingRun, action: Action) -> bool:
    """Whether a backward pass reduces gradients itself; a pipeline does so afterwards."""
    last = action.microbatch == run.microbatches - 1
    return action.kind is ActionKind.BACKWARD and run.pp == 1 and last


def gathered_after(run: TrainingRun, action: Action, *, gathered: bool) -> bool:
    """Whether FSDP2 has a stage's parameters gathered after an action, if it had them `gathered` before.

    Inside a pipeline it never lets go of them after a backward pass.
    """
    if action.kind is ActionKind.FORWARD:
        return not run.reshard_after_forward
    if action.kind is ActionKind.BACKWARD:
        return run.pp > 1 or not (reduces_gradients(run, action) or run.reshard_after_forward)
    releases = action.kind in (ActionKind.RESHARD, ActionKind.REDUCE)
    return action.kind is ActionKind.UNSHARD or (gathered and not releases)


def actions_of(run: TrainingRun, pipeline_rank: int) -> tuple[Action, ...]:
    """What a pipeline rank does in one iteration, in order."""
    update = Action(ActionKind.UPDATE)
    if run.pp == 1:
        return (*_accumulate(run.microbatches), update)
    if run.schedule is PipelineSchedule.INTERLEAVED:
        return (*_interleaved(run.pp, run.virtual_stages, run.microbatches)[pipeline_rank], update)
    return (*_one_f_one_b(pipeline_rank, run.pp, run.microbatches), update)


def _accumulate(microbatches: int) -> Iterator[Action]:
    for index in range(microbatches):
        yield Action(ActionKind.FORWARD, 0, index)
        yield Action(ActionKind.BACKWARD, 0, index)


def _one_f_one_b(stage: int, stages: int, microbatches: int) -> Iterator[Action]:
    """`Schedule1F1B`: warm-up, then a backward and a forward pass in turn, then what is left of the backward passes."""
    first, last = stage == 0, stage == stages - 1
    warmup = min(microbatches, stages - stage)

    def only(kind: ActionKind, microbatch: int, *, there: bool) -> list[Action]:
        return [Action(kind, stage, microbatch)] if there else []

    for index in range(warmup):
        yield from only(ActionKind.RECEIVE_FORWARD, index, there=not first)
        yield Action(ActionKind.FORWARD, stage, index)
        yield from only(ActionKind.SEND_FORWARD, index, there=not last and index < warmup - 1)
    for index in range(microbatches):
        forward = warmup + index - 1  # the forward pass that has not been sent yet
        if forward < microbatches:
            yield from only(ActionKind.SEND_FORWARD, forward, there=not last)
        yield from only(ActionKind.RECEIVE_BACKWARD, index, there=not last)
        yield Action(ActionKind.BACKWARD, stage, index)
        yield from only(ActionKind.SEND_BACKWARD, index, there=not first)
        if warmup + index < microbatches:
            yield from only(ActionKind.RECEIVE_FORWARD, warmup + index, there=not first)
            yield Action(ActionKind.FORWARD, stage, warmup + index)
    yield Action(ActionKind.REDUCE, stage)


@functools.lru_cache(maxsize=32)
def _interleaved(ranks: int, virtual_stages: int, microbatches: int) -> tuple[tuple[Action, ...], ...]:
    """`ScheduleInterleaved1F1B` of every rank; one rank's receives follow from the others' sends."""
    passes = [_interleaved_passes(rank, ranks, virtual_stages, microbatches) for rank in range(ranks)]
    prepared = [list(_with_reduction(_with_gathers(one), microbatches)) for one in passes]
    return tuple(tuple(one) for one in _with_messages(prepared, ranks * virtual_stages))


def _interleaved_passes(rank: int, ranks: int, virtual_stages: int, microbatches: int) -> list[Action]:
    """Forward and backward passes alone (`_get_1f1b_rank_ops`)."""
    rounds = max(1, microbatches // ranks)
    in_round = microbatches // rounds
    total = virtual_stages * microbatches
    warmup = min((virtual_stages - 1) * in_round + 2 * (ranks - 1 - rank), total)
    done: Counter[tuple[ActionKind, int]] = Counter()

    def next_pass(kind: ActionKind, local_stage: int) -> Action:
        stage = local_stage * ranks + rank
        done[kind, stage] += 1
        return Action(kind, stage, done[kind, stage] - 1)

    passes: list[Action] = []
    for index in range(warmup + total):
        if index < total:
            passes.append(next_pass(ActionKind.FORWARD, index // in_round % virtual_stages))
        if index >= warmup:
            local = virtual_stages - 1 - (index - warmup) // in_round % virtual_stages
            passes.append(next_pass(ActionKind.BACKWARD, local))
    return passes


def _with_gathers(passes: list[Action]) -> Iterator[Action]:
    """Before a pass, the next stages are gathered and others let go (`_add_unshard_reshard`)."""
    active: set[int] = set()
    for index, action in enumerate(passes):
        wanted = _next_stages(passes, index)
        for stage in [stage for stage in active if stage not in wanted]:
            active.remove(stage)
            yield Action(ActionKind.RESHARD, stage)
        for stage in [stage for stage in wanted if stage not in active]:
            active.add(stage)
            yield Action(ActionKind.UNSHARD, stage)
        yield action
    for stage in active:
        yield Action(ActionKind.RESHARD, stage)


def _next_stages(passes: list[Action], start: int) -> list[int]:
    found: list[int] = []
    for index in range(start, len(passes)):
        if passes[index].stage not in found:
            found.append(passes[index].stage)
            if len(found) == GATHERED_STAGES:
                break
    return found


def _with_reduction(actions: Iterator[Action], microbatches: int) -> Iterator[Action]:
    """A stage's gradients are reduced after its last backward pass (`_add_reduce_grad`)."""
    done: Counter[int] = Counter()
    for action in actions:
        yield action
        if action.kind is ActionKind.BACKWARD:
            done[action.stage] += 1
            if done[action.stage] == microbatches:
                yield Action(ActionKind.REDUCE, action.stage)


def _with_messages(waiting: list[list[Action]], stages: int) -> list[list[Action]]:
    """Sends after the passes that make them; the receive goes to its rank's list at once (`_add_send_recv`)."""
    ranks = len(waiting)
    position = [0] * ranks
    ordered: list[list[Action]] = [[] for _ in waiting]
    received: set[Action] = set()
    while any(position[rank] < len(waiting[rank]) for rank in range(ranks)):
        for rank in range(ranks):
            if position[rank] == len(waiting[rank]):
                continue
            action = waiting[rank][position[rank]]
            needed = needed_message(action, stages)
            if needed is not None and needed not in received:
                continue
            position[rank] += 1
            ordered[rank].append(action)
            if message := _message(action, stages):
                send, receive = message
                ordered[rank].append(send)
                ordered[receive.stage % ranks].append(receive)
                received.add(receive)
    return ordered


def needed_message(action: Action, stages: int) -> Action | None:
    """What must have been received before a pass, in a pipeline of so many stages."""
    if action.kind is ActionKind.FORWARD and action.stage > 0:
        return Action(ActionKind.RECEIVE_FORWARD, action.stage, action.microbatch)
    if action.kind is ActionKind.BACKWARD and action.stage < stages - 1:
        return Action(ActionKind.RECEIVE_BACKWARD, action.stage, action.microbatch)
    return None


def _message(action: Action, stages: int) -> tuple[Action, Action] | None:
    """The two halves of the message that a pass makes."""
    stage, index = action.stage, action.microbatch
    if action.kind is ActionKind.FORWARD and stage < stages - 1:
        return Action(ActionKind.SEND_FORWARD, stage, index), Action(ActionKind.RECEIVE_FORWARD, stage + 1, index)
    if action.kind is ActionKind.BACKWARD and stage > 0:
        return Action(ActionKind.SEND_BACKWARD, stage, index), Action(ActionKind.RECEIVE_BACKWARD, stage - 1, index)
    return None
