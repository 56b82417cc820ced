"""The Monte Carlo of pacing: pairs from the same chance, and the printed numbers beside."""

import polars as pl
import pytest

import scaling_study.predict.coordination as module
from scaling_study.predict.coordination import METRICS, SCHEMA, coordination_table, pair, read_printed
from scaling_study.predict.fabric import Base, Chance, read_fabric_model
from tests.unit.samples import CONFIG

MODEL = read_fabric_model(CONFIG.root / "calibration")
BASES = {
    nodes: Base(nodes=nodes, gpus_per_node=8, work_s=0.9, exposed_s=0.01, communication_s=0.1) for nodes in (4, 8, 16)
}


@pytest.fixture(scope="module")
def table():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SEEDS", 6)
        patch.setattr(module, "SCAN_SEEDS", 2)
        patch.setattr(module, "EARLY_COSTS", (0.0, 1.0))
        patch.setattr(module, "JITTERS", (0.01, 0.05))
        yield coordination_table(BASES, MODEL, read_printed(CONFIG.root))


def test_what_is_printed_is_kept_as_it_is(table):
    printed = table.filter(kind="reported", metric="throughput_change").sort("nodes")
    assert printed["value"].to_list() == pytest.approx([1018 / 1024 - 1, 1995 / 1980 - 1, 3720 / 3600 - 1])
    assert table.filter(kind="reported", metric="cv_off").sort("nodes")["value"].to_list() == [0.02, 0.04, 0.09]
    assert set(table.filter(kind="reported")["provenance"]) == {"reported"}


def test_every_fabric_and_scale_has_every_metric_with_an_interval(table):
    own = table.filter(kind="prediction")
    assert own.height == len(module.CASES) * len(BASES) * len(METRICS)
    assert (own["low"] <= own["value"]).all()
    assert (own["value"] <= own["high"]).all()
    assert dict(table.schema) == SCHEMA


def test_the_closest_values_are_those_with_the_smallest_miss(table):
    scan = table.filter(kind="scan")
    closest = scan.filter("closest")
    assert closest["miss"].unique().to_list() == [scan["miss"].min()]
    printed = table.filter(kind="reported").select("nodes", "metric", printed="value")
    tolerance = pl.col("metric").replace_strict(module.TOLERANCES, return_dtype=pl.Float64)
    off = closest.join(printed, on=["nodes", "metric"]).select(
        off=(pl.col("value") - pl.col("printed")).abs() / tolerance
    )
    assert off["off"].max() == pytest.approx(closest["miss"][0])


def test_a_pair_differs_by_pacing_alone():
    found = pair(BASES[4], Chance(), MODEL.fabrics["rail-optimised"], 0, "packed")
    assert found == pytest.approx({"throughput_change": 0.0, "cv_off": 0.0, "cv_adaptive": 0.0}, abs=1e-12)
