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


class NumberFormat(StrEnum):
    """In what weights are kept and multiplied where somebody claims a rate: more formats than this study trains in."""

    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"
    FP8 = "fp8"
    INT8 = "int8"
    INT4 = "int4"

    @property
    def element_bytes(self) -> float:
        """Bytes of one element, without the scales that go with a quantised one."""
        return {"4": 0.5, "8": 1.0, "6": 2.0, "2": 4.0}[self.value[-1]]


class Phase(StrEnum):
    """What a claimed rate is of: training, reading a prompt, or writing token after token."""

    TRAIN = "train"
    PREFILL = "prefill"
    DECODE = "decode"


class Regime(StrEnum):
    """What a step is limited by. `capacity`: weights that do not fit come over the host's link, or not at all."""

    COMPUTE = "compute"
    MEMORY = "memory"
    COMMUNICATION = "communication"
    OVERHEAD = "overhead"
    CAPACITY = "capacity"


class Limit(StrEnum):
    """What takes the time of an iteration, so that more of something else would not help."""

    COMPUTE = "compute"
    MEMORY = "memory"
    EXPOSED_COMMUNICATION = "exposed_communication"
    FABRIC = "fabric"
    PIPELINE_BUBBLE = "pipeline_bubble"
    HOST_LAUNCH = "host_launch"
    SKEW = "skew"


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
    """How a run ended. `out_of_memory` and `infeasible` are results, `timeout` and `failed` are not.

    `invalid` is said of a record, not by a run: what was measured or predicted cannot be true.
    """

    OK = "ok"
    OUT_OF_MEMORY = "out_of_memory"
    INFEASIBLE = "infeasible"
    TIMEOUT = "timeout"
    FAILED = "failed"
    INVALID = "invalid"

    @property
    def is_result(self) -> bool:
        """Whether the run need not be measured again."""
        return self in (Outcome.OK, Outcome.OUT_OF_MEMORY, Outcome.INFEASIBLE)


class Provenance(StrEnum):
    """Where a number comes from; every mark and every table cell carries it."""

    MEASURED = "measured"
    PREDICTED = "predicted"
    REPORTED = "reported"


class Place(StrEnum):
    """Where the numbers behind a verdict come from."""

    CLUSTER = "cluster"
    LOCAL = "local"
    MODEL = "model"
    SOURCES = "sources"


class Verdict(StrEnum):
    """What becomes of a claim at a place."""

    HOLDS = "holds"
    SHAPE = "holds in shape only"
    FAILS = "does not hold"
    UNTESTABLE = "not testable here"


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
