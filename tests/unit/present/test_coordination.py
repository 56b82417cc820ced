"""Pairs of runs without and with pacing, their table and their figures."""

import polars as pl
import pytest

from scaling_study.present.coordination import by_scale, controller_rows, interval, paired, pairs_table, printed_table
from scaling_study.present.figures import wsf_01, wsf_02, wsf_03, wsf_05, wsf_fabric
from scaling_study.present.numbers.pacing import of_fabric, of_pacing
from tests.unit.present import synthetic as made
from tests.unit.present.charts import drawn, points, texts

GAINS = {2: (0.0, 0.1, -0.1, 0.0), 4: (0.2, 0.3, 0.25, 0.25)}


def run(ranks, repeat, pacing, seconds, cv):
    fields = {"dp": ranks, "global_batch": 2 * ranks, "repeat": repeat, "pacing": pacing}
    name = f"{ranks}-{repeat}-{pacing}"
    return made.mini_row(**fields, run_id=name, iteration_s=seconds, iteration_s_cv=cv)


RECORDS = made.frame(
    *(
        run(ranks, repeat, pacing, 1.0 / (1 + gain) if pacing == "adaptive" else 1.0, 0.1 if pacing == "off" else 0.05)
        for ranks, gains in GAINS.items()
        for repeat, gain in enumerate(gains)
        for pacing in ("off", "adaptive")
    )
)
FABRIC = pl.DataFrame(
    [
        {
            "provenance": "reported" if kind == "reported" else "predicted", "kind": kind, "fabric": fabric,
            "placement": "packed", "nodes": nodes, "early_cost": cost, "iteration_jitter": jitter, "metric": metric,
            "value": value, "low": value - 0.01, "high": value + 0.01, "seeds": 7, "miss": 3.25,
            "closest": cost == 1.0 and jitter == 0.02 if kind == "scan" else None, "source": "WSF table 1",
        }
        for nodes in (4, 16)
        for metric, value in (("throughput_change", 0.01), ("cv_off", 0.04), ("cv_adaptive", 0.03))
        for kind, fabric, cost, jitter in (
            ("prediction", "fat-tree", None, None), ("reported", None, None, None),
            *(("scan", "fat-tree", cost, jitter) for cost in (0.0, 1.0) for jitter in (0.01, 0.02)),
        )
    ],
    infer_schema_length=None,
)  # fmt: skip
PRINTED = pl.when(kind="reported", nodes=16, metric="throughput_change").then(0.0333).otherwise("value")
FABRIC = FABRIC.with_columns(value=PRINTED)


def test_the_change_of_a_scale_is_the_mean_over_its_pairs():
    changes = paired(RECORDS).sort("gpus")
    assert changes["change"].to_list() == pytest.approx([0.0, 0.25])
    assert changes["cv_change"].to_list() == pytest.approx([-0.05, -0.05])
    assert changes["pairs"].to_list() == [4, 4]
    assert changes["change_low"][0] < 0 < changes["change_high"][0]
    assert changes["change_low"][1] > 0.2


def test_a_run_without_its_partner_makes_no_pair():
    alone = RECORDS.filter(~((pl.col("repeat") == 3) & (pl.col("pacing") == "off")))
    assert paired(alone)["pairs"].to_list() == [3, 3]


def test_an_interval_holds_the_mean_and_is_the_same_every_time():
    values = made.frame(*(run(2, r, "off", 1.0 + r, 0.1) for r in range(10)))["iteration_s"].to_numpy()
    low, high = interval(values)
    assert low < values.mean() < high
    assert interval(values) == (low, high)


def test_medians_and_ranges_over_repeats():
    rows = by_scale(RECORDS, "words_per_second").filter(gpus=4, pacing="adaptive")
    assert rows["repeats"].item() == 4
    base = 2 * 4 * RECORDS["sequence_length"][0]
    assert rows["words_per_second"].item() == pytest.approx(1.25 * base)
    assert rows["words_per_second_high"].item() == pytest.approx(1.3 * base)


