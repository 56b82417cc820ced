"""Runs, results and folders that several tests are about, and how much hypothesis may try."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from scaling_study.spec import (
    AttentionBackend,
    Config,
    DataSource,
    Environment,
    Model,
    Outcome,
    Precision,
    Protocol,
    RankReport,
    RunResult,
    Sourced,
    TrainingRun,
)
from scaling_study.spec.hardware import Hardware

ROOT = Path(__file__).resolve().parents[2]
CONFIG = Config(ROOT / "config")

#: For every property: bounded, and not failed by a busy machine.
bounded = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])

TINY = Model(name="tiny", layers=2, hidden=8, heads=2, kv_heads=1, ffn=16, vocabulary=32, source="test")
#: 2 * (2*8*8 + 2*8*1*4 + 3*8*16 + 2*8) + 2*32*8 + 8
TINY_PARAMETERS = 1704

PART = Hardware(
    name="part",
    title="a test part",
    gpus_per_node=2,
    peak_tflops={Precision.FP32: Sourced(2.0, "s")},
    memory_gib=Sourced(1.0, "s"),
    sources={"s": "test"},
)


def is_committed(name: str, content: bytes) -> bool:
    """Whether a file of the checkout has this content, as it lies there or, where a study was made since, in git."""
    if (ROOT / name).read_bytes() == content:
        return True
    found = subprocess.run(["git", "show", f"HEAD:{name}"], cwd=ROOT, capture_output=True, check=False)
    if found.returncode:
        pytest.skip(f"{name} was made anew, and there is no git that has the committed one")
    return found.stdout == content


def training_run(**fields):
    """Two data-parallel ranks of `TINY` on one node of `PART`."""
    dp, tp, pp = (fields.get(name, default) for name, default in (("dp", 2), ("tp", 1), ("pp", 1)))
    defaults = {
        "model": "tiny",
        "hardware": "part",
        "nodes": max(1, dp * tp * pp // 2),
        "dp": 2,
        "micro_batch": 1,
        "global_batch": 4,
        "sequence_length": 16,
        "precision": Precision.FP32,
        "attention": AttentionBackend.SDPA,
        "protocol": Protocol(iterations=5, discard=1, profiled_iterations=2, data="synthetic"),
    }
    return TrainingRun(**{**defaults, **fields})


def rank_report(rank=0, **fields):
    defaults = {
        "rank": rank,
        "host": "node-a",
        "device": "a processor",
        "cores": 4,
        "threads": 1,
        "peak_memory_gib": 0.5,
        "iteration_ns": [1_000_000_000] * 5,
        "profiled_ns": [1_000_000_000] * 2,
        "losses": [3.0] * 5,
        "compute_ns": 1_000_000_000,
        "communication_ns": 0,
        "exposed_communication_ns": 0,
        "communication_by_axis_ns": {},
        "exposed_by_axis_ns": {},
    }
    return RankReport(**{**defaults, **fields})


def environment(**fields):
    defaults = {
        "torch": "2.10.0",
        "python": "3.12.1",
        "backend": "gloo",
        "attention_operator": "aten::_scaled_dot_product_flash_attention_for_cpu",
        "code_version": "0.1.0+abc",
        "data_source": DataSource.SYNTHETIC,
        "data_sha256": "0" * 64,
        "host_cores": 4,
        "unavailable": {"power_w_per_gpu": "no meter", "tokens_per_joule": "no meter"},
    }
    return Environment(**{**defaults, **fields})


def run_result(run=None, **fields):
    """A result that ended well, of as many ranks as the run has."""
    run = run or training_run()
    ok = fields.get("outcome", Outcome.OK) is Outcome.OK
    defaults = {
        "run": run,
        "outcome": Outcome.OK,
        "attempt": 1,
        "started_at": "2025-01-01T00:00:00.000+00:00",
        "finished_at": "2025-01-01T00:01:00.000+00:00",
        "ranks": [rank_report(rank) for rank in range(run.ranks)] if ok and isinstance(run, TrainingRun) else [],
        "environment": environment() if ok else None,
    }
    return RunResult(**{**defaults, **fields})
