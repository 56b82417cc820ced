"""A node that is slow beyond doubt is named, and no other; what a check found is judged by node."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling_study.spec import RankHealth
from scaling_study.submit.health import DEVIATIONS, SLOWER_BY, Outlier, health_report, outliers, values_of_nodes
from tests.unit.samples import bounded


def rank(number, node, gemm=10.0, memory=20.0, within=None, between=None, latency=None):
    return RankHealth(
        rank=number, node=node, device="a device", gemm_tflops=gemm, memory_gb_per_s=memory, within_gb_per_s=within,
        between_gb_per_s=between or {}, latency_us=latency,
    )  # fmt: skip


def gemm(values):
    return {f"n{index}": {"gemm_tflops": value} for index, value in enumerate(values)}


def test_the_slowest_rank_of_a_node_counts():
    found = values_of_nodes([rank(0, "a", 10, 21), rank(1, "a", 9, 22), rank(2, "b", 8, 20)])
    assert found == {
        "a": {"gemm_tflops": 9, "memory_gb_per_s": 21},
        "b": {"gemm_tflops": 8, "memory_gb_per_s": 20},
    }


def test_a_healthy_node_next_to_a_slow_one_is_known_by_its_other_partner():
    ring = {"a": {"d": 9, "b": 2}, "b": {"a": 2, "c": 2}, "c": {"b": 2, "d": 9}, "d": {"c": 9, "a": 9}}
    nodes = values_of_nodes([rank(i, node, between=pairs) for i, (node, pairs) in enumerate(ring.items())])
    assert {node: values["between_gb_per_s"] for node, values in nodes.items()} == {"a": 9, "b": 2, "c": 9, "d": 9}
    assert [one.node for one in outliers(nodes)] == ["b"]


@pytest.mark.parametrize(
    ("values", "slow"),
    [
        ([100, 101, 99, 80], ["n3"]),
        ([100, 101, 99, 91], []),  # within 10% of the median
        ([100, 60, 140, 70, 130], []),  # all differ: five deviations are more than there is
        ([100, 100, 100, 100, 120], []),  # a fast one is no fault
        ([100, 50], []),  # who of two is right?
        ([100, 100, 50], ["n2"]),
        ([], []),
    ],
)
def test_slow_beyond_doubt(values, slow):
    assert [one.node for one in outliers(gemm(values))] == slow


@bounded
@given(
    values=st.lists(st.floats(95, 105), min_size=4, max_size=30),
    scale=st.floats(1e-3, 1e3),
    slow=st.floats(0.05, 0.6),
)
def test_one_node_far_below_equal_others_is_found_whatever_the_scale(values, scale, slow):
    nodes = gemm([value * scale for value in values]) | {"bad": {"gemm_tflops": 100 * slow * scale}}
    spread = max(values) - min(values)
    found = [one.node for one in outliers(nodes)]
    assert set(found) <= {"bad"}
    if 100 * (1 - slow) > max(100 * SLOWER_BY, DEVIATIONS * 1.4826 * spread) + 5:
        assert found == ["bad"]


def test_a_report_has_medians_and_the_names_to_exclude():
    ranks = [rank(i, f"n{i}", gemm=g, within=5.0, latency=30.0 + i) for i, g in enumerate((10, 10, 11, 4, 10))]
    report = health_report("it", "v1", "now", ranks)
    assert (report.platform, report.ranks, report.device, report.exclude) == ("it", 5, "a device", "n3")
    assert report.measured == {
        "gemm_tflops": 10,
        "memory_gb_per_s": 20,
        "within_gb_per_s": 5,
        "latency_us": 32,
    }
    assert msgspec.json.decode(msgspec.json.encode(report), type=type(report)) == report


def test_an_outlier_says_how_far_below():
    said = str(Outlier(node="n3", quantity="gemm_tflops", value=4, median=10))
    assert said == "gemm_tflops 4, 60% below the median of 10"
