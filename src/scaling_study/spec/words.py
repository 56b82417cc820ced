"""The closed sets of the study: every name that a configuration, a column or a record may use."""

from __future__ import annotations

from enum import StrEnum


class Precision(StrEnum):
    """Dtype of parameters and activations in forward and backward."""

    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"

    @property
    def element_bytes(self) -> int:
        """Bytes of one element."""
        return 4 if self is Precision.FP32 else 2


class ReductionDtype(StrEnum):
    """Dtype in which gradients are reduced over the data-parallel axis."""

    FP32 = "fp32"
    BF16 = "bf16"

    @property
    def element_bytes(self) -> int:
        """Bytes of one element."""
        return Precision(self.value).element_bytes


class AttentionBackend(StrEnum):
    """Who computes attention. A backend that is missing fails the run; none falls back to another.

    `sdpa` lets PyTorch choose its kernel; the others with that prefix name the one that must run.
    """

    SDPA = "sdpa"
    SDPA_FLASH = "sdpa_flash"
    SDPA_EFFICIENT = "sdpa_efficient"
    SDPA_CUDNN = "sdpa_cudnn"
    SDPA_MATH = "sdpa_math"
    XFORMERS = "xformers"


class ActivationCheckpointing(StrEnum):
    """Which activations are recomputed in the backward pass."""

    NONE = "none"
    SELECTIVE = "selective"
    FULL = "full"


class PipelineSchedule(StrEnum):
    """Order of forward and backward passes over a pipeline."""

    ONE_F_ONE_B = "1f1b"
    INTERLEAVED = "interleaved_1f1b"


class Pacing(StrEnum):
    """Whether ranks that arrive early hold back before a collective."""

    OFF = "off"
    ADAPTIVE = "adaptive"


class CollectiveOp(StrEnum):
    """Communication primitives that a collective run measures."""

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    SEND_RECV = "send_recv"


class Outcome(StrEnum):
    """How a run ended. `out_of_memory` and `infeasible` are results, `timeout` and `failed` are not."""

    OK = "ok"
    OUT_OF_MEMORY = "out_of_memory"
    INFEASIBLE = "infeasible"
    TIMEOUT = "timeout"
    FAILED = "failed"

    @property
    def is_result(self) -> bool:
        """Whether the run need not be measured again."""
        return self in (Outcome.OK, Outcome.OUT_OF_MEMORY, Outcome.INFEASIBLE)


class Provenance(StrEnum):
    """Where a number comes from; every mark and every table cell carries it."""

    MEASURED = "measured"
    PREDICTED = "predicted"
    REPORTED = "reported"


class Axis(StrEnum):
    """Axes of the device mesh."""

    DATA = "dp"
    TENSOR = "tp"
    PIPELINE = "pp"


class SpanKind(StrEnum):
    """What a rank does in a span of its timeline."""

    COMPUTE = "compute"
    COMMUNICATION = "communication"
    MEMORY = "memory"


class Executor(StrEnum):
    """How a platform starts ranks."""

    LOCAL = "local"
    SLURM = "slurm"


class DataSource(StrEnum):
    """Where tokens come from: documents of a seeded generator, public text, or random numbers."""

    SYNTHETIC = "synthetic"
    RANDOM = "random"
    TEXT = "text"


class DocumentFormat(StrEnum):
    """What a row of a source holds, and so how it becomes a document."""

    WIKIPEDIA = "wikipedia"
    STACKEXCHANGE = "stackexchange"


class FailureKind(StrEnum):
    """Why a rank ended, from the most to the least telling: the first kind present names the cause of a run."""

    NOT_FINITE = "not_finite"
    OUT_OF_MEMORY = "out_of_memory"
    KILLED = "killed"
    ERROR = "error"
    STALLED = "stalled"
    PEER_LOST = "peer_lost"
