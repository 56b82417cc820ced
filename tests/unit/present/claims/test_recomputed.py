"""Verdicts computed a second time, in plain Python over the rows of the committed records, without the evaluator."""

from __future__ import annotations

import functools
import itertools
from pathlib import Path
from statistics import fmean

import polars as pl
import pytest

from scaling_study.claims import judged_by
from scaling_study.present.claims import Judged
from scaling_study.spec import Config, Place, Verdict

ROOT = Path(__file__).parents[4]
CACHE = ROOT / "results" / "cached"
RATE, EXPOSED = "words_per_second", "exposed_communication_s"


@functools.cache
def judged() -> dict[tuple[str, Place], Judged]:
    """What the evaluator says of each claim at each place."""
    return {(one.id, one.place): one for one in judged_by(Config(ROOT / "config"), [CACHE])}


def rows(sweep: str, study: str = "paper/predict") -> list[dict]:
    """The rows of a sweep that ended well."""
    frame = pl.read_parquet(CACHE / study / f"{sweep}.parquet")
    return [row for row in frame.to_dicts() if row["outcome"] == "ok"]


def best(records: list[dict], **values) -> dict:
    """The fastest of the rows with these values."""
    return max((row for row in records if all(row[k] == v for k, v in values.items())), key=lambda row: row[RATE])


def layouts(records: list[dict]) -> list[dict]:
    """Each layout with its fastest micro-batch."""
    found: dict[tuple, dict] = {}
    for row in records:
        key = (row["hardware"], row["gpus"], row["tp"], row["pp"])
        if key not in found or row[RATE] > found[key][RATE]:
            found[key] = row
    return list(found.values())


def change(before: float, after: float) -> float:
    return after / before - 1


def check(name: str, verdict: str, *values: float, place: Place = Place.MODEL) -> None:
    """The verdict is this one, and the evaluator's numbers are these, in the order of the checks."""
    one = judged()[name, place]
    assert one.verdict == Verdict(verdict)
    assert [result.value for result in one.checks] == pytest.approx(list(values), rel=1e-9, abs=1e-12)


def test_dp_throughput_drop() -> None:
    by_gpus = {row["gpus"]: row for row in rows("data_parallel")}
    falls = [change(by_gpus[128][name], by_gpus[2048][name]) for name in ("words_per_second_per_gpu", "tflops_per_gpu")]
    assert all(abs(fall - -0.3722) > 0.05 and fall < 0 for fall in falls)
    check("dp-throughput-drop", "holds in shape only", *falls)
    assert falls[0] == pytest.approx(-0.160, abs=5e-4)


def test_dp_power_drop() -> None:
    power = {row["gpus"]: row["power_w_per_gpu"] for row in rows("data_parallel")}
    fall = change(power[128], power[2048])
    assert abs(fall - -0.0587) <= 0.03
    assert abs(power[128] / 658 - 1) <= 0.05
    assert abs(power[2048] / 620 - 1) <= 0.05
    check("dp-power-drop", "holds", fall, power[128], power[2048])


def test_dp_compute_constant() -> None:
    line = sorted(rows("data_parallel"), key=lambda row: row["gpus"])
    compute = [row["compute_s"] for row in line]
    steps = [change(a["communication_s"], b["communication_s"]) for a, b in itertools.pairwise(line)]
    assert max(compute) / min(compute) - 1 > 0.05
    assert min(steps) > 0
    check("dp-compute-constant", "does not hold", max(compute) / min(compute) - 1, min(steps))


def test_dp_power_linear() -> None:
    line = sorted(rows("data_parallel"), key=lambda row: row["gpus"])
    x, y = [row["gpus"] for row in line], [row["gpus"] * row["power_w_per_gpu"] for row in line]
    covariance = sum((a - fmean(x)) * (b - fmean(y)) for a, b in zip(x, y, strict=True))
    r2 = covariance**2 / (sum((a - fmean(x)) ** 2 for a in x) * sum((b - fmean(y)) ** 2 for b in y))
    worst = [
        max(change(a[name], b[name]) for a, b in itertools.pairwise(line))
        for name in ("words_per_second_per_gpu", "tokens_per_joule")
    ]
    assert r2 > 0.99
    assert max(worst) < 0
    check("dp-power-linear", "holds", r2, *worst)


def test_dp_majority_exposed() -> None:
    largest = best(rows("data_parallel"), gpus=2048)
    share = largest[EXPOSED] / largest["communication_s"]
    assert share < 0.5
    check("dp-majority-exposed", "does not hold", share)


def test_small_scale_extrapolation() -> None:
    line = {row["gpus"]: row[RATE] for row in rows("data_parallel")}
    small = {gpus: rate for gpus, rate in line.items() if gpus <= 64}
    x, y = list(small), list(small.values())
    slope = sum((a - fmean(x)) * (b - fmean(y)) for a, b in zip(x, y, strict=True)) / sum(
        (a - fmean(x)) ** 2 for a in x
    )
    missed = (fmean(y) + slope * (2048 - fmean(x))) / line[2048] - 1
    assert 0 < missed < 0.2
    check("small-scale-extrapolation", "does not hold", missed)


