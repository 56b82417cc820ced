"""Claims of the sources, judged by records: evidence, measures, verdicts, their table, and those acknowledged."""

from scaling_study.present.claims.acknowledged import Changed, acknowledge, changes, read_acknowledged
from scaling_study.present.claims.evidence import Evidence, by_place
from scaling_study.present.claims.table import claims_table, finding
from scaling_study.present.claims.verdicts import Judged, Result, judge
from scaling_study.present.claims.words import between, shown

__all__ = [
    "Changed",
    "Evidence",
    "Judged",
    "Result",
    "acknowledge",
    "between",
    "by_place",
    "changes",
    "claims_table",
    "finding",
    "judge",
    "read_acknowledged",
    "shown",
]
