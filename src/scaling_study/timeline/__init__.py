"""Timelines: the span table, its readers, and the analysis that measured and predicted timelines share.

Imports `spec` only; no torch.
"""

from scaling_study.timeline.exposure import UNKNOWN_AXIS, Exposure, exposed_spans, exposure, segments
from scaling_study.timeline.files import chrome_trace, read_timeline_file, write_timeline_file
from scaling_study.timeline.kineto_cpu import MARK_AXIS, MARK_ITERATION, CpuTrace, read_cpu_trace
from scaling_study.timeline.spans import SCHEMA

__all__ = [
    "MARK_AXIS",
    "MARK_ITERATION",
    "SCHEMA",
    "UNKNOWN_AXIS",
    "CpuTrace",
    "Exposure",
    "chrome_trace",
    "exposed_spans",
    "exposure",
    "read_cpu_trace",
    "read_timeline_file",
    "segments",
    "write_timeline_file",
]