def test_many_small_models() -> None:
    small = best(rows("data_parallel"), gpus=32)["tokens_per_joule"]
    sizes = rows("model_size")
    gains = [change(best(sizes, model=f"llama2-{size}")["tokens_per_joule"], small) for size in ("70b", "13b")]
    assert min(gains) > 0
    check("many-small-models", "holds", *gains)


def test_collective_scaling() -> None:
    bandwidth = {
        (row["op"], row["message_bytes"], row["nodes"]): row["bus_bandwidth_gb_per_s"] for row in rows("collectives")
    }
    nodes = sorted({key[2] for key in bandwidth})
    sizes = (2**30, 2**26)
    kept = [change(bandwidth["all_reduce", size, 4], bandwidth["all_reduce", size, 512]) for size in sizes]
    others = [(op, size) for op in ("all_gather", "reduce_scatter") for size in sizes]
    lost = [change(bandwidth[op, size, 4], bandwidth[op, size, 512]) for op, size in others]
    worst = [
        max(change(bandwidth[op, size, a], bandwidth[op, size, b]) for a, b in itertools.pairwise(nodes))
        for op, size in others
    ]
    assert min(kept) > -0.5
    assert max(lost) < -0.5
    assert max(worst) < 0
    check("collective-scaling", "holds", *kept, *lost, *worst)


@pytest.mark.parametrize("hardware", ["h100", "a100"])
def test_mp_beats_dp(hardware: str) -> None:
    own = [row for row in layouts(rows("model_parallel")) if row["hardware"] == hardware]
    alone = best(own, tp=1, pp=1)
    better = [
        row
        for row in own
        if row["tp"] * row["pp"] in (2, 4) and row[RATE] > alone[RATE] and row[EXPOSED] < alone[EXPOSED]
    ]
    assert not better
    check(f"mp-beats-dp-{hardware}", "does not hold", len(better))


def test_exposed_correlation() -> None:
    found = []
    for hardware in ("h100", "a100"):
        own = [row for row in layouts(rows("model_parallel")) if row["hardware"] == hardware]
        places = [
            {id(row): place for place, row in enumerate(sorted(own, key=lambda one: one[name]))}
            for name in (EXPOSED, RATE)
        ]
        squares = sum((places[0][id(row)] - places[1][id(row)]) ** 2 for row in own)
        found.append(1 - 6 * squares / (len(own) * (len(own) ** 2 - 1)))
    assert all(-0.8 < value < 0 for value in found)
    check("exposed-correlation", "holds in shape only", *found)


def test_mp_across_nodes() -> None:
    found = []
    for hardware in ("h100", "a100"):
        own = [row for row in layouts(rows("model_parallel")) if row["hardware"] == hardware]
        across = min(row[EXPOSED] for row in own if row["tp"] * row["pp"] > 8)
        within = min(row[EXPOSED] for row in own if 2 <= row["tp"] * row["pp"] <= 8)
        found.append(across / within)
    assert min(found) >= 1.5
    check("mp-across-nodes", "holds", *found)


def test_mp_more_viable() -> None:
    def viable(records: list[dict]) -> int:
        alone = best(records, tp=1, pp=1)
        return sum(row[RATE] > alone[RATE] for row in layouts(records) if row["tp"] * row["pp"] > 1)

    main = viable([row for row in rows("model_parallel") if row["hardware"] == "h100"])
    more = [viable(rows(f"model_parallel_{name}")) - main for name in ("small_batch", "large_scale")]
    check("mp-more-viable", "holds" if min(more) > 0 else "does not hold", *more)


def test_fixed_batch() -> None:
    line = {nodes: best(rows("fixed_batch"), nodes=nodes) for nodes in (2, 16, 32)}
    mfu = [line[nodes]["mfu"] for nodes in (2, 32)]
    assert abs(mfu[0] - 0.40) <= 0.05
    assert mfu[1] < 0.15
    check("fixed-batch-mfu", "holds", *mfu, change(*mfu))
    power = [line[nodes]["power_w_per_gpu"] * line[nodes]["gpus"] for nodes in (16, 32)]
    rate = change(line[16][RATE], line[32][RATE])
    joules = change(line[16]["tokens_per_joule"], line[32]["tokens_per_joule"])
    assert abs(change(*power) - 0.4) > 0.1
    assert abs(rate - 0.1) <= 0.1
    check("fixed-batch-power", "holds in shape only", change(*power), rate, joules)
    assert change(*power) == pytest.approx(0.81, abs=5e-3)


