"""A Kineto trace as large as one wants, as torch writes one: operators, launches, flows, kernels of two streams.

Every sixth event is a kernel, every tenth kernel a collective with its arguments; the numbers of a trace follow from
its length alone.
"""

from __future__ import annotations

import random
from pathlib import Path

PER_LAUNCH = 6
_LAUNCHES_A_STEP = 5_000
_BASE_US = 4_458_676_983_543.0
_KERNELS = (
    "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_256x64_16x4_nt_align4>(cutlass_80_tensorop_s1688gemm::Params)",
    "void at::native::vectorized_elementwise_kernel<4, at::native::AUnaryFunctor<float, float, float, "
    "at::native::binary_internal::MulFunctor<float> >, at::detail::Array<char*, 2> >(int, float)",
    "ampere_bf16_s16816gemm_bf16_256x128_ldg8_f2f_stages_64x3_nt",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float> > >(float)",
)
_OPERATORS = ("aten::linear", "aten::mul", "aten::add_", "aten::_fused_rms_norm", "aten::silu", "aten::copy_")
_COLLECTIVES = (
    ("_allgather_base", "ncclDevKernel_AllGather_RING_LL(ncclDevComm*, unsigned long, ncclWork*)"),
    ("_reduce_scatter_base", "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevComm*, unsigned long, ncclWork*)"),
)
_HEAD = """
{
  "schemaVersion": 1,
  "deviceProperties": [
    {
      "id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 84942979072,
      "computeMajor": 9, "computeMinor": 0, "warpSize": 32, "numSms": 132
    }
  ],
  "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 8},
  "with_stack": 0, "record_shapes": 1,
  "traceEvents": ["""


def write_trace(path: Path, events: int) -> None:
    """Write a trace of that many events, rounded up to whole launches."""
    draw = random.Random(0)
    cpu_us, streams_us = _BASE_US, {7: _BASE_US, 20: _BASE_US}
    launches = -(-events // PER_LAUNCH)
    with path.open("w", encoding="ascii") as file:
        file.write(_HEAD)
        separator = ""
        for number in range(launches):
            if number % _LAUNCHES_A_STEP == 0:
                step = number // _LAUNCHES_A_STEP
                file.write(separator + _step(step, cpu_us, 9.0 * min(_LAUNCHES_A_STEP, launches - number)))
                separator = ","
            stream = 20 if number % 10 == 9 else 7
            start_us = max(cpu_us + draw.uniform(4, 9), streams_us[stream] + 0.5)
            length_us = draw.uniform(30, 90) if stream == 20 else draw.uniform(2, 14)
            file.write(_launch(draw, number, cpu_us, start_us, length_us, stream))
            streams_us[stream] = start_us + length_us
            cpu_us += 9.0
        file.write('\n  ],\n  "traceName": "generated"\n}\n')


def _step(step: int, start_us: float, length_us: float) -> str:
    return f"""
  {{
    "ph": "X", "cat": "user_annotation", "name": "ProfilerStep#{step}", "pid": 4242, "tid": 4242,
    "ts": {start_us:.3f}, "dur": {length_us:.3f},
    "args": {{
      "External id": {step + 1}, "Ev Idx": {step}
    }}
  }}"""


def _launch(draw: random.Random, number: int, cpu_us: float, start_us: float, length_us: float, stream: int) -> str:
    operator, correlation = draw.choice(_OPERATORS), 57_541 + number
    shape = f"[[4, 4096, {draw.choice((1024, 4096, 11008))}], [4096, 4096], []]"
    recorded = ""
    if stream == 20:
        collective, kernel = draw.choice(_COLLECTIVES)
        elements = draw.choice((25_296_896, 131_072_000))
        recorded = (
            f',      "Collective name": "{collective}", "In msg nelems": {elements // 8}, '
            f'"Out msg nelems": {elements}, "Group size": 8, "dtype": "BFloat16", '
            '"Process Group Name": "1", "Process Group Description": "mesh_dp"'
        )
    else:
        kernel = draw.choice(_KERNELS)
    events = [
        _cpu(operator, number, cpu_us, 8.5, f'"Sequence number": {number}, "Fwd thread id": 0, "Input Dims": {shape}'),
        _cpu("aten::empty", number, cpu_us + 1, 1.5, '"Input Dims": [[], [], [], []], "Input type": ["", "", "", ""]'),
        f"""
  {{
    "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 4242, "tid": 4242,
    "ts": {cpu_us + 3:.3f}, "dur": 4.250,
    "args": {{
      "External id": {number}, "cbid": 211, "correlation": {correlation}
    }}
  }}""",
        _flow("s", correlation, 4242, 4242, cpu_us + 3),
        f"""
  {{
    "ph": "X", "cat": "kernel", "name": "{kernel}", "pid": 0, "tid": {stream},
    "ts": {start_us:.3f}, "dur": {length_us:.3f},
    "args": {{
      "External id": {number},      "queued": 0, "device": 0, "context": 1,      "stream": {stream}, """
        f"""     "correlation": {correlation},      "registers per thread": 40,      "shared memory": 400,      """
        f""""blocks per SM": 4.740741,      "warps per SM": 75.851852,      "grid": [512, 1, 1],      """
        f""""block": [512, 1, 1],      "est. achieved occupancy %": 75{recorded}
    }}
  }}""",
        _flow("f", correlation, 0, stream, start_us),
    ]
    return "," + ",".join(events)


def _cpu(name: str, number: int, start_us: float, length_us: float, rest: str) -> str:
    return f"""
  {{
    "ph": "X", "cat": "cpu_op", "name": "{name}", "pid": 4242, "tid": 4242,
    "ts": {start_us:.3f}, "dur": {length_us:.3f},
    "args": {{
      "External id": {number}, "Record function id": 0, "Ev Idx": {number}, {rest}
    }}
  }}"""


def _flow(phase: str, correlation: int, pid: int, tid: int, at_us: float) -> str:
    end = ', "bp": "e"' if phase == "f" else ""
    return f"""
  {{
    "ph": "{phase}", "id": {correlation}, "pid": {pid}, "tid": {tid}, "ts": {at_us:.3f},
    "cat": "ac2g", "name": "ac2g"{end}
  }}"""
