"""Records made up for tests: a laptop's study in miniature and a cluster's at full size. No number here is a result."""

from __future__ import annotations

import itertools
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


def call_row(**fields: Any) -> dict[str, Any]:
    """A record of a collective, its bandwidths those of its time a call; `latency_s` and `link_gb_per_s` make one."""
    latency_s, link = fields.pop("latency_s", 1e-4), fields.pop("link_gb_per_s", 1.0)
    row = dict.fromkeys(SCHEMA) | {
        "kind": "collective",
        "provenance": "measured",
        "outcome": "ok",
        "hardware": "h100",
        "dtype": "bf16",
        "warmup": 5,
        "repeats": 20,
        "repeat": 0,
        "revision": 1,
        "gpus": 8 * fields["nodes"],
    }
    row |= fields
    row["run_id"] = row["run_id"] or "_".join(f"{row[key]}" for key in ("op", "hardware", "nodes", "message_bytes"))
    if row["outcome"] != "ok":
        return row
    ranks = row["gpus"]
    factor = (2 if row["op"] == "all_reduce" else 1) * (ranks - 1) / ranks
    seconds = row["call_s"] or latency_s + factor * row["message_bytes"] / link / 1e9
    row |= {"call_s": seconds, "call_s_p05": seconds * 0.9, "call_s_p50": seconds, "call_s_p95": seconds * 1.25}
    row |= {"call_s_cv": 0.1, "algorithm_bandwidth_gb_per_s": row["message_bytes"] / seconds / 1e9}
    row["bus_bandwidth_gb_per_s"] = factor * row["algorithm_bandwidth_gb_per_s"]
    return row


def mini_collectives() -> pl.DataFrame:
    """Two ops, two sizes, 2 and 4 ranks on two cores."""
    machine = {"hardware": "cpu", "dtype": "fp32", "repeats": 40, "device": "AMD EPYC", "host_cores": 2}
    return frame(
        *(
            call_row(
                **machine,
                op=op,
                nodes=ranks,
                gpus=ranks,
                message_bytes=size,
                oversubscribed=ranks > 2,
                latency_s=2e-4 * ranks,
                link_gb_per_s=3.0 / ranks,
            )
            for op in ("all_reduce", "all_gather")
            for ranks in (2, 4)
            for size in (2**16, 2**24)
        )
    )


def paper_collectives(*provenances: str) -> pl.DataFrame:
    """Three ops, 4 to 512 nodes, 1 MiB to 16 GiB; rings of many nodes pay for their length, the largest time out."""
    rows = []
    for provenance in provenances or ("predicted",):
        for op in ("all_reduce", "all_gather", "reduce_scatter"):
            for nodes in (2**exponent for exponent in range(2, 10)):
                latency_s = 3e-5 + (1.2e-5 * log2(8 * nodes) if op == "all_reduce" else 2.5e-6 * 8 * nodes)
                link = (390 - 4 * log2(nodes)) * (0.93 if provenance == "measured" else 1)
                for size in (2**exponent for exponent in range(20, 35, 2)):
                    fields = {"op": op, "nodes": nodes, "message_bytes": size, "provenance": provenance}
                    if provenance == "measured" and size == 2**34 and nodes > 128:
                        rows.append(call_row(**fields, outcome="timeout", reason="no result after 600 s"))
                    else:
                        rows.append(call_row(**fields, latency_s=latency_s, link_gb_per_s=link))
    return frame(*rows)


MINI_LAYOUTS = ((1, 1), (1, 2), (1, 4), (2, 1), (2, 2), (4, 1))
PAPER_LAYOUTS = tuple((tp, pp) for tp in (1, 2, 4, 8, 16) for pp in (1, 2, 4, 8, 16) if tp * pp <= 16)


