"""Runs of this study, predicted: a timeline analysed as a measured one is, memory, power, an interval.

The timeline is of one iteration and one rank a pipeline stage; what a record says of communication is the mean over
these, as it is over ranks in a measurement.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from scaling_study.predict.batch import batch_of
from scaling_study.predict.fabric import Base, read_fabric_model, require_fabric, simulate
from scaling_study.predict.fast import iteration
from scaling_study.predict.footprint import FRAGMENTATION, USABLE
from scaling_study.predict.library import Library
from scaling_study.predict.memory import memory_of
from scaling_study.predict.ours import part_of_hardware, setup_of_run
from scaling_study.predict.power import power_w
from scaling_study.predict.predictions import families
from scaling_study.predict.primitives import LARGE_MESSAGE, primitive_seconds
from scaling_study.predict.schedule import Timeline, timeline
from scaling_study.predict.setup import Setup
from scaling_study.spec import Axis, Catalogue, CollectiveRun, Hardware, Model, Outcome, Pacing, Run, TrainingRun
from scaling_study.synchronisation.controller import PacingSettings
from scaling_study.timeline import UNKNOWN_AXIS, exposure
from scaling_study.tracking import Track, untracked

#: Outside of PyTorch's allocator: CUDA context and workspaces, and NCCL's buffers for each axis of several ranks.
_CONTEXT_GIB, _COMMUNICATOR_GIB = 1.0, 1.0
#: What a run under observation is predicted on: the network of the machines that the hardware files describe.
FABRIC = "rail-optimised"


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """What is predicted of a run; `metrics` are columns of a record, units in their names.

    Attributes:
        extrapolated: no public source has measured training on the part.
    """

    run: Run
    outcome: Outcome
    reason: str | None = None
    metrics: dict[str, float] = {}
    extrapolated: bool


def forecast(
    runs: Sequence[Run],
    catalogue: Catalogue,
    library: Library,
    *,
    timelines: bool = True,
    track: Track = untracked,
) -> list[Forecast]:
    """Predict runs, in order.

    Args:
        timelines: whether iterations are simulated and analysed; without, the closed form says how long they are,
            within a per cent, and nothing is said of communication.

    Raises:
        UserError: the model knows no such part.
    """
    training = [run for run in runs if isinstance(run, TrainingRun)]
    predicted = _training(training, catalogue, library, timelines=timelines)
    found = dict(zip(training, track(predicted, len(training)), strict=True))
    return [
        found[run] if isinstance(run, TrainingRun) else _collective(run, catalogue.hardware[run.hardware], library)
        for run in runs
    ]


def timeline_of_run(run: TrainingRun, catalogue: Catalogue, library: Library) -> Timeline:
    """The predicted timeline of a run, whether or not its memory suffices.

    Raises:
        UserError: the model knows no such part.
    """
    setup = _setup(run, catalogue, library)
    return timeline(run, setup, library.parameter_set(setup.part.family).values())


def _setup(run: TrainingRun, catalogue: Catalogue, library: Library) -> Setup:
    return setup_of_run(run, catalogue.models[run.model], catalogue.hardware[run.hardware], library)


def _training(
    runs: Sequence[TrainingRun], catalogue: Catalogue, library: Library, *, timelines: bool
) -> Iterator[Forecast]:
    setups = [_setup(run, catalogue, library) for run in runs]
    watts, seconds = np.zeros(len(runs)), np.zeros(len(runs))
    for family, index in families(setups).items():
        mine = [setups[i] for i in index]
        batch = batch_of(mine)
        times = iteration(batch, library.parameter_set(family).values(), family)
        seconds[index] = times.total
        watts[index] = power_w(batch, times, np.array([setup.power_limit_w for setup in mine]))
    lengths = [None] * len(runs) if timelines else seconds.tolist()
    for run, setup, watt, length in zip(runs, setups, watts, lengths, strict=True):
        yield _forecast(run, setup, catalogue.models[run.model], float(watt), library, length)


def _forecast(
    run: TrainingRun, setup: Setup, model: Model, watts: float, library: Library, closed_form_s: float | None
) -> Forecast:
    known = library.parameter_set(setup.part.family)
    peak_gib = peak_memory_gib(run, model)
    reason = _why_it_does_not_fit(run, peak_gib, setup.part.memory_gib)
    if reason:
        return Forecast(
            run=run,
            outcome=Outcome.OUT_OF_MEMORY,
            reason=reason,
            metrics={"peak_memory_gib": peak_gib},
            extrapolated=known.extrapolated,
        )
    times: dict[str, float] = {}
    seconds = closed_form_s
    if seconds is None:
        found = timeline(run, setup, known.values())
        seconds, times = found.iteration_ns / 1e9, _exposure(found)
        if run.is_observed:
            varied = _by_chance(run, base_of_run(run, setup, library), library)
            late = varied["iteration_s"] - seconds
            times |= {name: times[name] + late for name in ("communication_s", "exposed_communication_s")}
            times |= {name: times[name] + late for name in ("communication_dp_s", "exposed_dp_s")}
            seconds, times = varied["iteration_s"], {**times, **varied}
    metrics = {
        "iteration_s": seconds,
        "iteration_s_low": seconds * known.error_low,
        "iteration_s_high": seconds * known.error_high,
        **times,
        "power_w_per_gpu": watts,
        "peak_memory_gib": peak_gib,
    }
    return Forecast(run=run, outcome=Outcome.OK, metrics=metrics, extrapolated=known.extrapolated)


def base_of_run(run: TrainingRun, setup: Setup, library: Library) -> Base:
    """An iteration of a run without chance: the timeline's."""
    found = timeline(run, setup, library.parameter_set(setup.part.family).values())
    times = _exposure(found)
    exposed_s = times["exposed_communication_s"]
    return Base(
        nodes=run.nodes,
        gpus_per_node=run.ranks // run.nodes,
        work_s=found.iteration_ns / 1e9 - exposed_s,
        exposed_s=exposed_s,
        communication_s=times["communication_dp_s"],
    )


