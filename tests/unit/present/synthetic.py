"""Records made up for tests: a laptop's study in miniature and a cluster's at full size. No number here is a result."""

from __future__ import annotations

import json
from math import log2
from typing import Any

import polars as pl

from scaling_study.present.context import FigureContext
from scaling_study.records import SCHEMA

CPU_REASONS = {
    "mfu": "no peak is published for fp32 on CPU ranks of one machine",
    "power_w_per_gpu": "this machine has no power counter that a process may read",
    "tokens_per_joule": "this machine has no power counter that a process may read",
}
MINI = FigureContext(
    study="mini",
    study_title="The study in miniature",
    sweep="data_parallel",
    sweep_title="Data-parallel scaling at a constant local batch",
    figure="hst-00",
    hardware_title="CPU ranks of one machine",
    device="rank",
    assumptions=("Ranks share the cores of one machine.",),
)
PAPER = FigureContext(
    study="paper",
    study_title="Hardware scaling trends at full size",
    sweep="data_parallel",
    sweep_title="Data-parallel scaling at a constant local batch of 2",
    figure="hst-00",
    hardware_title="NVIDIA H100 SXM 80 GB in a DGX H100",
)


def record(**fields: Any) -> dict[str, Any]:
    """A record of a run that ended well, its times and rates consistent; fields given win."""
    dp, tp, pp = (fields.get(name, 1) for name in ("dp", "tp", "pp"))
    row = dict.fromkeys(SCHEMA) | {
        "kind": "training",
        "provenance": "measured",
        "outcome": "ok",
        "model": "mini-6m",
        "hardware": "cpu",
        "micro_batch": 2,
        "global_batch": 2 * dp,
        "sequence_length": 128,
        "precision": "fp32",
        "repeat": 0,
        "iterations": 20,
        "discard": 5,
        "profiled_iterations": 3,
        "dp": dp,
        "tp": tp,
        "pp": pp,
        "gpus": dp * tp * pp,
        "nodes": dp * tp * pp,
    }
    row |= fields
    name = "_".join(f"{row[key]}" for key in ("model", "hardware", "nodes", "dp", "tp", "pp", "micro_batch"))
    row.setdefault("run_id", name)
    row["run_id"] = row["run_id"] or name
    return _with_rates(row) if row["outcome"] == "ok" else row


def _with_rates(row: dict[str, Any]) -> dict[str, Any]:
    seconds = row["iteration_s"] or 1.0
    rate = row["global_batch"] * row["sequence_length"] / seconds
    derived = {
        "iteration_s": seconds,
        "iteration_s_p05": seconds * 0.94,
        "iteration_s_p50": seconds,
        "iteration_s_p95": seconds * 1.08,
        "iteration_s_cv": 0.04,
        "words_per_second": rate,
        "words_per_second_per_gpu": rate / row["gpus"],
        "compute_s": seconds * 0.8,
        "communication_s": seconds * 0.3,
        "exposed_communication_s": seconds * 0.2,
        "peak_memory_gib": 0.3,
        "profiler_overhead": 0.07,
    }
    row |= {name: value for name, value in derived.items() if row[name] is None}
    row["exposed_fraction"] = row["exposed_communication_s"] / seconds
    return row


def frame(*rows: dict[str, Any]) -> pl.DataFrame:
    """Records as a frame of the schema."""
    return pl.DataFrame(rows, schema=SCHEMA)


def mini_row(**fields: Any) -> dict[str, Any]:
    """A record as a small machine without counters leaves it."""
    machine = {
        "platform": "local",
        "device": "AMD EPYC",
        "host_cores": 2,
        "hosts": "node-a",
        "backend": "gloo",
        "threads_per_rank": 1,
        "data_source": "synthetic",
        "torch_version": "2.13.0",
        "python_version": "3.11.2",
        "code_version": "0.1.0",
        "null_reasons": json.dumps(CPU_REASONS),
    }
    row = record(**(machine | fields))
    row["oversubscribed"] = row["gpus"] > 2
    if row["outcome"] == "ok":
        row["tflops_per_gpu"] = row["words_per_second_per_gpu"] * 1.5e8 / 1e12
    return row


def mini_data_parallel() -> pl.DataFrame:
    """1, 2 and 4 ranks on two cores."""
    times = {1: (0.41, 0.36, 0.010, 0.009, 0.71), 2: (0.52, 0.42, 0.09, 0.075, 0.60), 4: (1.09, 0.83, 0.31, 0.24, 0.55)}
    return frame(
        *(
            mini_row(
                dp=ranks,
                iteration_s=iteration,
                compute_s=compute,
                communication_s=communication,
                exposed_communication_s=exposed,
                peak_memory_gib=memory,
            )
            for ranks, (iteration, compute, communication, exposed, memory) in times.items()
        )
    )


