"""What runs would take on a platform, before anything is submitted: the performance model's word, or an upper bound.

Hours are those that jobs hold their GPUs and nodes: start-up and all iterations of a run. Where the model knows a run,
its energy comes from the predicted power; where it does not, the platform's limit of a run stands in for its length,
and the part's power limit for its power.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from scaling_study.predict.forecasts import Forecast
from scaling_study.spec import Catalogue, Outcome, Platform, Run, TrainingRun, ranks_of, run_id, steps_of

#: From the start of a local run to its first iteration, where no platform says it.
_START_UP_S = 10.0


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What a run, or several, would take.

    Attributes:
        bounded: how many of the runs have a bound in place of a prediction.
        longest_s: of a single job.
        price: None without a price in the platform's file.
    """

    runs: int = 0
    bounded: int = 0
    gpu_hours: float = 0.0
    node_hours: float = 0.0
    longest_s: float = 0.0
    energy_kwh: float = 0.0
    price: float | None = None


def cost_of(run: Run, found: Forecast | None, platform: Platform, catalogue: Catalogue) -> Cost:
    """What one run takes.

    Args:
        found: its prediction; None where the model does not know its hardware.
    """
    hardware, asked = catalogue.hardware[run.hardware], platform.slurm
    gpus = ranks_of(run, hardware)
    start_s = asked.start_up_minutes * 60 if asked else _START_UP_S
    step_s = found.metrics.get("iteration_s", found.metrics.get("call_s")) if found else None
    ends_early = found is not None and found.outcome is not Outcome.OK
    known = step_s is not None or ends_early
    busy_s = steps_of(run) * (step_s or 0.0) if known else platform.run_limit_s
    limit_w = hardware.power_limit_w.value if hardware.power_limit_w else 0.0
    watts = found.metrics.get("power_w_per_gpu", limit_w) if found and isinstance(run, TrainingRun) else limit_w
    hours = (start_s + busy_s) / 3600
    nodes = math.ceil(gpus / ((asked.tasks_per_node if asked else None) or hardware.gpus_per_node))
    price = None if asked is None or asked.price_per_gpu_hour is None else asked.price_per_gpu_hour * hours * gpus
    return Cost(
        runs=1,
        bounded=0 if known else 1,
        gpu_hours=hours * gpus,
        node_hours=hours * nodes,
        longest_s=start_s + busy_s,
        energy_kwh=busy_s / 3600 * watts * gpus / 1000,
        price=price,
    )


def total(costs: Sequence[Cost]) -> Cost:
    """The sum, and the longest job."""
    prices = [one.price for one in costs if one.price is not None]
    return Cost(
        runs=sum(one.runs for one in costs),
        bounded=sum(one.bounded for one in costs),
        gpu_hours=sum(one.gpu_hours for one in costs),
        node_hours=sum(one.node_hours for one in costs),
        longest_s=max((one.longest_s for one in costs), default=0.0),
        energy_kwh=sum(one.energy_kwh for one in costs),
        price=sum(prices) if prices else None,
    )


def costs_of(
    runs: Sequence[Run], found: Mapping[str, Forecast], platform: Platform, catalogue: Catalogue
) -> dict[str, Cost]:
    """What each run takes, by run id."""
    return {run_id(run): cost_of(run, found.get(run_id(run)), platform, catalogue) for run in runs}
