"""Records: one row a run: schema, gathering, audit, diagnosis, choice of the best, and the cache. No torch."""

from scaling_study.records.audit import audited, invalid_records, objections
from scaling_study.records.best import best_layouts
from scaling_study.records.build import predicted_record, record_of
from scaling_study.records.diagnosis import Diagnosis, Part, diagnose, diagnosis_of
from scaling_study.records.files import read_records, read_table, require_runs, write_parquet, write_records
from scaling_study.records.reported import with_reported
from scaling_study.records.schema import SCHEMA, reason_for

__all__ = [
    "SCHEMA",
    "Diagnosis",
    "Part",
    "audited",
    "best_layouts",
    "diagnose",
    "diagnosis_of",
    "invalid_records",
    "objections",
    "predicted_record",
    "read_records",
    "read_table",
    "reason_for",
    "record_of",
    "require_runs",
    "with_reported",
    "write_parquet",
    "write_records",
]
