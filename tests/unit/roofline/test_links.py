"""What must pass links: closed forms, the third document's napkin, and what no algorithm goes below."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling_study.roofline import Link, Load, group_of_nodes, links_of, load_of, ring_s
from scaling_study.roofline.links import Group, group_of
from scaling_study.spec import Axis, CollectiveOp, TrainingRun
from tests.unit.samples import CONFIG, bounded

H100 = CONFIG.catalogue.hardware["h100"]
OPS = list(CollectiveOp)


def run(**fields):
    defaults = {"model": "llama2-7b", "hardware": "h100", "micro_batch": 1, "global_batch": 512}
    return TrainingRun(**{**defaults, **fields})


def test_links_of_a_node_the_fastest_first():
    links = links_of(H100)
    assert [(name, link.bytes_per_s) for name, link in links.items()] == [
        ("nvlink", 450e9),
        ("pcie", 64e9),
        ("network", 50e9),
    ]
    assert links_of(CONFIG.catalogue.hardware["cpu"]) == {}


def test_the_napkin_of_the_third_document():
    """8 MB over a link that sustains 300 GB/s take about 27 us; against 20 us of compute, communication is longer."""
    sustained = Link(name="effective", bytes_per_s=300e9, hop_s=0.0)
    seconds = ring_s(CollectiveOp.SEND_RECV, 2, 8e6, sustained)
    assert seconds == pytest.approx(27e-6, abs=1e-6)
    assert seconds > 20e-6


def test_a_ring_by_hand():
    link = Link(name="l", bytes_per_s=1e9, hop_s=1e-6)
    assert ring_s(CollectiveOp.ALL_REDUCE, 4, 1e6, link) == pytest.approx(6e-6 + 2 * 3 / 4 * 1e-3)
    assert ring_s(CollectiveOp.ALL_GATHER, 4, 1e6, link) == pytest.approx(3e-6 + 3 / 4 * 1e-3)
    assert ring_s(CollectiveOp.ALL_REDUCE, 1, 1e6, link) == 0.0


@pytest.mark.parametrize(
    ("axis", "layout", "expected"),
    [
        (Axis.TENSOR, {"nodes": 4, "dp": 4, "tp": 8}, (8, 1, 1)),
        (Axis.DATA, {"nodes": 4, "dp": 4, "tp": 8}, (4, 4, 8)),
        (Axis.DATA, {"nodes": 4, "dp": 32}, (32, 4, 1)),
        (Axis.DATA, {"nodes": 4, "dp": 16, "tp": 2}, (16, 4, 2)),
        (Axis.TENSOR, {"nodes": 4, "dp": 2, "tp": 16}, (16, 2, 1)),
        (Axis.PIPELINE, {"nodes": 4, "dp": 4, "tp": 2, "pp": 4}, (4, 4, 8)),
        (Axis.PIPELINE, {"nodes": 1, "dp": 2, "pp": 4}, (4, 1, 2)),
    ],
)
def test_groups_of_an_axis(axis, layout, expected):
    group = group_of(axis, run(**layout), H100)
    assert (group.ranks, group.nodes, group.groups_per_node) == expected


def test_loads_by_hand():
    inside = load_of(CollectiveOp.ALL_REDUCE, Group(ranks=8, nodes=1, groups_per_node=1), 8.0)
    assert inside == Load(rank_in=7, rank_out=7, link_hops=1)
    across = load_of(CollectiveOp.REDUCE_SCATTER, group_of_nodes(16, 2), 16.0)
    assert across == Load(rank_in=1, rank_out=15, node_in=8, node_out=8, network_hops=1)
    assert load_of(CollectiveOp.ALL_GATHER, group_of_nodes(1, 1), 1e9) == Load()


def test_seconds_are_those_of_the_slowest_way():
    assert Load(rank_in=450e9).seconds(H100) == pytest.approx(1.0)
    assert Load(rank_in=1.0, node_out=400e9).seconds(H100) == pytest.approx(1.0)
    assert Load(rank_in=500e9, node_in=1.0).seconds(H100) == pytest.approx(1.0)  # NVLink, and a share of the network
    assert Load(link_hops=2, network_hops=1).seconds(H100) == pytest.approx(2 * 0.47e-6 + 2.7e-6)
    assert Load(rank_in=1.0).seconds(CONFIG.catalogue.hardware["cpu"]) is None


@bounded
@given(
    op=st.sampled_from(OPS),
    nodes=st.sampled_from([1, 2, 4, 64]),
    message=st.floats(1e3, 1e11),
    more=st.floats(1.0, 4.0),
)
def test_no_ring_is_faster_than_the_least(op, nodes, message, more):
    """Over the network at a node's whole rate, or inside a node."""
    ranks = 8 * nodes
    least = load_of(op, group_of_nodes(ranks, nodes), message).seconds(H100)
    fastest = Link(name="l", bytes_per_s=450e9 if nodes == 1 else 400e9, hop_s=2.7e-6)
    assert least <= ring_s(op, ranks, message, fastest) * (1 + 1e-9)
    assert load_of(op, group_of_nodes(ranks, nodes), message * more).seconds(H100) >= least
