"""A Kineto trace as torch writes it of a GPU rank: two gemms, FlashAttention, an all-gather half hidden, a copy."""

import json
import tempfile
from pathlib import Path


def _event(name, category, start_us, length_us, **args):
    return {"ph": "X", "cat": category, "name": name, "pid": 0, "tid": args.get("stream", 7), "ts": start_us,
            "dur": length_us, "args": args}  # fmt: skip


GATHER = {"Collective name": "_allgather_base", "In msg nelems": 1024, "Out msg nelems": 1024, "Group size": 1,
          "dtype": "BFloat16", "Process Group Name": "1", "Process Group Description": "mesh_dp"}  # fmt: skip
EVENTS = [
    _event("nvjet_sm90_tst_128x256_64x4_1x2_h_bz_coopA_TNT", "kernel", 1000.0, 300.0, stream=7, correlation=11),
    _event("pytorch_flash::flash_fwd_kernel<128>", "kernel", 1300.0, 200.0, stream=7, correlation=12),
    _event("ncclDevKernel_AllGather_RING_LL", "kernel", 1400.0, 200.0, stream=20, correlation=13, **GATHER),
    _event("nvjet_sm90_tst_256x128_64x4_2x1_v_bz_coopA_NNT", "kernel", 1600.0, 400.0, stream=7, correlation=14),
    _event("Memcpy HtoD (Pinned -> Device)", "gpu_memcpy", 990.0, 5.0, stream=7, correlation=10),
]
DOCUMENT = {
    "schemaVersion": 1,
    "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}],
    "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 1},
    "traceEvents": EVENTS,
}

TRACE = Path(tempfile.mkdtemp(prefix="scaling-study-replay-")) / "trace.json"
TRACE.write_text(json.dumps(DOCUMENT))
