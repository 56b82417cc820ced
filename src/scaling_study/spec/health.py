"""A check of a platform's nodes: what each rank is asked to measure, and what it found."""

from __future__ import annotations

import msgspec

from scaling_study.spec.hardware import Hardware


class NodeCheck(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every rank of a check measures; travels as JSON.

    Attributes:
        folder: where ranks meet, log and report.
        code_digest: of the code of whoever asks; a node that has other code refuses.
        gemm_size: rows and columns of square matrices that are multiplied.
        copy_bytes: of a buffer that is copied.
        message_bytes: of collectives within a node, and of exchanges between two.
        repeats: of each; the median counts.
        gpu: what each rank has one of; None for ranks on CPUs.
    """

    folder: str
    ranks: int
    code_digest: str
    threads_per_rank: int
    gemm_size: int
    copy_bytes: int
    message_bytes: int
    repeats: int
    gpu: Hardware | None = None


class RankHealth(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one rank measured, all ranks at the same time.

    Attributes:
        node: as Slurm calls it; the host's name without Slurm.
        gemm_tflops: of a matrix product, in the precision that the device trains in.
        memory_gb_per_s: of a copy, bytes read and written, 10^9 a second.
        within_gb_per_s: bus bandwidth of an all-reduce over the node's ranks; None for a rank alone on its node.
        between_gb_per_s: of exchanges with the same rank of another node, one direction, by that node's name.
        latency_us: of the smallest all-reduce over all ranks; None for a rank alone.
    """

    rank: int
    node: str
    device: str
    gemm_tflops: float
    memory_gb_per_s: float
    within_gb_per_s: float | None = None
    between_gb_per_s: dict[str, float] = {}
    latency_us: float | None = None