def bases_of_runs(runs: Sequence[TrainingRun], catalogue: Catalogue, library: Library) -> dict[int, Base]:
    """The same of the first run at each number of nodes."""
    first = {run.nodes: run for run in reversed(runs)}
    return {nodes: base_of_run(run, _setup(run, catalogue, library), library) for nodes, run in sorted(first.items())}


def _by_chance(run: TrainingRun, base: Base, library: Library) -> dict[str, float]:
    """Mean, percentiles and variation of the iterations that a run keeps, drawn with its repeat as the seed."""
    model = read_fabric_model(library.folder)
    taken = simulate(
        base,
        model.central(),
        require_fabric(model, FABRIC),
        run.protocol.iterations,
        np.random.default_rng(run.repeat),
        PacingSettings() if run.pacing is Pacing.ADAPTIVE else None,
    )[run.protocol.discard :]
    spread = float(taken.std(ddof=1)) if len(taken) > 1 else 0.0
    quantiles = {f"iteration_s_p{q:02d}": float(np.quantile(taken, q / 100)) for q in (5, 50, 95)}
    mean = float(taken.mean())
    return {"iteration_s": mean, "iteration_s_cv": spread / mean, **quantiles}


def peak_memory_gib(run: TrainingRun, model: Model) -> float:
    """Peak that tensors take on the fullest rank, 2**30 bytes.

    It is on the first stage, which keeps most micro-batches, or on the last, which has the logits.
    """
    return max(memory_of(run, model, stage).peak_gib for stage in {0, run.pp - 1})


def _why_it_does_not_fit(run: TrainingRun, peak_gib: float, memory_gib: float) -> str | None:
    communicators = sum(ranks > 1 for ranks in (run.dp, run.tp, run.pp))
    outside = _CONTEXT_GIB + _COMMUNICATOR_GIB * communicators
    needed, room = peak_gib * FRAGMENTATION + outside, USABLE * memory_gib
    if needed <= room:
        return None
    return f"tensors, allocator and buffers need {needed:.0f} GiB a GPU of {room:.0f} GiB that can be used"


def _exposure(found: Timeline) -> dict[str, float]:
    """Means over ranks of the unions of spans, in seconds."""
    ranks = list(exposure(found.spans).values())

    def mean_s(values: Sequence[int]) -> float:
        return statistics.fmean(values) / 1e9

    times = {
        "compute_s": mean_s([rank.compute_ns for rank in ranks]),
        "communication_s": mean_s([rank.communication_ns for rank in ranks]),
        "exposed_communication_s": mean_s([rank.exposed_communication_ns for rank in ranks]),
    }
    for axis in (*Axis, UNKNOWN_AXIS):
        times[f"communication_{axis}_s"] = mean_s([rank.communication_by_axis_ns.get(axis, 0) for rank in ranks])
        times[f"exposed_{axis}_s"] = mean_s([rank.exposed_by_axis_ns.get(axis, 0) for rank in ranks])
    return times


def _collective(run: CollectiveRun, hardware: Hardware, library: Library) -> Forecast:
    part = part_of_hardware(hardware, library)
    known = library.parameter_set(part.family)
    counts = (run.nodes, run.nodes * hardware.gpus_per_node, run.message_bytes)
    nodes, ranks, message = (np.array([count], dtype=np.float64) for count in counts)
    hop_us = hardware.network_hop_us.value if hardware.network_hop_us else 0.0
    seconds = float(primitive_seconds(part, known.values(), run.op, nodes, ranks, message, hop_us)[0])
    spread = known.large_calls if run.message_bytes >= LARGE_MESSAGE else known.small_calls
    metrics = {"call_s": seconds, "call_s_low": seconds * spread.low, "call_s_high": seconds * spread.high}
    return Forecast(run=run, outcome=Outcome.OK, metrics=metrics, extrapolated=known.extrapolated)
