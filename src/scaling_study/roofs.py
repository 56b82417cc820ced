"""What the verbs `roofline` and `check-claim` show: bounds of a run, and whether a claimed rate is possible."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from rich.table import Table

from scaling_study.console import printer
from scaling_study.errors import UserError, read_bytes
from scaling_study.roofline import (
    Bounds,
    Claim,
    Judgement,
    Network,
    bounds_of_iteration,
    bounds_of_layer,
    judge,
    links_of,
    memory_bytes_per_s,
    network_of,
    network_of_parameters,
    peak_flops,
    shard_of,
)
from scaling_study.spec import (
    Catalogue,
    Hardware,
    Model,
    NumberFormat,
    Phase,
    Precision,
    Regime,
    Sourced,
    TrainingRun,
    run_id,
    violations,
)

T = TypeVar("T")
#: The ways to state a rate; a claim has one of them.
RATES = ("tokens_per_second", "tokens_per_second_per_gpu", "step_time_ms", "mfu", "tflops_per_gpu")
_GIVEN = "given"
_DEGREES = (1, 2, 4, 8, 16, 32, 64)


class Stated(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What somebody states of a rate, in the words of the command line; counts of parameters are plain numbers.

    Attributes:
        model: of `config/models`, or `parameters` in its place (and `active_parameters` of a mixture of experts).
        hardware: of `config/hardware`, or the dense `peak_tflops` in the claim's format in its place, with what else
            of the part is known.
        batch: sequences of a step over all GPUs.
        context_length: tokens of a sequence in training, of a prompt, or that a decoded token attends to.
    """

    gpus: int
    phase: Phase = Phase.TRAIN
    model: str | None = None
    parameters: float | None = None
    active_parameters: float | None = None
    hardware: str | None = None
    peak_tflops: float | None = None
    memory_gb_per_s: float | None = None
    memory_gib: float | None = None
    tokens_per_second: float | None = None
    tokens_per_second_per_gpu: float | None = None
    step_time_ms: float | None = None
    mfu: float | None = None
    tflops_per_gpu: float | None = None
    precision: NumberFormat = NumberFormat.BF16
    batch: int | None = None
    context_length: int | None = None
    tp: int | None = None
    tokens_per_pass: float = 1.0
    kernels: int | None = None
    launch_interval_us: float | None = None