def mini_model_parallel() -> pl.DataFrame:
    """Six layouts of four ranks, two micro-batches each where they fit."""
    rows = []
    for tp, pp in ((1, 1), (1, 2), (1, 4), (2, 1), (2, 2), (4, 1)):
        for micro in (1, 2):
            iteration = 1.0 + 0.12 * log2(tp) ** 2 + 0.05 * log2(pp) + (0.03 if micro == 1 else 0)
            rows.append(
                mini_row(
                    dp=4 // (tp * pp),
                    tp=tp,
                    pp=pp,
                    micro_batch=micro,
                    global_batch=8,
                    iteration_s=iteration,
                    exposed_communication_s=0.2 + 0.1 * log2(tp) + 0.02 * log2(pp),
                )
            )
    return frame(*rows)


def paper_row(**fields: Any) -> dict[str, Any]:
    """A record of a cluster of 8-GPU nodes."""
    common = {
        "model": "llama2-7b",
        "hardware": "h100",
        "sequence_length": 4096,
        "precision": "bf16",
        "iterations": 60,
        "discard": 10,
        "nodes": fields["dp"] * fields.get("tp", 1) * fields.get("pp", 1) // 8,
    }
    if fields.get("provenance", "measured") == "measured":
        common |= {"device": "NVIDIA H100 80GB HBM3", "oversubscribed": False, "host_cores": 192}
    row = record(**(common | fields))
    if row["outcome"] == "ok":
        row["tflops_per_gpu"] = row["words_per_second_per_gpu"] * 4.5e10 / 1e12
        row["mfu"] = row["tflops_per_gpu"] / 989.4
        row["power_w_per_gpu"] = row["power_w_per_gpu"] or 600 + 60 * (1 - row["exposed_fraction"])
        row["tokens_per_joule"] = row["words_per_second_per_gpu"] / row["power_w_per_gpu"]
    return row


def paper_data_parallel() -> pl.DataFrame:
    """8 to 2,048 GPUs: predicted throughout, measured up to 256, the smallest out of memory when measured."""
    rows = []
    for exponent in range(9):
        gpus = 8 * 2**exponent
        communication = 0.42 + 0.09 * exponent
        exposed = 0.02 + 0.006 * exponent**2
        for provenance, factor in (("measured", 1.0), ("predicted", 1.07)):
            fields = {"dp": gpus, "provenance": provenance, "global_batch": 2 * gpus}
            if provenance == "measured" and exponent > 5:
                continue
            if provenance == "measured" and exponent == 0:
                reason = "CUDA out of memory on rank 3"
                rows.append(paper_row(**fields, outcome="out_of_memory", reason=reason))
                continue
            rows.append(
                paper_row(
                    **fields,
                    iteration_s=(0.78 + exposed) * factor,
                    compute_s=0.76 * factor,
                    communication_s=communication * factor,
                    exposed_communication_s=exposed * factor,
                    peak_memory_gib=(34 + 320 / gpus) * factor,
                )
            )
    return frame(*rows)


def paper_model_parallel(*provenances: str, hardware: tuple[str, ...] = ("h100",)) -> pl.DataFrame:
    """Every tp x pp up to 16 on 256 GPUs, three micro-batches; without model parallelism 4 does not fit."""
    degrees = [(tp, pp) for tp in (1, 2, 4, 8, 16) for pp in (1, 2, 4, 8, 16) if tp * pp <= 16]
    rows = []
    for part in hardware:
        for provenance in provenances or ("measured", "predicted"):
            slower = (1.6 if part == "a100" else 1.0) * (1.06 if provenance == "predicted" else 1.0)
            for tp, pp in degrees:
                for micro in (1, 2, 4):
                    fields = {"hardware": part, "provenance": provenance, "dp": 256 // (tp * pp), "tp": tp, "pp": pp}
                    rows.append(_paper_layout(fields, micro, slower))
    return frame(*rows)


def _paper_layout(fields: dict[str, Any], micro: int, slower: float) -> dict[str, Any]:
    tp, pp = fields["tp"], fields["pp"]
    fields |= {"micro_batch": micro, "global_batch": 512}
    if (tp * pp == 1 and micro == 4) or (tp, pp) == (1, 16):
        return paper_row(**fields, outcome="out_of_memory", reason="CUDA out of memory")
    exposed = 0.34 / (tp * pp) + 0.055 * log2(tp) ** 1.7 + 0.03 * log2(pp) ** 1.5 + 0.02 * (tp * pp > 8)
    iteration = (0.78 + exposed + 0.02 * abs(log2(micro) - 1) + 0.04 * log2(pp)) * slower
    return paper_row(**fields, iteration_s=iteration, exposed_communication_s=exposed * slower)
