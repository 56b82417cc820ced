"""What a device's kernel is, by what the trace recorded of it and otherwise by its name."""

from __future__ import annotations

import re

from scaling_study.spec import Axis, CollectiveOp

#: Torch's names of collectives (`Collective name` in a trace), without underscores; what the study does not measure
#: keeps its own name.
_RECORDED = {
    "allreduce": CollectiveOp.ALL_REDUCE,
    "allreducecoalesced": CollectiveOp.ALL_REDUCE,
    "allgather": CollectiveOp.ALL_GATHER,
    "allgatherbase": CollectiveOp.ALL_GATHER,
    "allgatherintotensorcoalesced": CollectiveOp.ALL_GATHER,
    "reducescatter": CollectiveOp.REDUCE_SCATTER,
    "reducescatterbase": CollectiveOp.REDUCE_SCATTER,
    "reducescattertensorcoalesced": CollectiveOp.REDUCE_SCATTER,
    "send": CollectiveOp.SEND_RECV,
    "recv": CollectiveOp.SEND_RECV,
}
#: Kernels of NCCL up to 2.18 (`ncclKernel_`), later ones (`ncclDevKernel_`), RCCL's generic one among them.
_NAMED = re.compile(r"^(?:void )?(?:nccl|rccl|msccl)\w*?(?:Kernel|Kernel_Generic)\w*|^(?:nccl|rccl)", re.IGNORECASE)
_OPERATION = re.compile(r"(AllReduce|AllGather|ReduceScatter|SendRecv|Broadcast|Reduce)_?", re.IGNORECASE)
_BY_NAME = {
    "allreduce": CollectiveOp.ALL_REDUCE.value,
    "allgather": CollectiveOp.ALL_GATHER.value,
    "reducescatter": CollectiveOp.REDUCE_SCATTER.value,
    "sendrecv": CollectiveOp.SEND_RECV.value,
    "broadcast": "broadcast",
    "reduce": "reduce",
}
#: Bytes of an element by the names that torch records.
DTYPE_BYTES = {
    "byte": 1, "char": 1, "bool": 1, "int8": 1, "uint8": 1, "float8_e4m3fn": 1, "float8_e5m2": 1, "short": 2, "half": 2,
    "bfloat16": 2, "int": 4, "float": 4, "long": 8, "double": 8,
}  # fmt: skip
_AXES = {
    **dict.fromkeys(("dp", "fsdp", "ddp", "data", "dp_shard", "dp_replicate", "dp_shard_cp", "hsdp"), Axis.DATA),
    **dict.fromkeys(("tp", "tensor"), Axis.TENSOR),
    **dict.fromkeys(("pp", "pipeline", "pipe"), Axis.PIPELINE),
}


def recorded_operation(name: str) -> str:
    """The collective that torch recorded, in the study's words where it has one."""
    plain = name.strip("_").replace("_", "").lower()
    found = _RECORDED.get(plain)
    return found.value if found else name.strip("_").lower()


def named_operation(kernel: str) -> str | None:
    """The collective that a kernel's name tells, `unknown` where it is NCCL's or RCCL's and tells none, else None."""
    if _NAMED.match(kernel) is None:
        return None
    found = _OPERATION.search(kernel.partition("(")[0])
    return _BY_NAME[found[1].lower()] if found else "unknown"


def axis_of_group(description: str) -> str | None:
    """The parallel axis that a process group's description names, such as `mesh_dp`; None where it names none."""
    name = description.lower().removeprefix("mesh_").removesuffix("_group").removesuffix("_pg")
    found = _AXES.get(name)
    return found.value if found else None