class Published(Stated, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A row of a table of claims: what is stated, by whom, and what is known of it.

    Attributes:
        possible: what the verdict must be; `limit`: the roof that must say so, of an impossible one.
    """

    id: str
    source: str
    possible: bool
    limit: str | None = None
    note: str | None = None


def claim_of(stated: Stated, catalogue: Catalogue) -> Claim:
    """A claim as roofs take it.

    Raises:
        UserError: a name is not known, something is missing, stated twice, or not positive.
    """
    for name in stated.__struct_fields__:
        value = getattr(stated, name)
        if isinstance(value, int | float) and not isinstance(value, bool) and not 0 < value < float("inf"):
            raise UserError(f"{value:g} is not above zero", where=_option(name), remedy="Give a positive number.")
    network, hardware = _network(stated, catalogue), _hardware(stated, catalogue)
    if stated.tp is not None and stated.gpus % stated.tp:
        what = f"{stated.gpus} GPUs cannot be split into groups of {stated.tp}"
        raise UserError(what, where="--tp", remedy="Give a divisor of --gpus.")
    claim = Claim(
        network=network,
        hardware=hardware,
        gpus=stated.gpus,
        phase=stated.phase,
        tokens_per_second=0.0,
        number_format=stated.precision,
        batch=stated.batch,
        context_length=stated.context_length or 0,
        tp=stated.tp,
        tokens_per_pass=stated.tokens_per_pass,
        kernels=stated.kernels,
        launch_interval_s=None if stated.launch_interval_us is None else stated.launch_interval_us * 1e-6,
    )
    return msgspec.structs.replace(claim, tokens_per_second=_rate(stated, claim))


def _rate(stated: Stated, claim: Claim) -> float:
    """Tokens/s over all GPUs, however they are stated.

    FLOPs become tokens by the convention of MFU: 6 N + 12 layers x hidden x sequence a token of training, a third of
    it forward.
    """
    given = [name for name in RATES if getattr(stated, name) is not None]
    if len(given) != 1:
        said = f"{len(given)} rates are claimed ({', '.join(map(_option, given))})" if given else "no rate is claimed"
        raise UserError(said, where="claim", remedy=f"Give one of {', '.join(map(_option, RATES))}.")
    value: float = getattr(stated, given[0])
    flops = claim.network.model_flops(claim.context_length) / (1 if stated.phase is Phase.TRAIN else 3)
    match given[0]:
        case "tokens_per_second":
            return value
        case "tokens_per_second_per_gpu":
            return value * stated.gpus
        case "tflops_per_gpu":
            return value * 1e12 * stated.gpus / flops
        case "mfu":
            return value * _peak_of_mfu(claim) * stated.gpus / flops
    tokens = claim.tokens_of_a_pass
    if tokens is None:
        raise UserError(
            "a time of a step needs to know its tokens",
            where="--step-time-ms",
            remedy="Give --batch, in sequences, and --context-length.",
        )
    return tokens / value * 1e3


def _peak_of_mfu(claim: Claim) -> float:
    peak = peak_flops(claim.hardware, claim.number_format)
    if peak is None:
        raise UserError(
            f"no peak of {claim.hardware.title} in {claim.number_format} is published",
            where="--mfu",
            remedy="Claim tokens per second, or give --peak-tflops.",
        )
    return peak


def _network(stated: Stated, catalogue: Catalogue) -> Network:
    if (stated.model is None) == (stated.parameters is None):
        raise UserError(
            "a claim is of one model", where="claim", remedy="Give --model or --parameters, not both and not none."
        )
    if stated.model is not None:
        return network_of(named(catalogue.models, stated.model, "--model"))
    assert stated.parameters is not None
    active = stated.active_parameters
    if active is not None and active > stated.parameters:
        raise UserError(
            "more parameters are active than there are", where="--active-parameters", remedy="Mend one of the two."
        )
    return network_of_parameters(stated.parameters, active)


def _hardware(stated: Stated, catalogue: Catalogue) -> Hardware:
    if (stated.hardware is None) == (stated.peak_tflops is None):
        raise UserError(
            "a claim is of one hardware",
            where="claim",
            remedy="Give --hardware or --peak-tflops, not both and not none.",
        )
    if stated.hardware is not None:
        return named(catalogue.hardware, stated.hardware, "--hardware")
    peak, memory, room = (
        Sourced(value, _GIVEN) if value is not None else None
        for value in (stated.peak_tflops, stated.memory_gb_per_s, stated.memory_gib)
    )
    assert peak is not None
    return Hardware(
        name=_GIVEN,
        title="a part of which numbers are given",
        gpus_per_node=stated.gpus,
        peak_tflops=dict.fromkeys(Precision, peak),
        peak_8bit_tflops=peak,
        memory_gb_per_s=memory,
        memory_gib=room,
        sources={_GIVEN: "whoever states the claim"},
    )


def named(known: Mapping[str, T], name: str, where: str) -> T:
    """The thing of that name.

    Raises:
        UserError: there is none.
    """
    if name not in known:
        raise UserError(f"unknown: {name!r}", where=where, remedy=f"Known: {', '.join(known)}.")
    return known[name]


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def read_published(path: Path) -> list[Published]:
    """A table of claims from CSV; an empty cell says nothing.

    Raises:
        UserError: it cannot be read, or a row is not valid.
    """
    try:
        rows = list(csv.DictReader(read_bytes(path).decode().splitlines()))
    except UnicodeDecodeError as error:
        raise UserError("it is no text", where=str(path), remedy="Give a CSV file.") from error
    found = []
    for number, row in enumerate(rows, start=2):
        try:
            found.append(msgspec.convert({k: v for k, v in row.items() if v}, Published, strict=False))
        except (msgspec.ValidationError, TypeError) as error:
            raise UserError(str(error), where=f"{path}, line {number}", remedy="Mend the row.") from error
    return found


def judge_table(path: Path, catalogue: Catalogue) -> list[dict[str, Any]]:
    """Every claim of a table judged, and whether that is what the table expects.

    Raises:
        UserError: the table or one of its claims is not valid.
    """
    found = []
    for one in read_published(path):
        try:
            judged = judge(claim_of(one, catalogue))
        except UserError as error:
            raise UserError(error.what, where=f"{path}, {one.id}", remedy=error.remedy) from error
        limit = judged.limit.regime.value if judged.limit else None
        right = judged.possible == one.possible and one.limit in (None, limit)
        found.append({"id": one.id, "source": one.source, "as_expected": right, **msgspec.to_builtins(judged)})
    return found


def print_table(found: Sequence[Mapping[str, Any]]) -> None:
    """The same for people."""
    table = Table(box=None, pad_edge=False)
    for name in ("claim", "verdict", "roof"):
        table.add_column(name)
    table.add_column("claimed / roof", justify="right")
    table.add_column("arithmetic of the roof", overflow="fold")
    for row in found:
        limit = row["limit"] or {"regime": "none", "arithmetic": ""}
        verdict = ("possible" if row["possible"] else "impossible") + ("" if row["as_expected"] else " (not expected)")
        table.add_row(row["id"], verdict, limit["regime"], _share(row["share_of_limit"]), limit["arithmetic"])
    printer().print(table)


def print_judgement(judged: Judgement, claim: Claim) -> None:
    """A verdict for people: the sentence, every roof with its arithmetic, what to look for."""
    console = printer()
    rate = f"{judged.claimed_tokens_per_second:,.4g} tokens/s of {claim.network.name} in {claim.phase}"
    where = f"on {claim.gpus:,} x {claim.hardware.title}"
    limit = judged.limit
    verdict = "possible" if judged.possible else "impossible"
    by = (
        f"{_share(judged.share_of_limit) or 'above all'} of the {limit.regime} roof" if limit else "below no known roof"
    )
    console.print(f"{verdict}: {rate} {where} is {by}", markup=False, soft_wrap=True)
    table = Table(box=None, pad_edge=False)
    table.add_column("roof")
    table.add_column("tokens/s", justify="right")
    table.add_column("arithmetic", overflow="fold")
    for roof in judged.roofs:
        table.add_row(roof.regime, f"{roof.tokens_per_second:,.4g}", roof.arithmetic)
    console.print(table)
    for note in judged.notes:
        console.print(f"- {note}", markup=False, soft_wrap=True)


def _share(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.0%}" if value < 2 else f"{value:,.3g} times"


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
        said = "a layer's all-reduces (rings) against its matrix products: forward, one micro-batch, us; *: they take longer"
        console.print(said, soft_wrap=True)
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