def mini_fixed_batch() -> pl.DataFrame:
    """A global batch of 8 on 1, 2 and 4 ranks, every layout that fits; pipelines win on 4."""
    rows = []
    for ranks in (1, 2, 4):
        for tp, pp in MINI_LAYOUTS:
            if tp * pp <= ranks:
                seconds = (
                    0.4 + 0.1 * log2(ranks) + 0.3 * log2(tp) - (0.05 if (pp, ranks) == (2, 4) else -0.02 * (pp - 1))
                )
                fields = {"dp": ranks // (tp * pp), "tp": tp, "pp": pp, "micro_batch": 2 * tp, "global_batch": 8}
                rows.append(mini_row(**fields, iteration_s=seconds))
    return frame(*rows)


def paper_fixed_batch(*provenances: str) -> pl.DataFrame:
    """A global batch of 32 on 16 to 256 GPUs, every layout that divides it, three micro-batches."""
    return frame(
        *(
            row
            for provenance in provenances or ("predicted",)
            for gpus in (16, 32, 64, 128, 256)
            for row in _spread_out(gpus, 32, provenance, parameters=6.74e9)
        )
    )


def paper_pretraining(*provenances: str, model: str = "llama2-7b", parameters: float = 6.74e9) -> pl.DataFrame:
    """Two global batches on 512, 1,024 and 2,048 GPUs, every layout that divides them, three micro-batches."""
    return frame(
        *(
            row
            for provenance in provenances or ("predicted",)
            for batch in (1024, 2048)
            for gpus in (512, 1024, 2048)
            for row in _spread_out(gpus, batch, provenance, parameters=parameters, model=model)
        )
    )


def mini_pretraining(model: str = "mini-20m") -> pl.DataFrame:
    """A global batch of 8 on 2 and 4 ranks, with and without a pipeline of two stages."""
    times = {(2, 1): 0.9, (2, 2): 0.8, (4, 1): 1.0, (4, 2): 0.7}
    return frame(
        *(
            mini_row(model=model, dp=ranks // pp, pp=pp, global_batch=8, iteration_s=seconds)
            for (ranks, pp), seconds in times.items()
        )
    )


PARAMETERS = {
    "llama2-1b": 940_705_792,
    "llama2-7b": 6_738_415_616,
    "llama2-13b": 13_015_864_320,
    "llama2-70b": 68_976_648_192,
    "mini-4m": 4_400_000,
    "mini-9m": 9_200_000,
    "mini-20m": 20_100_000,
}


def paper_model_size(*provenances: str) -> pl.DataFrame:
    """Four models on 256 GPUs at 2 sequences a GPU; the largest does not fit below 4-fold model parallelism."""
    return frame(
        *(
            row
            for provenance in provenances or ("predicted",)
            for model in ("llama2-1b", "llama2-7b", "llama2-13b", "llama2-70b")
            for row in _spread_out(256, 512, provenance, parameters=PARAMETERS[model], model=model)
        )
    )


def mini_model_size() -> pl.DataFrame:
    """Three models on 4 ranks, with and without a pipeline of two stages."""
    return frame(
        *(
            mini_row(
                model=model,
                dp=4 // pp,
                pp=pp,
                global_batch=8,
                iteration_s=seconds * (1 - 0.1 * (pp - 1)),
                exposed_communication_s=seconds * 0.25 / pp,
            )
            for model, seconds in (("mini-4m", 0.2), ("mini-9m", 0.42), ("mini-20m", 0.95))
            for pp in (1, 2)
        )
    )


def _spread_out(
    gpus: int, batch: int, provenance: str, *, parameters: float, model: str = "llama2-7b"
) -> list[dict[str, Any]]:
    """Every layout of a global batch on some GPUs; what is larger than 20 GiB of weights a rank runs out of memory."""
    rows = []
    for tp, pp in PAPER_LAYOUTS:
        for micro in (1, 2, 4):
            dp = gpus // (tp * pp)
            if batch % (dp * micro) == 0:
                fields = {"model": model, "provenance": provenance, "dp": dp, "tp": tp, "pp": pp}
                fields |= {"micro_batch": micro, "global_batch": batch, "nodes": gpus // 8}
                fields["run_id"] = f"{model}_{gpus}_{tp}_{pp}_{micro}_{batch}"
                rows.append(_strained(fields, parameters))
    return rows


def _strained(fields: dict[str, Any], parameters: float) -> dict[str, Any]:
    dp, tp, pp, micro = (fields[name] for name in ("dp", "tp", "pp", "micro_batch"))
    if 2 * parameters / (tp * pp) / 2**30 > 40:
        return paper_row(**fields, outcome="out_of_memory", reason="CUDA out of memory")
    compute = fields["global_batch"] * 4096 * 6.6 * parameters / (dp * tp * pp) / 5.6e14
    waits = fields["global_batch"] // (dp * micro)
    communication = parameters / 6.74e9 * (0.25 + 0.03 * log2(dp)) / (tp * pp) + compute * 0.09 * log2(tp)
    communication += 0.012 * log2(tp) * log2(max(2, tp))
    exposed = max(0.25 * communication, communication - 0.5 * compute) + (0.1 * compute if tp > 8 else 0)
    slower = 1.02 + 0.1 * log2(tp) if fields["provenance"] == "predicted" else 1.0
    seconds = (compute * (1 + (pp - 1) / waits) + exposed + 0.01) * slower * (1 + 0.02 / micro)
    times = {"compute_s": compute, "communication_s": communication, "exposed_communication_s": exposed}
    row = paper_row(**fields, iteration_s=seconds, **times)
    row["tflops_per_gpu"] = row["words_per_second_per_gpu"] * 6.6 * parameters / 1e12
    row["mfu"] = row["tflops_per_gpu"] / 989.4
    return row


def mini_context_length() -> pl.DataFrame:
    """Sequences of 64 to 256 tokens on 4 ranks."""
    times = {64: (0.40, 0.19), 128: (0.47, 0.20), 256: (0.64, 0.20)}
    return frame(
        *(
            mini_row(
                dp=4,
                micro_batch=1,
                global_batch=4,
                sequence_length=length,
                iteration_s=iteration,
                exposed_communication_s=exposed,
                run_id=f"mini_s{length}",
            )
            for length, (iteration, exposed) in times.items()
        )
    )


def paper_context_length() -> pl.DataFrame:
    """1,024 to 32,768 tokens on 256 GPUs, predicted and measured; the longest does not fit when measured."""
    rows = []
    for length in (2**exponent for exponent in range(10, 16)):
        for provenance, factor in (("measured", 1.0), ("predicted", 1.05)):
            compute = 0.09 * length / 1024 * (1 + length / 60_000)
            exposed = max(0.03, 0.34 - 0.5 * compute)
            fields = {"dp": 256, "micro_batch": 1, "global_batch": 256, "sequence_length": length}
            fields |= {"provenance": provenance, "run_id": f"paper_s{length}"}
            if provenance == "measured" and length == 32_768:
                rows.append(paper_row(**fields, outcome="out_of_memory", reason="CUDA out of memory"))
                continue
            iteration = (compute + exposed) * factor
            rows.append(paper_row(**fields, iteration_s=iteration, exposed_communication_s=exposed))
    return frame(*rows)


def mini_generations() -> pl.DataFrame:
    """Three layouts of four ranks at three precisions."""
    rows = []
    for precision, factor in (("fp16", 3.0), ("bf16", 2.0), ("fp32", 1.0)):
        for tp, pp, micro in ((1, 1, 2), (1, 2, 2), (2, 1, 4)):
            fields = {"dp": 4 // (tp * pp), "tp": tp, "pp": pp, "micro_batch": micro, "global_batch": 8}
            fields |= {"precision": precision, "run_id": f"mini_{precision}_{tp}x{pp}"}
            iteration = factor * (0.45 + 0.3 * log2(tp) - 0.1 * log2(pp))
            rows.append(mini_row(**fields, iteration_s=iteration, exposed_communication_s=0.3 * iteration))
    return frame(*rows)


def mini_primitives() -> pl.DataFrame:
    """The collectives of a small machine, and two more primitives at one point each."""
    machine = {"hardware": "cpu", "dtype": "fp32", "repeats": 40, "device": "AMD EPYC", "host_cores": 2}
    points = (("reduce_scatter", 4), ("send_recv", 2))
    single = [
        call_row(**machine, op=op, nodes=ranks, gpus=ranks, message_bytes=2**24, oversubscribed=ranks > 2)
        for op, ranks in points
    ]
    return pl.concat([mini_collectives(), frame(*single)])


def mini_small_batch() -> pl.DataFrame:
    """Three layouts of four ranks at one sequence a rank; the pipeline is fastest."""
    times = {(1, 1): 0.5, (1, 2): 0.4, (2, 1): 0.8}
    return frame(
        *(
            mini_row(dp=4 // (tp * pp), tp=tp, pp=pp, micro_batch=1, global_batch=4, iteration_s=seconds)
            for (tp, pp), seconds in times.items()
        )
    )


def mini_large_scale() -> pl.DataFrame:
    """One layout of eight ranks."""
    return frame(mini_row(dp=2, tp=2, pp=2, global_batch=16, iteration_s=2.5, iteration_s_cv=0.3))


def mini_coordination() -> pl.DataFrame:
    """Three pairs without and with pacing on 2 and on 4 ranks; it helps a little on 4."""
    rows = []
    for ranks, repeat, pacing in itertools.product((2, 4), range(3), ("off", "adaptive")):
        paced = pacing == "adaptive"
        fields = {"dp": ranks, "global_batch": ranks, "repeat": repeat, "pacing": pacing}
        seconds = (0.5 + 0.01 * repeat) * (0.98 if paced and ranks == 4 else 1.0)
        rows.append(
            mini_row(
                **fields,
                run_id=f"coordination-{ranks}-{repeat}-{pacing}",
                iteration_s=seconds,
                iteration_s_cv=0.05 if paced else 0.06,
            )
        )
    return frame(*rows)


def mini_frames() -> dict[str, pl.DataFrame]:
    """Records of every sweep of the study in miniature."""
    return {
        "collectives": mini_primitives(),
        "data_parallel": mini_data_parallel(),
        "model_parallel": mini_model_parallel(),
        "model_parallel_small_batch": mini_small_batch(),
        "model_parallel_large_scale": mini_large_scale(),
        "fixed_batch": mini_fixed_batch(),
        "fixed_batch_pretraining": pl.concat([mini_pretraining("mini-9m"), mini_pretraining()]),
        "generations": mini_generations(),
        "model_size": mini_model_size(),
        "context_length": mini_context_length(),
        "coordination": mini_coordination(),
    }
