"""Timelines: the span table, its readers, and the analysis that measured and predicted timelines share.

Imports `spec` only; no torch.
"""

from scaling_study.timeline.collectives import by_collective, waits
from scaling_study.timeline.exposure import (
    NO_EXPOSURE,
    UNKNOWN_AXIS,
    Exposure,
    exposed_spans,
    exposure,
    exposure_of_groups,
    segments,
    unions,
    window,
)
from scaling_study.timeline.files import chrome_trace, read_timeline_file, write_timeline_file
from scaling_study.timeline.kineto import DEVICE_SCHEMA, DeviceTrace, Verdict, read_trace
from scaling_study.timeline.kineto_cpu import MARK_AXIS, MARK_ITERATION, CpuTrace, read_cpu_trace
from scaling_study.timeline.spans import SCHEMA

__all__ = [
    "DEVICE_SCHEMA",
    "MARK_AXIS",
    "MARK_ITERATION",
    "NO_EXPOSURE",
    "SCHEMA",
    "UNKNOWN_AXIS",
    "CpuTrace",
    "DeviceTrace",
    "Exposure",
    "Verdict",
    "by_collective",
    "chrome_trace",
    "exposed_spans",
    "exposure",
    "exposure_of_groups",
    "read_cpu_trace",
    "read_timeline_file",
    "read_trace",
    "segments",
    "unions",
    "waits",
    "window",
    "write_timeline_file",
]
