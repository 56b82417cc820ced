"""What the verb `check-claim` shows: whether a rate that somebody states is possible, one or a table of them."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from rich.table import Table

from scaling_study.console import printer
from scaling_study.errors import UserError, read_bytes
from scaling_study.roofline import Claim, Judgement, Network, judge, network_of, network_of_parameters, peak_flops
from scaling_study.spec import Catalogue, Hardware, NumberFormat, Phase, Precision, Sourced, named

#: The ways to state a rate; a claim has one of them.
RATES = ("tokens_per_second", "tokens_per_second_per_gpu", "step_time_ms", "mfu", "tflops_per_gpu")
_GIVEN = "given"


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
