"""Kineto traces made by hand, so that what is in them is known."""

import json

BASE_NS = 1_711_964_646_000_000_000
GEMM = "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_128x128>(Params)"
RING = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevComm*, unsigned long, ncclWork*)"
OLD_RING = "ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)"


def kernel(start_us, length_us, name=GEMM, stream=7, **args):
    return {
        "ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": start_us, "dur": length_us,
        "args": {"device": 0, "stream": stream, "grid": [8, 1, 1], "block": [128, 1, 1], **args},
    }  # fmt: skip


def collective(
    start_us, length_us, op="allreduce", elements=1024, dtype="BFloat16", group="0", size=2, stream=40, **args
):
    recorded = {
        "Collective name": op, "In msg nelems": elements, "Out msg nelems": elements, "Group size": size,
        "dtype": dtype, "Process Group Name": group, "Process Group Description": args.pop("description", "default_pg"),
        "Process Group Ranks": str(list(range(size))),
    }  # fmt: skip
    return kernel(start_us, length_us, RING, stream, **recorded, **args)


def copy(start_us, length_us, size=4096, stream=7):
    event = kernel(start_us, length_us, "Memcpy DtoD (Device -> Device)", stream, bytes=size)
    return {**event, "cat": "gpu_memcpy"}


def operator(start_us, length_us, name="aten::mm"):
    return {
        "ph": "X", "cat": "cpu_op", "name": name, "pid": 9, "tid": 9, "ts": start_us, "dur": length_us,
        "args": {"Input Dims": [[4, 4], [4, 4]], "shapes": [{"a": 1}, {"a": 2}]},
    }  # fmt: skip


def step(number, start_us, length_us):
    event = operator(start_us, length_us, f"ProfilerStep#{number}")
    return {**event, "cat": "user_annotation"}


def document(events, rank=0, world_size=2, **about):
    return {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}],
        "distributedInfo": {
            "backend": "nccl", "rank": rank, "world_size": world_size,
            "pg_config": [{"pg_name": "0"}, {"pg_name": "1"}],
        },
        "traceEvents": events,
        "INFO": [{"x": 1}, {"y": [1, 2]}],
        "traceName": "rank.json",
        "baseTimeNanoseconds": BASE_NS,
        **about,
    }  # fmt: skip


def written(path, events, indent=None, **about):
    path.write_text(json.dumps(document(events, **about), indent=indent))
    return path


#: Compute 0 to 30 and 40 to 50; communication 20 to 45: exposed 30 to 40; copies 60 to 62. Microseconds.
STEP = [
    step(3, 0, 70), operator(0, 5), kernel(0, 30), collective(20, 25), operator(38, 5), kernel(40, 10), copy(60, 2),
]  # fmt: skip
