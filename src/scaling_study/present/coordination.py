"""Records of the coordination sweep: runs without and with pacing, in pairs; and the table of what is printed of it."""

from __future__ import annotations

import msgspec
import numpy as np
import polars as pl

from scaling_study.spec import Outcome, Pacing, Provenance
from scaling_study.synchronisation.controller import PacingSettings

#: Columns that `by_scale` adds for each of its metrics: the median over repeats, and their whole range.
RATE, CV = "words_per_second", "iteration_s_cv"
PACINGS = {Pacing.OFF: "without pacing", Pacing.ADAPTIVE: "with pacing"}
_RESAMPLES = 2_000
_CELLS = {"throughput_change": "throughput", "cv_off": "CV, baseline", "cv_adaptive": "CV, coordination"}


def controller_rows() -> pl.DataFrame:
    """The constants of the controller, columns `constant` and `value`."""
    constants = msgspec.structs.asdict(PacingSettings())
    return pl.DataFrame({"constant": list(constants), "value": [float(value) for value in constants.values()]})


def by_scale(records: pl.DataFrame, *metrics: str) -> pl.DataFrame:
    """One row a provenance, scale and pacing: medians over repeats, `_low` and `_high` the range of each metric."""
    ok = records.filter(pl.col("outcome") == Outcome.OK)
    found = ok.group_by("provenance", "nodes", "gpus", "pacing", "outcome", maintain_order=True).agg(
        repeats=pl.len(),
        **{name: pl.col(name).median() for name in metrics},
        **{f"{name}_low": pl.col(name).min() for name in metrics},
        **{f"{name}_high": pl.col(name).max() for name in metrics},
    )
    return found.sort("provenance", "gpus", "pacing")


def paired(records: pl.DataFrame) -> pl.DataFrame:
    """What pacing changes, over pairs of runs of one repeat.

    Returns:
        one row a provenance and scale: `change` of throughput and `cv_change`, means over pairs, each with `_low` and
        `_high`: a 95% interval by resampling pairs.
    """
    own = records.filter(pl.col("outcome") == Outcome.OK, pl.col("provenance") != Provenance.REPORTED)
    key = ["provenance", "nodes", "gpus", "repeat"]
    sides = [own.filter(pl.col("pacing") == pacing).select(*key, RATE, CV) for pacing in PACINGS]
    both = sides[0].join(sides[1], on=key, suffix="_paced").sort(*key)
    both = both.with_columns(
        change=pl.col(f"{RATE}_paced") / pl.col(RATE) - 1, cv_change=pl.col(f"{CV}_paced") - pl.col(CV)
    )
    rows = []
    for (provenance, nodes, gpus), part in both.group_by("provenance", "nodes", "gpus", maintain_order=True):
        row = {
            "provenance": provenance,
            "nodes": nodes,
            "gpus": gpus,
            "outcome": Outcome.OK.value,
            "pairs": part.height,
        }
        for name in ("change", "cv_change"):
            low, high = interval(part[name].to_numpy())
            row |= {name: float(part[name].mean() or 0.0), f"{name}_low": low, f"{name}_high": high}  # type: ignore[arg-type]
        rows.append(row)
    schema = {"provenance": pl.String, "nodes": pl.Int64, "gpus": pl.Int64, "outcome": pl.String, "pairs": pl.Int64}
    values = {f"{name}{end}": pl.Float64 for name in ("change", "cv_change") for end in ("", "_low", "_high")}
    return pl.DataFrame(rows, schema={**schema, **values})


def interval(values: np.typing.NDArray[np.float64]) -> tuple[float, float]:
    """A 95% interval of a mean, by resampling; the same on every machine."""
    drawn = np.random.default_rng(0).integers(len(values), size=(_RESAMPLES, len(values)))
    low, high = np.quantile(values[drawn].mean(axis=1), (0.025, 0.975)).tolist()
    return low, high


def pairs_table(records: pl.DataFrame) -> pl.DataFrame:
    """Throughput and CV without and with pacing, one row a provenance and scale."""
    medians = by_scale(records, RATE, CV)
    sides = {
        pacing: medians.filter(pl.col("pacing") == pacing).select(
            "provenance", "nodes", pl.col(RATE).alias(f"{RATE}_{pacing}"), pl.col(CV).alias(f"{CV}_{pacing}")
        )
        for pacing in PACINGS
    }
    table = paired(records).drop("outcome")
    for side in sides.values():
        table = table.join(side, on=["provenance", "nodes"], how="left", maintain_order="left")
    return table.with_columns(pl.selectors.float().round_sig_figs(4))


def printed_table(found: pl.DataFrame) -> pl.DataFrame:
    """WSF table 1, one row a number and fabric, with what is predicted of it beside.

    Args:
        found: of `predict.coordination`.

    Returns:
        `verdict`: whether the printed number lies within the predicted interval; rows of the kind `scan` are of the
            values, named in `note`, at which the model comes closest to all printed numbers.
    """
    printed = found.filter(kind="reported").select("nodes", "metric", printed="value", printed_source="source")
    shown = found.filter((pl.col("kind") == "prediction") | pl.col("closest"))
    within = pl.col("printed").is_between(pl.col("low"), pl.col("high"))
    note = pl.format(
        "early_cost {}, iteration_jitter {}: off by up to {} tolerances",
        "early_cost", "iteration_jitter", pl.col("miss").round_sig_figs(2),
    )  # fmt: skip
    table = shown.join(printed, on=["nodes", "metric"], how="left", maintain_order="left").with_columns(
        number=pl.col("metric").replace_strict(_CELLS),
        verdict=pl.when(within).then(pl.lit("within the interval")).otherwise(pl.lit("outside")),
        note=pl.when(pl.col("kind") == "scan").then(note),
    )
    columns = ("kind", "fabric", "placement", "nodes", "number", "printed", "value", "low", "high", "verdict", "note")
    table = table.select(*columns, "seeds", "printed_source", "provenance")
    return table.with_columns(pl.selectors.float().round_sig_figs(4))
