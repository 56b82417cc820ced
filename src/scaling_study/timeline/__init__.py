"""Timelines: the span table, its readers, and the analysis that measured and predicted timelines share.

Imports `spec` only; no torch.
"""

from scaling_study.timeline.exposure import Exposure, exposure, segments
from scaling_study.timeline.spans import SCHEMA, empty_spans

__all__ = ["SCHEMA", "Exposure", "empty_spans", "exposure", "segments"]