def test_pretraining_mfu() -> None:
    records = rows("fixed_batch_pretraining")
    pairs = [
        [best(records, model=f"llama2-{size}", global_batch=batch, gpus=gpus) for gpus in (512, 2048)]
        for size in ("7b", "70b")
        for batch in (1024, 2048)
    ]
    falls = [change(before["mfu"], after["mfu"]) for before, after in pairs]
    rises = [change(before[RATE], after[RATE]) for before, after in pairs]
    assert max(falls) > -0.3 > min(falls)
    assert max(falls) < 0 < min(rises)
    check("pretraining-mfu", "holds in shape only", *falls, *rises)


def test_generations() -> None:
    v100, a100, h100 = (best(rows("generations"), hardware=name) for name in ("v100", "a100", "h100"))
    assert abs(a100["mfu"] - 0.5967) <= 0.05
    assert abs(h100["mfu"] - 0.4077) <= 0.05
    check("generation-mfu", "holds", a100["mfu"], h100["mfu"], change(a100["mfu"], h100["mfu"]))
    share = h100["exposed_fraction"] - a100["exposed_fraction"]
    assert 0 < share < 0.1283 - 0.05
    check("generation-exposed", "holds in shape only", share)
    assert v100["tp"] * v100["pp"] in (2, 4)
    check("generation-v100", "holds", v100["tp"] * v100["pp"], change(v100["mfu"], a100["mfu"]))
    assert judged()["generation-v100", Place.MODEL].extrapolated


def test_size_exposed() -> None:
    records = rows("model_size")
    line = [best(records, model=f"llama2-{size}") for size in ("1b", "7b", "13b", "70b")]
    exposed, mfu = ([change(a[k], b[k]) for a, b in itertools.pairwise(line)] for k in (EXPOSED, "mfu"))
    gains = []
    for fastest in line:
        own = [row for row in records if row["model"] == fastest["model"]]
        least = min(row["tp"] * row["pp"] for row in own)
        gains.append(change(max(row[RATE] for row in own if row["tp"] * row["pp"] == least), fastest[RATE]))
    assert max(mfu) > 0
    check("size-exposed", "does not hold", min(exposed), max(mfu), *gains)


def test_context_length() -> None:
    line = sorted(rows("context_length"), key=lambda row: row["sequence_length"])
    steps = {
        name: [change(a[name], b[name]) for a, b in itertools.pairwise(line)]
        for name in (RATE, "mfu", "tokens_per_joule", "exposed_fraction")
    }
    rising = [min(steps[name]) for name in (RATE, "mfu", "tokens_per_joule")]
    assert rising[2] < 0
    check("context-length", "does not hold", *rising, max(steps["exposed_fraction"]))


@pytest.mark.parametrize(("place", "study"), [(Place.MODEL, "paper/predict"), (Place.LOCAL, "mini/local")], ids=str)
def test_memory_sharding(place: Place, study: str) -> None:
    line = sorted(rows("data_parallel", study), key=lambda row: row["dp"])
    memory = [row["peak_memory_gib"] for row in line]
    slopes = [(b["peak_memory_gib"] - a["peak_memory_gib"]) / (b["dp"] - a["dp"]) for a, b in itertools.pairwise(line)]
    worst = max(change(a, b) for a, b in itertools.pairwise(memory))
    turns = min(b - a for a, b in itertools.pairwise(slopes)) / max(abs(slope) for slope in slopes)
    assert worst > 0
    check("memory-sharding", "does not hold", worst, turns, place=place)


def test_memory_main() -> None:
    alone = best(rows("model_parallel"), hardware="h100", tp=1, pp=1)
    assert alone["peak_memory_gib"] * 2**30 > 60e9
    check("memory-main", "holds", alone["peak_memory_gib"])


def test_larger_nodes() -> None:
    records = rows("fabric_speed")
    rates = {
        name: max((row for row in records if row["hardware"] == name), key=lambda row: row["gpus"])[
            "words_per_second_per_gpu"
        ]
        for name in ("h100-ib100", "h100-ib200", "h100", "h100-nvl72")
    }
    faster = [change(rates["h100-ib100"], rates["h100-ib200"]), change(rates["h100-ib200"], rates["h100"])]
    check("larger-nodes", "holds", change(rates["h100"], rates["h100-nvl72"]), min(faster))


def test_closed_forms() -> None:
    check("roofline-example", "holds", 8e6 / 300e9, 8e6 / 300e9)
    # Two FLOPs a weight of two bytes, at 3,350 GB/s of 989.4 TFLOPS.
    check("roofline-decode", "holds", 2 / 2 * 3350e9 / 989.4e12, 3 / 10)


def test_hardware_table() -> None:
    table = pl.read_csv(ROOT / "figures/paper/hst-table1.csv").to_dicts()
    off = [row for row in table if abs(row["value"] / row["printed"] - 1) > 0.02]
    check("hardware-table", "holds", len(off), place=Place.SOURCES)
