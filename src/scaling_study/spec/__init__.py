"""The words of the study as frozen, validated types; sweeps expand here. Imports nothing of the project but errors."""

from scaling_study.spec.datasets import Dataset, TokenManifest
from scaling_study.spec.hardware import Hardware, Sourced
from scaling_study.spec.load import Config
from scaling_study.spec.models import Model
from scaling_study.spec.platforms import Platform
from scaling_study.spec.results import (
    Assignment,
    Environment,
    ProcessIdentity,
    Progress,
    RankFailure,
    RankReport,
    RunResult,
)
from scaling_study.spec.runfiles import AttemptFiles, RunFiles
from scaling_study.spec.runs import (
    CollectiveProtocol,
    CollectiveRun,
    Protocol,
    Run,
    TrainingRun,
    canonical_json,
    decode_run,
    encode_run,
    run_id,
    violations,
)
from scaling_study.spec.studies import Catalogue, FigureRequest, Study, Sweep, expand
from scaling_study.spec.words import (
    ActivationCheckpointing,
    AttentionBackend,
    Axis,
    CollectiveOp,
    DataSource,
    Executor,
    FailureKind,
    Outcome,
    Pacing,
    PipelineSchedule,
    Precision,
    Provenance,
    ReductionDtype,
    SpanKind,
)

__all__ = [
    "ActivationCheckpointing",
    "Assignment",
    "AttemptFiles",
    "AttentionBackend",
    "Axis",
    "Catalogue",
    "CollectiveOp",
    "CollectiveProtocol",
    "CollectiveRun",
    "Config",
    "DataSource",
    "Dataset",
    "Environment",
    "Executor",
    "FailureKind",
    "FigureRequest",
    "Hardware",
    "Model",
    "Outcome",
    "Pacing",
    "PipelineSchedule",
    "Platform",
    "Precision",
    "ProcessIdentity",
    "Progress",
    "Protocol",
    "Provenance",
    "RankFailure",
    "RankReport",
    "ReductionDtype",
    "Run",
    "RunFiles",
    "RunResult",
    "Sourced",
    "SpanKind",
    "Study",
    "Sweep",
    "TokenManifest",
    "TrainingRun",
    "canonical_json",
    "decode_run",
    "encode_run",
    "expand",
    "run_id",
    "violations",
]
