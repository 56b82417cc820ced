"""The order of passes and messages, by hand for small pipelines, and what must hold for all of them."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling_study.predict.pipeline import ActionKind, actions_of, stages_of
from scaling_study.spec import PipelineSchedule
from tests.unit.samples import bounded, training_run

SHORT = {
    ActionKind.FORWARD: "F",
    ActionKind.BACKWARD: "B",
    ActionKind.SEND_FORWARD: "s",
    ActionKind.SEND_BACKWARD: "t",
    ActionKind.RECEIVE_FORWARD: "r",
    ActionKind.RECEIVE_BACKWARD: "q",
    ActionKind.UNSHARD: "U",
    ActionKind.RESHARD: "R",
    ActionKind.REDUCE: "G",
    ActionKind.UPDATE: "!",
}


def pipeline(pp, microbatches, virtual_stages=1):
    schedule = PipelineSchedule.INTERLEAVED if virtual_stages > 1 else PipelineSchedule.ONE_F_ONE_B
    return training_run(dp=1, pp=pp, global_batch=microbatches, virtual_stages=virtual_stages, schedule=schedule)


def written(run, rank):
    """Actions as letters, passes with the number of their micro-batch."""
    letters = []
    for action in actions_of(run, rank):
        letters.append(SHORT[action.kind] + (str(action.microbatch) if action.kind in "forward backward" else ""))
    return " ".join(letters)


def test_micro_batches_follow_one_another_without_a_pipeline():
    assert written(pipeline(1, 3), 0) == "F0 B0 F1 B1 F2 B2 !"


@pytest.mark.parametrize(
    ("rank", "expected"),
    [
        (0, "F0 s F1 s F2 s q B0 F3 s q B1 q B2 q B3 G !"),
        (1, "r F0 s r F1 s q B0 t r F2 s q B1 t r F3 s q B2 t q B3 t G !"),
        (2, "r F0 B0 t r F1 B1 t r F2 B2 t r F3 B3 t G !"),
    ],
)
def test_one_forward_one_backward(rank, expected):
    assert written(pipeline(3, 4), rank) == expected


def test_interleaved_passes_of_two_ranks():
    """Depth first: both stages of a rank work on two micro-batches before the next two (Narayanan et al., 2021)."""
    first = [a for a in actions_of(pipeline(2, 4, 2), 0) if a.kind in (ActionKind.FORWARD, ActionKind.BACKWARD)]
    order = [(SHORT[a.kind], a.stage, a.microbatch) for a in first]
    assert order[:8] == [
        ("F", 0, 0),
        ("F", 0, 1),
        ("F", 2, 0),
        ("F", 2, 1),
        ("F", 0, 2),
        ("B", 2, 0),
        ("F", 0, 3),
        ("B", 2, 1),
    ]


def test_interleaved_gathers_stages_ahead_and_lets_them_go_at_the_end():
    letters = written(pipeline(2, 4, 2), 0).split()
    assert letters[:4] == ["U", "U", "F0", "s"]
    assert letters[-3:] == ["G", "R", "!"]


shapes = st.tuples(st.integers(2, 4), st.integers(1, 3), st.integers(1, 4))


@bounded
@given(shapes)
def test_every_message_that_is_sent_is_received(shape):
    pp, virtual_stages, rounds = shape
    run = pipeline(pp, pp * rounds, virtual_stages)
    sent, received = Counter(), Counter()
    for rank in range(pp):
        for action in actions_of(run, rank):
            if action.kind is ActionKind.SEND_FORWARD:
                sent["forward", action.stage + 1, action.microbatch] += 1
            elif action.kind is ActionKind.SEND_BACKWARD:
                sent["backward", action.stage - 1, action.microbatch] += 1
            elif action.kind is ActionKind.RECEIVE_FORWARD:
                received["forward", action.stage, action.microbatch] += 1
            elif action.kind is ActionKind.RECEIVE_BACKWARD:
                received["backward", action.stage, action.microbatch] += 1
    stages = pp * virtual_stages
    assert sent == received
    assert set(sent.values()) == {1}
    assert len(sent) == 2 * (stages - 1) * run.microbatches


@bounded
@given(shapes)
def test_every_stage_passes_every_micro_batch_forward_then_backward(shape):
    pp, virtual_stages, rounds = shape
    run = pipeline(pp, pp * rounds, virtual_stages)
    for rank in range(pp):
        place = {(a.kind, a.stage, a.microbatch): i for i, a in enumerate(actions_of(run, rank))}
        for stage in stages_of(run, rank):
            for index in range(run.microbatches):
                forward, backward = (place[k, stage, index] for k in (ActionKind.FORWARD, ActionKind.BACKWARD))
                assert forward < backward < place[ActionKind.REDUCE, stage, -1]
                if stage > 0:
                    assert place[ActionKind.RECEIVE_FORWARD, stage, index] < forward
                if stage < pp * virtual_stages - 1:
                    assert place[ActionKind.RECEIVE_BACKWARD, stage, index] < backward


@bounded
@given(shapes)
def test_micro_batches_in_flight_do_not_exceed_what_the_schedule_allows(shape):
    pp, virtual_stages, rounds = shape
    run = pipeline(pp, pp * rounds, virtual_stages)
    for rank in range(pp):
        flying = most = 0
        for action in actions_of(run, rank):
            flying += (action.kind is ActionKind.FORWARD) - (action.kind is ActionKind.BACKWARD)
            most = max(most, flying)
        allowed = pp - rank if virtual_stages == 1 else (virtual_stages - 1) * pp + 2 * (pp - 1 - rank) + 1
        assert most == min(allowed, run.microbatches * virtual_stages)
