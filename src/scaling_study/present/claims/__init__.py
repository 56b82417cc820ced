"""Claims of the sources, judged by records: evidence, measures, verdicts, and their table."""

from scaling_study.present.claims.evidence import Evidence, by_place
from scaling_study.present.claims.verdicts import Judged, Result, judge
from scaling_study.present.claims.words import shown

__all__ = ["Evidence", "Judged", "Result", "by_place", "judge", "shown"]
