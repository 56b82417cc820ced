"""What the verb `roofline` shows: the least times of a run, and tensor parallelism against its links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from rich.table import Table

from scaling_study.console import printer
from scaling_study.errors import UserError
from scaling_study.roofline import (
    Bounds,
    bounds_of_iteration,
    bounds_of_layer,
    links_of,
    memory_bytes_per_s,
    peak_flops,
    shard_of,
)
from scaling_study.spec import Catalogue, Hardware, Model, NumberFormat, Regime, TrainingRun, named, run_id, violations

_DEGREES = (1, 2, 4, 8, 16, 32, 64)


def run_of_options(fields: Mapping[str, Any], catalogue: Catalogue) -> TrainingRun:
    """A run from options; data parallelism takes the GPUs that are left.

    Raises:
        UserError: a name is not known, or the layout is impossible.
    """
    hardware = named(catalogue.hardware, fields["hardware"], "--hardware")
    model = named(catalogue.models, fields["model"], "--model")
    gpus, shared = fields["nodes"] * hardware.gpus_per_node, fields["tp"] * fields["pp"]
    dp = max(1, gpus // shared)
    batch = fields["global_batch"] or dp * fields["micro_batch"] * (fields["pp"] if fields["pp"] > 1 else 1)
    run = TrainingRun(**{**fields, "dp": dp, "global_batch": batch})
    if broken := violations(run, model, hardware):
        raise UserError("; ".join(broken), where="layout", remedy="Mend the options.")
    return run


def bounds_of_run(run: TrainingRun, catalogue: Catalogue, launch_interval_us: float) -> dict[str, Any]:
    """Every bound of a layer and of an iteration of a run, and what follows for its rate."""
    model, hardware = catalogue.models[run.model], catalogue.hardware[run.hardware]
    found = _bounds(run, model, hardware, launch_interval_us)
    least_s = found[-1].hardest_s or None
    return {
        "run_id": run_id(run),
        "model": run.model,
        "hardware": run.hardware,
        "gpus": run.ranks,
        "bounds": [
            {
                "what": one.what,
                "regime": one.longest.regime.value if one.longest else None,
                "bounds": msgspec.to_builtins(one.bounds),
            }
            for one in found
        ],
        "tensor_parallel": _tensor_parallel(run, model, hardware),
        "iteration_s_at_least": least_s,
        "tokens_per_second_at_most": run.tokens_per_iteration / least_s if least_s else None,
    }


def _tensor_parallel(run: TrainingRun, model: Model, hardware: Hardware) -> list[dict[str, Any]]:
    """A layer's forward pass of one micro-batch by degree and link; nothing where no roof is published."""
    number_format, tokens = NumberFormat(run.precision.value), run.micro_batch * run.sequence_length
    if not (peak_flops(hardware, number_format) and memory_bytes_per_s(hardware)):
        return []
    return [
        {
            "link": name,
            "tp": tp,
            "local_us": shard.local_s * 1e6,
            "all_reduces_us": (shard.block_s - shard.local_s) * 1e6,
            "regime": shard.regime.value,
        }
        for name, link in links_of(hardware).items()
        for tp in _DEGREES
        if model.heads % tp == 0
        for shard in [shard_of(model, hardware, link, tp, tokens, number_format)]
    ]


def _bounds(run: TrainingRun, model: Model, hardware: Hardware, launch_interval_us: float) -> list[Bounds]:
    interval_s = launch_interval_us * 1e-6
    layers = bounds_of_layer(run, model, hardware, launch_interval_s=interval_s)
    return [*layers, bounds_of_iteration(run, model, hardware, launch_interval_s=interval_s)]


def print_bounds(found: Mapping[str, Any]) -> None:
    """The same for people, ms."""
    console = printer()
    console.print(
        f"{found['run_id']}: least times of a mean rank of {found['gpus']:,} over an iteration", soft_wrap=True
    )
    table = Table(box=None, pad_edge=False)
    table.add_column("what")
    table.add_column("bound")
    table.add_column("ms, at least", justify="right")
    table.add_column("arithmetic", overflow="fold")
    for one in found["bounds"]:
        for bound in one["bounds"]:
            limits = " <- limits" if bound["regime"] == one["regime"] else ""
            time = "" if bound["seconds"] is None else f"{bound['seconds'] * 1e3:,.4g}"
            table.add_row(one["what"], f"{bound['regime']}{limits}", time, bound["arithmetic"])
    console.print(table)
    if found["tensor_parallel"]:
        said = "a layer's all-reduces (rings) against its matrix products: forward, one micro-batch, us"
        console.print(f"{said}; *: they take longer", soft_wrap=True)
        console.print(_degrees_table(found["tensor_parallel"]))
    if found["tokens_per_second_at_most"]:
        said = f"launches aside, at most {found['tokens_per_second_at_most']:,.4g} tokens/s"
        console.print(f"{said}, {found['tokens_per_second_at_most'] / found['gpus']:,.4g} a GPU", soft_wrap=True)


def _degrees_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """A row a degree, a column a link; a star where collectives take longer than what is computed."""
    links = list(dict.fromkeys(row["link"] for row in rows))
    table = Table(box=None, pad_edge=False)
    for name in ("tp", "products", *links):
        table.add_column(name, justify="right")
    for tp in dict.fromkeys(row["tp"] for row in rows):
        of_links = [row for row in rows if row["tp"] == tp]
        marked = [
            f"{row['all_reduces_us']:,.4g}{'*' if row['regime'] == Regime.COMMUNICATION else ' '}" for row in of_links
        ]
        table.add_row(str(tp), f"{of_links[0]['local_us']:,.4g}", *marked)
    return table
