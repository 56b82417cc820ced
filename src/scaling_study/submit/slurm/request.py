"""What a run asks of Slurm: its shape, its wall time, and the parameters of sbatch as submitit has them."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from scaling_study.spec import Hardware, Platform, Run, SlurmSettings, ranks_of

#: srun is told what it would otherwise take from the environment or guess, and ends the others when a task fails.
SRUN_ARGUMENTS = ("--cpu-bind=none", "--kill-on-bad-exit=1", "--wait=30")
_SIGNAL_S = 30


class Shape(msgspec.Struct, frozen=True, order=True):
    """Runs of one shape share an array."""

    nodes: int
    tasks_per_node: int
    minutes: int


def settings_of(platform: Platform) -> SlurmSettings:
    """A Slurm platform's settings, which its validation has made sure of."""
    assert platform.slurm is not None
    return platform.slurm


def tasks_a_node(platform: Platform, hardware: Hardware) -> int:
    """Ranks that a node takes."""
    return settings_of(platform).tasks_per_node or hardware.gpus_per_node


def shape_of(run: Run, platform: Platform, hardware: Hardware, expected_s: float | None) -> Shape:
    """Nodes, tasks a node and minutes of a run.

    Args:
        expected_s: predicted length of all its iterations; None where nothing predicts it, and the platform's limit
            of a run stands in.
    """
    ranks, each = ranks_of(run, hardware), tasks_a_node(platform, hardware)
    return Shape(math.ceil(ranks / each), min(ranks, each), wall_minutes(platform, expected_s))


def wall_minutes(platform: Platform, expected_s: float | None) -> int:
    """Wall time to ask for: start-up and the predicted time with its margin, between the platform's bounds."""
    asked = settings_of(platform)
    seconds = platform.run_limit_s if expected_s is None else expected_s * asked.margin
    minutes = math.ceil(asked.start_up_minutes + seconds / 60)
    return min(max(minutes, asked.least_minutes), asked.most_minutes)


def cannot_hold(run: Run, platform: Platform, hardware: Hardware, expected_s: float | None) -> str | None:
    """Why a platform cannot hold a run, as a sentence; None if it can."""
    asked, ranks, each = settings_of(platform), ranks_of(run, hardware), tasks_a_node(platform, hardware)
    nodes = math.ceil(ranks / each)
    if ranks > each and ranks % each:
        return f"{ranks} ranks do not fill nodes of {each} (slurm.tasks_per_node)"
    if nodes > asked.nodes:
        return f"it needs {nodes} nodes, a job may have {asked.nodes} (slurm.nodes)"
    needed = asked.start_up_minutes + (expected_s or 0.0) / 60
    if needed > asked.most_minutes:
        return f"it takes about {needed:.0f} minutes, a job may take {asked.most_minutes} (slurm.most_minutes)"
    return None


def parameters(platform: Platform, shape: Shape, name: str, avoid: Sequence[str] = ()) -> dict[str, Any]:
    """Parameters of submitit's executor for jobs of a shape; what is None is left to Slurm.

    Args:
        avoid: nodes beside those that the platform excludes.
    """
    asked = settings_of(platform)
    exclude = ",".join([*([asked.exclude] if asked.exclude else []), *avoid])
    chosen: dict[str, Any] = {
        "job_name": name,
        "partition": asked.partition,
        "account": asked.account,
        "qos": asked.qos,
        "constraint": asked.constraint,
        "exclude": exclude or None,
        "time": shape.minutes,
        "cpus_per_task": asked.cpus_per_task,
        "gpus_per_node": shape.tasks_per_node if asked.gpus else None,
        "exclusive": True if asked.exclusive else None,
        "array_parallelism": max(1, asked.nodes_at_once // shape.nodes),
        "signal_delay_s": _SIGNAL_S,
        "stderr_to_stdout": True,
        "setup": [*asked.setup, *_exports(asked.environment)],
        "srun_args": [*SRUN_ARGUMENTS, f"--cpus-per-task={asked.cpus_per_task}"],
        "additional_parameters": {
            # not told to submitit itself, which would keep objects for every task of every job: 70 MB for a sweep
            "nodes": shape.nodes,
            "ntasks_per_node": shape.tasks_per_node,
            "no-requeue": True,  # a run is submitted again as another attempt
            "mem": f"{asked.memory_gib_per_node}G" if asked.memory_gib_per_node else "0",
        },
    }
    return {key: value for key, value in chosen.items() if value is not None}


def _exports(environment: Mapping[str, str]) -> list[str]:
    """Lines of shell that set variables of the ranks, and caches that no two jobs share."""
    local = 'export TRITON_CACHE_DIR="${TMPDIR:-/tmp}/scaling-study-$SLURM_JOB_ID/triton"'
    inductor = 'export TORCHINDUCTOR_CACHE_DIR="${TMPDIR:-/tmp}/scaling-study-$SLURM_JOB_ID/inductor"'
    return [*(f"export {name}={shlex.quote(value)}" for name, value in sorted(environment.items())), local, inductor]
