"""Planning: every layout of a model on some GPUs, ranked by predicted throughput.

Searched are tensor and pipeline degrees, interleaved chunks, micro-batches, activation checkpointing, and whether
parameters are gathered again in the backward pass; what the training code cannot run is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from scaling_study.errors import UserError
from scaling_study.predict.batch import batch_of
from scaling_study.predict.fast import iteration
from scaling_study.predict.footprint import fits, memory_gib
from scaling_study.predict.library import Library
from scaling_study.predict.ours import setup_of_run
from scaling_study.predict.power import power_w
from scaling_study.predict.predictions import families, mfu
from scaling_study.predict.setup import Setup
from scaling_study.spec import (
    ActivationCheckpointing,
    Config,
    Hardware,
    Model,
    PipelineSchedule,
    Precision,
    TrainingRun,
    named,
    violations,
)

_LARGEST_MICRO_BATCH = 16
_BATCH = 4096  # setups predicted together
#: Chunks a stage: PyTorch keeps at most three gathered, so four or more would be gathered again in every round.
_CHUNKS = (1, 2)


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One layout and what it would do; `gpu_hours_per_billion_tokens` is its cost."""

    dp: int
    tp: int
    pp: int
    virtual_stages: int
    micro_batch: int
    activation_checkpointing: ActivationCheckpointing
    reshard_after_forward: bool
    fits: bool
    step_time_s: float
    tokens_per_second: float
    tokens_per_second_per_gpu: float
    mfu: float
    memory_gib: float
    power_w_per_gpu: float
    tokens_per_joule: float
    gpu_hours_per_billion_tokens: float


def candidates(
    model: Model, hardware: Hardware, gpus: int, global_batch: int, sequence_length: int
) -> Iterator[TrainingRun]:
    """Every run that the training code can do.

    Raises:
        UserError: the GPUs do not fill nodes.
    """
    if gpus % hardware.gpus_per_node:
        raise UserError(
            f"{gpus} GPUs do not fill nodes of {hardware.gpus_per_node}",
            where="--gpus",
            remedy=f"Give a multiple of {hardware.gpus_per_node}.",
        )
    precision = Precision.BF16 if Precision.BF16 in hardware.peak_tflops else Precision.FP16
    for tp, pp, chunks, micro in _degrees(model, gpus):
        for kind in ActivationCheckpointing:
            for reshard in (False, True):
                run = TrainingRun(
                    model=model.name,
                    hardware=hardware.name,
                    nodes=gpus // hardware.gpus_per_node,
                    dp=gpus // (tp * pp),
                    tp=tp,
                    pp=pp,
                    virtual_stages=chunks,
                    micro_batch=micro,
                    global_batch=global_batch,
                    sequence_length=sequence_length,
                    precision=precision,
                    activation_checkpointing=kind,
                    reshard_after_forward=reshard,
                    schedule=PipelineSchedule.INTERLEAVED if chunks > 1 else PipelineSchedule.ONE_F_ONE_B,
                )
                if not violations(run, model, hardware):
                    yield run


def _degrees(model: Model, gpus: int) -> Iterator[tuple[int, int, int, int]]:
    """Tensor and pipeline degree, chunks and micro-batch: powers of two, as far as the model goes."""
    for tp in _powers(min(gpus, model.kv_heads)):
        for pp in _powers(min(gpus // tp, model.layers)):
            for chunks in _CHUNKS if pp > 1 else (1,):
                for micro in _powers(_LARGEST_MICRO_BATCH):
                    yield tp, pp, chunks, micro


def _powers(largest: int) -> list[int]:
    return [2**exponent for exponent in range(largest.bit_length())]


def rank(runs: Sequence[TrainingRun], model: Model, hardware: Hardware, library: Library) -> list[Plan]:
    """Plans of runs: what fits before what does not, each by throughput.

    Raises:
        UserError: the model knows no such part.
    """
    setups = [setup_of_run(run, model, hardware, library) for run in runs]
    plans = []
    for start in range(0, len(setups), _BATCH):
        plans += _plans(runs[start : start + _BATCH], setups[start : start + _BATCH], library)
    return sorted(plans, key=lambda plan: (not plan.fits, -plan.tokens_per_second))


def _plans(runs: Sequence[TrainingRun], setups: Sequence[Setup], library: Library) -> list[Plan]:
    (family,) = families(setups)
    batch = batch_of(setups)
    found = iteration(batch, library.parameter_set(family).values(), family)
    reserved = memory_gib(batch)
    watts = power_w(batch, found, np.array([setup.power_limit_w for setup in setups]))
    columns = zip(runs, setups, found.total, reserved, fits(batch, reserved), watts, strict=True)
    return [_plan(run, setup, float(s), float(gib), bool(fit), float(w)) for run, setup, s, gib, fit, w in columns]


def _plan(run: TrainingRun, setup: Setup, seconds: float, reserved: float, fit: bool, watts: float) -> Plan:
    rate = setup.tokens / seconds
    return Plan(
        dp=run.dp,
        tp=run.tp,
        pp=run.pp,
        virtual_stages=run.virtual_stages,
        micro_batch=run.micro_batch,
        activation_checkpointing=run.activation_checkpointing,
        reshard_after_forward=run.reshard_after_forward,
        fits=fit,
        step_time_s=seconds,
        tokens_per_second=rate,
        tokens_per_second_per_gpu=rate / setup.gpus,
        mfu=mfu(setup, seconds),
        memory_gib=reserved,
        power_w_per_gpu=watts,
        tokens_per_joule=rate / (watts * setup.gpus),
        gpu_hours_per_billion_tokens=1e9 / rate * setup.gpus / 3600,
    )


def plan(
    config: Config, model_name: str, hardware_name: str, gpus: int, global_batch: int, sequence_length: int
) -> list[Plan]:
    """Every layout, ranked.

    Raises:
        UserError: a name is not known, or no layout is possible.
    """
    model = named(config.catalogue.models, model_name, "--model")
    hardware = named(config.catalogue.hardware, hardware_name, "--hardware")
    runs = list(candidates(model, hardware, gpus, global_batch, sequence_length))
    if not runs:
        raise UserError(
            f"no layout of {model_name} on {gpus} GPUs has a global batch of {global_batch}",
            where="--global-batch",
            remedy="Give a multiple of the GPUs, or fewer GPUs.",
        )
    return rank(runs, model, hardware, Library(config.root))
