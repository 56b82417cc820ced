"""A primitive over whole nodes is the collective that training does, and a message goes to the next rank."""

import numpy as np
import pytest

from scaling_study.predict.collectives import Group, all_gather, all_reduce, fabric_of
from scaling_study.predict.parameters import prior
from scaling_study.predict.primitives import batch_of_part, primitive_seconds
from scaling_study.spec import CollectiveOp
from tests.unit.predict.setups import H100, ROUND

MIB = 2**20


def seconds(op, nodes, gpus, message, part=ROUND, **fields):
    columns = (np.array([float(value)]) for value in (nodes, gpus, message))
    return float(primitive_seconds(part, prior(part.family), op, *columns, **fields)[0])


@pytest.mark.parametrize(
    ("op", "operation"),
    [
        (CollectiveOp.ALL_REDUCE, all_reduce),
        (CollectiveOp.ALL_GATHER, all_gather),
        (CollectiveOp.REDUCE_SCATTER, all_gather),
    ],
)
def test_a_primitive_is_a_collective_of_all_ranks(op, operation):
    fabric = fabric_of(batch_of_part(ROUND), prior("a100"), "a100")
    group = Group(ranks=np.array([32.0]), per_node=np.array([8.0]), network_bytes_per_s=np.array([100e9]))
    assert seconds(op, 4, 32, 64 * MIB) == float(operation(fabric, group, np.array([64.0 * MIB]))[0])


def test_a_message_between_nodes_takes_its_bytes_over_one_adapter():
    constants, message = prior("a100"), 1e12
    across = seconds(CollectiveOp.SEND_RECV, 2, 16, message)
    assert across == pytest.approx(message / (constants.network_rate * 100e9 / 8), rel=1e-3)
    inside = seconds(CollectiveOp.SEND_RECV, 1, 8, message)
    assert inside == pytest.approx(message / (constants.ring_rate * 100e9), rel=1e-3)


@pytest.mark.parametrize("op", list(CollectiveOp))
def test_a_slower_hop_costs_between_nodes_alone(op):
    small = 1024
    assert seconds(op, 1, 8, small, H100, network_hop_us=3.0) == seconds(op, 1, 8, small, H100)
    steps = {CollectiveOp.ALL_REDUCE: 2, CollectiveOp.SEND_RECV: 1}.get(op, 1)
    slower = seconds(op, 2, 16, small, H100, network_hop_us=3.0) - seconds(op, 2, 16, small, H100)
    assert slower == pytest.approx(3e-6 * steps, rel=0.01)


def test_a_domain_of_72_is_one_node():
    inside = seconds(CollectiveOp.ALL_GATHER, 1, 72, 64 * MIB, H100)
    across = seconds(CollectiveOp.ALL_GATHER, 9, 72, 64 * MIB, H100)
    assert inside < across
