"""Every state of Slurm's documentation, and words that are none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling_study.submit.slurm.states import STATES, UNKNOWN, Cause, Phase, state_of
from tests.unit.samples import bounded

#: squeue(1) JOB STATE CODES and sacct(1), Slurm 22.05 to 24.11.
DOCUMENTED = [
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "CONFIGURING",
    "COMPLETING",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PENDING",
    "PREEMPTED",
    "RUNNING",
    "RESV_DEL_HOLD",
    "REQUEUE_FED",
    "REQUEUE_HOLD",
    "REQUEUED",
    "RESIZING",
    "REVOKED",
    "SIGNALING",
    "SPECIAL_EXIT",
    "STAGE_OUT",
    "STOPPED",
    "SUSPENDED",
    "TIMEOUT",
    "LAUNCH_FAILED",
    "POWER_UP_NODE",
    "RECONFIG_FAIL",
    "UPDATE_DB",
]


def test_every_documented_state_has_its_meaning():
    assert set(STATES) == set(DOCUMENTED)


def test_only_what_has_ended_has_a_cause():
    assert all((state.cause is not None) == (state.phase is Phase.ENDED) for state in STATES.values())


@pytest.mark.parametrize(
    ("word", "phase", "cause"),
    [
        ("CONFIGURING", Phase.WAITING, None),
        ("SUSPENDED", Phase.RUNNING, None),
        ("REQUEUE_HOLD", Phase.WAITING, None),
        ("RESIZING", Phase.RUNNING, None),
        ("STOPPED", Phase.RUNNING, None),
        ("COMPLETING", Phase.RUNNING, None),
        ("PREEMPTED", Phase.ENDED, Cause.INFRASTRUCTURE),
        ("NODE_FAIL", Phase.ENDED, Cause.INFRASTRUCTURE),
        ("TIMEOUT", Phase.ENDED, Cause.TIME_LIMIT),
        ("OUT_OF_MEMORY", Phase.ENDED, Cause.OUT_OF_MEMORY),
        ("CANCELLED by 1000", Phase.ENDED, Cause.CANCELLED),
        ("CANCELLED+", Phase.ENDED, Cause.CANCELLED),
        (" completed ", Phase.ENDED, Cause.DONE),
    ],
)
def test_words_of_squeue_and_sacct(word, phase, cause):
    assert (state_of(word).phase, state_of(word).cause) == (phase, cause)


@bounded
@given(st.text(max_size=20))
def test_another_word_is_unknown_and_never_an_end(word):
    first = word.strip().split(" ")[0].rstrip("+").upper() if word.strip() else ""
    if first not in STATES:
        assert state_of(word) == UNKNOWN
