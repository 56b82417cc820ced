"""The runs of a study as a list: what there is, what can fit, and at least how much it takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from scaling_study.console import printer
from scaling_study.roofline import infeasible_because, least_gpu_hours, least_memory_gib
from scaling_study.spec import Catalogue, Config, Platform, Run, TrainingRun, expand, ranks_of, run_id

if TYPE_CHECKING:
    from rich.table import Table


def list_runs(config: Config, study_name: str, sweep_name: str | None, platform_name: str | None) -> dict[str, Any]:
    """Every run once, with the sweeps that it belongs to, feasibility and lower bounds; and totals a sweep.

    Raises:
        UserError: study, sweep or platform are unknown or not valid.
    """
    study, catalogue = config.study(study_name), config.catalogue
    platform = config.platform(platform_name) if platform_name else None
    rows: dict[str, dict[str, Any]] = {}
    known: list[Run] = []
    for name in [sweep_name] if sweep_name else study.sweeps:
        for run in expand(study, name, catalogue):
            if platform is None or run.hardware == platform.hardware:
                if run_id(run) not in rows:
                    known.append(run)
                row = rows.setdefault(run_id(run), {"run_id": run_id(run), "sweeps": [], **_describe(run, catalogue)})
                row["sweeps"].append(name)
    listed = list(rows.values())
    if platform is not None:
        _add_costs(rows, known, platform, config)
    sweeps = [name for name in study.sweeps if any(name in row["sweeps"] for row in listed)]
    return {
        "study": study.name,
        "runs": listed,
        "sweeps": {name: _totals([row for row in listed if name in row["sweeps"]]) for name in sweeps},
        "totals": _totals(listed),
    }


def _describe(run: Run, catalogue: Catalogue) -> dict[str, Any]:
    hardware, fields = catalogue.hardware[run.hardware], msgspec.to_builtins(run)
    if not isinstance(run, TrainingRun):
        return {**fields, "gpus": ranks_of(run, hardware), "feasible": True, "reason": None, "gpu_hours_at_least": None}
    model = catalogue.models[run.model]
    reason = infeasible_because(run, model, hardware)
    return {
        **fields,
        "gpus": run.ranks,
        "feasible": reason is None,
        "reason": reason,
        "memory_gib_at_least": least_memory_gib(run, model),
        "gpu_hours_at_least": None if reason else least_gpu_hours(run, model, hardware),
    }


def _totals(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Sums over feasible runs; GPU-hours are at peak rate, so a true campaign takes more."""
    feasible = [row for row in rows if row["feasible"]]
    hours = [row["gpu_hours_at_least"] for row in feasible if row["gpu_hours_at_least"] is not None]
    node_hours = [
        row["gpu_hours_at_least"] * row["nodes"] / row["gpus"]
        for row in feasible
        if row["gpu_hours_at_least"] is not None
    ]
    return {
        "runs": len(rows),
        "infeasible": len(rows) - len(feasible),
        "largest_gpus": max((row["gpus"] for row in rows), default=0),
        "gpu_hours_at_least": sum(hours) if hours else None,
        "node_hours_at_least": sum(node_hours) if node_hours else None,
        "runs_without_bound": len(feasible) - len(hours),
        **_expected(rows),
    }


def _add_costs(rows: dict[str, dict[str, Any]], runs: list[Run], platform: Platform, config: Config) -> None:
    """What each run would take on a platform, by the performance model or a bound."""
    from scaling_study.predict.forecasts import Forecast, forecast
    from scaling_study.predict.library import Library
    from scaling_study.submit.cost import Cost, costs_of

    found: dict[str, Forecast] = {}
    if (config.root / "calibration").is_dir():
        library = Library(config.root)
        parts = {name: one.part for name, one in config.catalogue.hardware.items()}
        known = [run for run in runs if (part := parts[run.hardware]) is not None and library.part(part) is not None]
        forecasts = forecast(known, config.catalogue, library, timelines=False) if known else []
        found = {run_id(one.run): one for one in forecasts}
    for name, cost in costs_of(runs, found, platform, config.catalogue).items():
        rows[name]["expected"] = cost if rows[name]["feasible"] else Cost(runs=1)  # what cannot fit is not submitted


def _expected(rows: list[dict[str, Any]]) -> dict[str, Any]:
    costs = [row["expected"] for row in rows if "expected" in row]
    if not costs:
        return {}
    from scaling_study.submit.cost import total

    return {"expected": total(costs)}


def print_listing(listing: dict[str, Any]) -> None:
    """The list for people: a table of runs, then the totals of each sweep."""
    from rich.table import Column, Table

    console = printer()
    table = Table(Column("run", overflow="fold"), "GPUs", "sweeps", "feasible", title=f"runs of {listing['study']}")
    for row in listing["runs"]:
        table.add_row(row["run_id"], f"{row['gpus']:,}", ", ".join(row["sweeps"]), row["reason"] or "yes")
    console.print(table)
    summary = Table(
        Column("sweep", overflow="fold"),
        "runs",
        "infeasible",
        "most GPUs",
        "GPU-hours, least",
        "node-hours, least",
    )
    for name, totals in [*listing["sweeps"].items(), ("all, each run once", listing["totals"])]:
        hours = [totals["gpu_hours_at_least"], totals["node_hours_at_least"]]
        counts = [totals["runs"], totals["infeasible"], totals["largest_gpus"]]
        bounds = ["no bound" if value is None else f"{value:,.1f}" for value in hours]
        summary.add_row(name, *(f"{count:,}" for count in counts), *bounds)
    console.print(summary)
    if "expected" in listing["totals"]:
        console.print(_expectations(listing))
    console.print(
        "Lower bounds: every FLOP of the timed iterations at the part's dense peak; what is real takes longer."
    )


def _expectations(listing: dict[str, Any]) -> Table:
    """What a platform would take for it: sums a sweep, and of all runs once."""
    from rich.table import Table

    names = ("sweep", "runs", "bounded", "GPU-hours", "node-hours", "longest, min", "energy, kWh", "price")
    table = Table(*names, title="expected on the platform, by the performance model or the limit of a run")
    for name, totals in [*listing["sweeps"].items(), ("all, each run once", listing["totals"])]:
        cost = totals["expected"]
        hours = [f"{value:,.1f}" for value in (cost.gpu_hours, cost.node_hours, cost.longest_s / 60, cost.energy_kwh)]
        price = "" if cost.price is None else f"{cost.price:,.0f}"
        table.add_row(name, f"{cost.runs:,}", f"{cost.bounded:,}", *hours, price)
    return table
