"""The performance model against its limits: how fast it plans, simulates and predicts a study, and that it is exact.

The limits are those of the project: 2,000 configurations and 20 timelines a second on one core, every run of the paper
study within 30 seconds, start-up of every process included.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import extraction
from benchmarks.lines import Line, limited
from benchmarks.ratios import Ratio, spread
from scaling_study.predict.forecasts import timeline_of_run
from scaling_study.predict.library import Library
from scaling_study.predict.planning import plan
from scaling_study.spec import Config, TrainingRun, expand

ROOT = Path(__file__).resolve().parents[1]
CONFIGURATIONS_A_SECOND, TIMELINES_A_SECOND, STUDY_S = 2000.0, 20.0, 30.0
_PLAN = ("llama2-7b", "h100", 2048, 4096, 4096)
_STUDY = "paper"


def run(rounds: int) -> list[Line]:
    """Three lines on speed."""
    config = Config(ROOT / "config")
    return [
        _rate("configurations ranked by `plan`", CONFIGURATIONS_A_SECOND, lambda: _plans(config), rounds),
        _rate("timelines of `model_parallel`", TIMELINES_A_SECOND, lambda: _timelines(config), rounds),
        _whole_study(config, max(1, rounds // 2)),
    ]


def run_extraction(_: int) -> list[Line]:
    """A line on exactness, of 7B and 70B on 2,048 ranks."""
    config = Config(ROOT / "config")
    equal = [extraction.check(name, *case, config) for name, case in extraction.CASES.items()]
    share = sum(equal) / len(equal)
    return [
        Line(
            benchmark="extraction",
            what=f"{len(equal)} ranks of 2,048, 7B and 70B: equal to the training code, memory within 5%",
            unit="equal",
            ours=spread([float(sum(equal))]),
            peer="all",
            theirs=spread([float(len(equal))]),
            ratio=Ratio(share, share, share),
            required=1.0,
        )
    ]


def _rate(what: str, limit: float, work: Callable[[], int], rounds: int) -> Line:
    rates = []
    for _ in range(rounds):
        started = time.process_time()
        count = work()
        rates.append(count / (time.process_time() - started))
    return limited("performance model", what, "/s", limit, rates, least=True)


def _plans(config: Config) -> int:
    return len(plan(config, *_PLAN))


def _timelines(config: Config) -> int:
    runs = expand(config.study(_STUDY), "model_parallel", config.catalogue)
    library = Library(config.root)
    for one in runs:
        assert isinstance(one, TrainingRun)
        timeline_of_run(one, config.catalogue, library)
    return len(runs)


def _whole_study(config: Config, rounds: int) -> Line:
    """Every sweep by its own process, one after another on one core, as a workflow with one core would."""
    sweeps = [name for name, sweep in config.study(_STUDY).sweeps.items() if sweep.status == "ready"]
    taken = [_predicted_s(sweeps) for _ in range(rounds)]
    what = f"every run of the paper study, {len(sweeps)} processes"
    return limited("performance model", what, "s", STUDY_S, taken)


def _predicted_s(sweeps: list[str]) -> float:
    command = [sys.executable, "-m", "scaling_study.cli", "--config", str(ROOT / "config"), "predict", _STUDY]
    core = min(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        for sweep in sweeps:
            subprocess.run(
                [*command, sweep, "--output", f"{folder}/{sweep}.parquet"],
                check=True,
                preexec_fn=lambda: os.sched_setaffinity(0, {core}),
            )
        return time.perf_counter() - started
