"""Collectives by hand, in their limits, and against public measurements."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling_study.predict.collectives import Group, all_gather, all_reduce, fabric_of, group_of, send
from scaling_study.predict.parameters import prior
from tests.unit.predict.setups import H100, LIBRARY, one
from tests.unit.samples import bounded

MIB = 2**20
CONSTANTS = prior("a100")


def fabric(family="a100", **fields):
    return fabric_of(one(**fields), prior(family), family)


def group(ranks, per_node, network=200e9):
    return Group(
        ranks=np.array([float(ranks)]), per_node=np.array([float(per_node)]), network_bytes_per_s=np.array([network])
    )


def seconds(operation, on, of, message):
    return float(operation(on, of, np.array([float(message)]))[0])


@pytest.mark.parametrize("operation", [all_reduce, all_gather])
def test_one_rank_communicates_nothing(operation):
    assert seconds(operation, fabric(), group(1, 1), 1e9) == 0


def test_a_large_message_takes_its_bytes_over_the_slowest_link():
    inside = 300e9 * CONSTANTS.ring_rate
    large = 1e13
    assert seconds(all_gather, fabric(), group(8, 8), large) == pytest.approx(large * 7 / 8 / inside, rel=1e-3)
    assert seconds(all_reduce, fabric(), group(8, 8), large) == pytest.approx(2 * large * 7 / 8 / inside, rel=1e-3)
    across = 200e9 * CONSTANTS.network_rate
    assert seconds(all_gather, fabric(), group(64, 8), large) == pytest.approx(large * 63 / 64 / across, rel=1e-3)


def test_a_small_message_takes_the_latency_of_its_steps():
    # LL on one node: 6.6 us and 0.6 us for each of seven steps (NCCL's tuning.cc).
    assert seconds(all_gather, fabric(), group(8, 8), 8) == pytest.approx((6.6 + 7 * 0.6) * 1e-6, rel=1e-3)


def test_all_gather_is_bound_by_latency_at_scale_and_all_reduce_is_not():
    def bus(operation, rounds, nodes):
        time = seconds(operation, fabric("h100", part=H100), group(8 * nodes, 8, 400e9), 64 * MIB)
        return rounds * 64 * MIB * (8 * nodes - 1) / (8 * nodes) / time

    assert bus(all_gather, 1, 256) < bus(all_gather, 1, 4) / 5
    assert bus(all_reduce, 2, 256) > bus(all_reduce, 2, 4) / 2.5


@bounded
@given(
    nodes=st.integers(1, 64), message=st.floats(8, 1e10), operation=st.sampled_from([all_reduce, all_gather]),
    family=st.sampled_from(["a100", "h100", "v100"]),
)  # fmt: skip
def test_more_bytes_and_more_nodes_never_take_less(nodes, message, operation, family):
    on = fabric(family)
    time = seconds(operation, on, group(8 * nodes, 8), message)
    assert seconds(operation, on, group(8 * nodes, 8), 2 * message) >= time
    assert seconds(operation, on, group(16 * nodes, 8), message) >= time * 0.999
    assert seconds(operation, on, group(8 * nodes, 8, 400e9), message) <= time


def test_groups_share_the_network_of_their_node():
    # tp 4 on 8 nodes: data-parallel groups have two ranks a node, and four such groups share its network.
    batch = one(tp=4, dp=16, global_batch=16)
    found = group_of(batch, np.array([4.0]), np.array([16.0]))
    assert (found.per_node[0], found.nodes[0], found.network_bytes_per_s[0]) == (2, 8, 200e9 / 4)
    inside = group_of(batch, np.array([1.0]), np.array([4.0]))
    assert (inside.per_node[0], inside.nodes[0]) == (4, 1)


def test_a_hybrid_cube_mesh_is_slow_between_two_and_fast_between_eight():
    v100 = LIBRARY.part("V100-SXM2-32GB")
    on = fabric_of(one(part=v100, power_limit_w=300), prior("v100"), "v100")
    # vtrain_allreduce_lut, V100: 1 GiB over 2 GPUs 47.6 ms, over 8 GPUs 14.0 ms.
    assert seconds(all_reduce, on, group(2, 2), 1024 * MIB) == pytest.approx(47.6e-3, rel=0.15)
    assert seconds(all_reduce, on, group(8, 8), 1024 * MIB) == pytest.approx(14.0e-3, rel=0.15)


@pytest.mark.parametrize(
    ("family", "operation", "ranks", "message_mib", "measured_us"),
    [
        ("h100", all_gather, 8, 1024, 2689.3),  # nccl_issue_1047, reduce-scatter by ring
        ("h100", all_gather, 8, 128, 377.2),
        ("a100", all_reduce, 8, 64, 675.0),  # vidur_a100_dgx
        ("a100", all_reduce, 8, 8, 155.0),
        ("a100", all_reduce, 4, 1024, 7259.4),  # vtrain_allreduce_lut
        ("h100", all_reduce, 8, 64, 322.0),  # vidur_h100_dgx
        ("h100", all_reduce, 8, 512, 2086.5),  # stas00_h200_1node
    ],
)
def test_public_measurements_inside_a_node_are_met(family, operation, ranks, message_mib, measured_us):
    on = fabric(family, part=H100) if family == "h100" else fabric(family)
    time = seconds(operation, on, group(ranks, ranks), message_mib * MIB)
    assert time * 1e6 == pytest.approx(measured_us, rel=0.3)  # a third at 8 MiB, a few per cent from 128 MiB on


@pytest.mark.parametrize(("nodes", "measured_us"), [(4, 5910.2), (32, 6218.3), (256, 6901.7)])
def test_public_measurements_across_nodes_are_met(nodes, measured_us):
    """All-reduce of 1 GiB (nvidia_gtc24_s62129_slide35)."""
    time = seconds(all_reduce, fabric("h100", part=H100), group(8 * nodes, 8, 400e9), 1024 * MIB)
    assert time * 1e6 == pytest.approx(measured_us, rel=0.1)


def test_a_message_between_nodes_has_its_gpus_share_of_the_network():
    batch = one(tp=8, pp=2, dp=1, global_batch=2)
    time = float(send(fabric(), batch, np.array([8.0]), np.array([1e12]))[0])
    assert time == pytest.approx(1e12 / (200e9 * CONSTANTS.network_rate / 8), rel=1e-3)
    assert float(send(fabric(), batch, np.array([4.0]), np.array([1e12]))[0]) < time