def test_tables():
    table = pairs_table(RECORDS)
    assert table["iteration_s_cv_adaptive"].to_list() == [0.05, 0.05]
    printed = printed_table(FABRIC)
    row = printed.filter(kind="prediction", nodes=16, number="throughput").row(0, named=True)
    assert (row["printed"], row["verdict"]) == (0.0333, "outside")
    assert printed.filter(kind="prediction", nodes=4)["verdict"].unique().to_list() == ["within the interval"]
    assert set(printed.filter(kind="scan")["note"]) == {
        "early_cost 1.0, iteration_jitter 0.02: off by up to 3.3 tolerances"
    }


def test_figure_1_is_of_runs_without_pacing():
    chart = wsf_01.draw(RECORDS, made.MINI)
    (rate,) = points(chart, "words_per_second")
    assert [value for _, value in rate.pairs()] == pytest.approx([512.0, 1024.0])
    assert "Without pacing; medians of up to 4 repeats" in texts(chart)


def test_figure_5_says_where_pacing_helps():
    chart = wsf_05.draw(RECORDS, made.MINI)
    (change,) = points(chart, "change")
    assert change.values() == pytest.approx({2: 0.0, 4: 0.25}, abs=1e-6)
    said = texts(chart)
    assert "pacing helps at 1 of 2 scales, costs at 0, and makes no clear difference at 1" in said
    assert len(points(chart, "iteration_s_cv")) == 2


def observed(kind, ranks, pacing, **fields):
    common = {"provenance": "measured", "axis": "dp", "repeat": 0, "device": "AMD EPYC", "host_cores": 2}
    common |= {"run_id": f"{ranks}-{pacing}", "overhead": 0.0003 if pacing == "off" else 0.004}
    return {"kind": kind, "gpus": ranks, "pacing": pacing, **common, **fields}


def test_figure_2_marks_the_last_rank_of_each_synchronisation():
    causes = ("compute_imbalance", "host", "network", "topology", "locality")
    lost = dict.fromkeys((f"lost_{cause}_s" for cause in causes), 0.0) | {"lost_host_s": 0.02}
    arrivals = {(0, 0): 0.0, (1, 0): 0.01, (0, 1): 0.05, (1, 1): 0.02}
    rows = [observed("axis", ranks, pacing, **lost) for ranks in (2, 4) for pacing in ("off", "adaptive")]
    rows += [
        observed("sample", 4, "off", rank=rank, place=place, entered_s=at) for (rank, place), at in arrivals.items()
    ]
    chart = wsf_02.draw(pl.DataFrame(rows, infer_schema_length=None), made.MINI)
    last = [layer for layer in points(chart, "row") if layer.field("x") == "entered_ms"]
    assert [(row["row"], row["entered_ms"]) for row in last[0].rows] == [(1, 10.0), (0, 50.0)]
    (host,) = points(chart, "lost_host_s")
    assert host.values() == {2: 20.0, 4: 20.0}
    assert "Observing took 0.03% of an iteration at most" in texts(chart)
    assert points(chart, "lost_topology_s") == []


def test_figure_3_prints_the_constants_of_the_controller():
    chart = wsf_03.draw(controller_rows(), made.MINI)
    said = texts(chart)
    assert "gain 0.25, margin 2, bound 0.05, block 4, pairs 2" in said
    assert "it shows no measurement" in said
    assert len(drawn(chart, "rect")) == 2 * len(wsf_03.LAYERS) + 3 + 1


def test_the_fabric_figure_shows_what_is_printed_and_what_comes_closest():
    chart = wsf_fabric.draw(FABRIC, made.PAPER)
    said = texts(chart)
    assert (
        "a cost of early ranks of 1 with 2.0% of jitter, off by up to 3.2 of their tolerances: shown, not used" in said
    )
    assert "printed +3.3%" in said
    reported = [layer for layer in points(chart, "row") if layer.mark["shape"] == "diamond"]
    assert len(reported) == 3


def test_numbers_of_the_text():
    numbers = of_pacing(RECORDS)
    assert numbers["pacing.pairs"].value == 4
    assert numbers["pacing.verdict"].text == "helps on 4 ranks"
    assert numbers["pacing.cv_off"].text == "0.10 and 0.10"
    fabric = of_fabric(FABRIC)
    assert fabric["fabric.inside"].text == "5 of 6"
    assert fabric["fabric.printed"].text == "+3.3%"
    assert fabric["fabric.printed"].provenance == ("reported",)
    assert fabric["fabric.miss"].text == "3.2"
