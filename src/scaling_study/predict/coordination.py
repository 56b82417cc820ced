"""What pacing is predicted to change, by Monte Carlo, beside what WSF table 1 prints; and what would have to be true.

Seeds draw the parameters of `fabric` from their ranges and then a pair of runs, without and with pacing, from the same
chance. A value is the median over seeds, its interval holds four of five. `scan` moves the two parameters that the
printed changes hang on most, with all others at their value; the pair that comes closest to the printed numbers is
named, not used.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl

from scaling_study.errors import UserError, explain_os_error
from scaling_study.predict.fabric import Array, Base, Chance, Fabric, FabricModel, Placement, simulate
from scaling_study.spec import Provenance
from scaling_study.synchronisation.controller import PacingSettings
from scaling_study.tracking import Track, untracked

ITERATIONS, DISCARD = 60, 10
SEEDS, SCAN_SEEDS = 200, 20
#: Each fabric with a placement of nodes on it.
CASES: tuple[tuple[str, Placement], ...] = (
    ("rail-optimised", "packed"),
    ("fat-tree", "packed"),
    ("fat-tree", "scattered"),
    ("fat-tree-oversubscribed", "packed"),
)
#: What is scanned, beyond the ranges too: how much early ranks disturb a transfer, and the jitter of GPUs.
EARLY_COSTS = (0.0, 0.5, 1.0, 2.0, 4.0)
JITTERS = (0.002, 0.01, 0.02, 0.05, 0.1)
SCANNED: tuple[str, Placement] = ("rail-optimised", "packed")
#: Tolerances of the claim `coordination-table`: of a change of throughput, of a coefficient of variation.
TOLERANCES = {"throughput_change": 0.015, "cv_off": 0.01, "cv_adaptive": 0.01}
METRICS = tuple(TOLERANCES)

SCHEMA: dict[str, type[pl.DataType]] = {
    "provenance": pl.String,
    "kind": pl.String,  # prediction, scan, reported
    "fabric": pl.String,
    "placement": pl.String,
    "nodes": pl.Int64,
    "early_cost": pl.Float64,
    "iteration_jitter": pl.Float64,
    "metric": pl.String,
    "value": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "seeds": pl.Int64,
    "miss": pl.Float64,  # of all numbers at these values, the largest distance from the printed one, in its tolerance
    "closest": pl.Boolean,
    "source": pl.String,
}


def coordination_table(
    bases: Mapping[int, Base], model: FabricModel, printed: pl.DataFrame, track: Track = untracked
) -> pl.DataFrame:
    """Predictions, the scan, and the printed numbers, one row a metric.

    Args:
        bases: an iteration without chance, by nodes.
        printed: as `read_printed` gives it.
    """
    rows = [*_predictions(bases, model, track), *_scan(bases, model, printed, track), *_printed(printed)]
    return pl.DataFrame(rows, schema=SCHEMA)


def read_printed(root: Path) -> pl.DataFrame:
    """`config/reported/wsf-table1.csv`.

    Raises:
        UserError: it cannot be read.
    """
    path = root / "reported" / "wsf-table1.csv"
    try:
        return pl.read_csv(path)
    except OSError as error:
        raise explain_os_error(error, where=str(path)) from error
    except pl.exceptions.PolarsError as error:
        raise UserError(f"not a table: {error}", where=str(path), remedy="Restore it from git.") from error


def pair(base: Base, chance: Chance, fabric: Fabric, seed: int, placement: Placement) -> dict[str, float]:
    """The metrics of two runs from the same chance, without and with pacing."""
    off, adaptive = (
        simulate(base, chance, fabric, ITERATIONS, np.random.default_rng(seed), pacing, placement)[DISCARD:]
        for pacing in (None, PacingSettings())
    )
    return {
        "throughput_change": float(off.mean() / adaptive.mean() - 1),
        "cv_off": _cv(off),
        "cv_adaptive": _cv(adaptive),
    }


def _cv(taken: Array) -> float:
    return float(taken.std(ddof=1) / taken.mean())


def _predictions(bases: Mapping[int, Base], model: FabricModel, track: Track) -> Iterable[dict[str, Any]]:
    cases = list(itertools.product(CASES, bases.items()))
    for (name, placement), (nodes, base) in track(cases, len(cases)):
        fabric = model.fabrics[name]
        found = [
            pair(base, model.draw(np.random.default_rng([seed, 1])), fabric, seed, placement) for seed in range(SEEDS)
        ]
        at = {"fabric": name, "placement": placement, "nodes": nodes}
        yield from _summary(found, {**at, "kind": "prediction", "seeds": SEEDS})


def _summary(found: list[dict[str, float]], at: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    for metric in METRICS:
        low, middle, high = np.quantile([one[metric] for one in found], (0.1, 0.5, 0.9)).tolist()
        yield {
            "provenance": Provenance.PREDICTED.value,
            **at,
            "metric": metric,
            "value": middle,
            "low": low,
            "high": high,
        }


def _scan(bases: Mapping[int, Base], model: FabricModel, printed: pl.DataFrame, track: Track) -> list[dict[str, Any]]:
    name, placement = SCANNED
    rows: list[dict[str, Any]] = []
    misses: dict[tuple[float, float], float] = {}
    wanted = {
        (row["nodes"], metric): _wanted(row, metric) for row in printed.iter_rows(named=True) for metric in METRICS
    }
    places = list(itertools.product(EARLY_COSTS, JITTERS))
    for cost, jitter in track(places, len(places)):
        chance = msgspec.structs.replace(model.central(), early_cost=cost, iteration_jitter=jitter)
        mine: list[dict[str, Any]] = []
        for nodes, base in bases.items():
            found = [pair(base, chance, model.fabrics[name], seed, placement) for seed in range(SCAN_SEEDS)]
            at = {"fabric": name, "placement": placement, "nodes": nodes, "kind": "scan", "seeds": SCAN_SEEDS}
            mine += _summary(found, {**at, "early_cost": cost, "iteration_jitter": jitter})
        off = [abs(row["value"] - wanted[row["nodes"], row["metric"]]) / TOLERANCES[row["metric"]] for row in mine]
        misses[cost, jitter] = max(off)
        rows += mine
    best = min(misses, key=misses.__getitem__)
    of_rows = [(row["early_cost"], row["iteration_jitter"]) for row in rows]
    return [{**row, "miss": misses[at], "closest": at == best} for row, at in zip(rows, of_rows, strict=True)]


def _wanted(row: Mapping[str, Any], metric: str) -> float:
    if metric == "throughput_change":
        return float(row["throughput_adaptive"] / row["throughput_off"] - 1)
    return float(row[metric])


def _printed(printed: pl.DataFrame) -> Iterable[dict[str, Any]]:
    for row in printed.iter_rows(named=True):
        for metric in METRICS:
            yield {
                "provenance": Provenance.REPORTED.value,
                "kind": "reported",
                "nodes": row["nodes"],
                "metric": metric,
                "value": _wanted(row, metric),
                "source": row["source"],
            }
