"""Reading Kineto traces beside HolisticTraceAnalysis (HTA): time and peak memory, in fresh processes, in turn.

HTA lives in an environment of its own, `hta` inside ours, which `make bench` sets up. It rounds times inward to
microseconds and leaves the last profiler step out; where times are whole microseconds its numbers are ours.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from benchmarks.generated_trace import write_trace
from benchmarks.lines import Line
from benchmarks.ratios import Spread, paired_ratio, spread

HERE = Path(__file__).resolve().parent
HTA_PYTHON = Path(sys.prefix) / "hta" / "bin" / "python"
REAL = HERE.parents[1] / "shared" / "data" / "traces" / "v100_2ranks_rank1.json.gz"
_EVENTS = 1_000_000


class Reading(msgspec.Struct):
    """What a reader says of a trace.

    Attributes:
        taken_s: imports included.
        peak_memory_mib: of the process, MiB.
        compute_ms: flattened, of every profiler step but the last.
        overlap_percent: share of the communication during compute, likewise.
    """

    taken_s: float
    peak_memory_mib: float
    compute_ms: float
    overlap_percent: float


class Case(msgspec.Struct, frozen=True):
    """A trace, and what is required of us: so many times faster, in so many times less memory."""

    what: str
    faster: float
    smaller: float
    make: Callable[[Path], Path]


def run(rounds: int) -> list[Line]:
    """Time, memory and numbers of a real trace and of a generated one."""
    cases = [
        Case("V100, 216,092 events", 4.0, 1 / 0.6, lambda _: REAL),
        Case(f"generated, {_EVENTS:,} events", 8.0, 1.0, _generated),
    ]
    with tempfile.TemporaryDirectory() as folder:
        return [line for case in cases for line in _lines(case, Path(folder), rounds)]


def _generated(folder: Path) -> Path:
    path = folder / "generated.json"
    write_trace(path, _EVENTS)
    return path


def _lines(case: Case, folder: Path, rounds: int) -> list[Line]:
    path = case.make(folder)
    if not path.is_file():
        return [Line(benchmark="traces", what=case.what, unit="s", reason=f"{path.name} is not at hand")]
    ours = [_read(sys.executable, "our_reader.py", path)]
    if not HTA_PYTHON.is_file():
        reason = "not installed"
        return [Line(benchmark="traces", what=case.what, unit="s", ours=_seconds(ours), peer="HTA", reason=reason)]
    theirs = [_read(str(HTA_PYTHON), "hta_peer.py", path)]
    for _ in range(1, rounds):
        ours.append(_read(sys.executable, "our_reader.py", path))
        theirs.append(_read(str(HTA_PYTHON), "hta_peer.py", path))
    memory = [(one.peak_memory_mib, other.peak_memory_mib) for one, other in zip(theirs, ours, strict=True)]
    last, of_hta = ours[-1], theirs[-1]
    return [
        Line(
            benchmark="traces",
            what=f"{case.what}: time",
            unit="s",
            ours=_seconds(ours),
            peer="HTA",
            theirs=_seconds(theirs),
            ratio=paired_ratio([[(b.taken_s, a.taken_s)] for a, b in zip(ours, theirs, strict=True)]),
            required=case.faster,
            reason="its numbers are of every profiler step but the last, times rounded inward to microseconds",
        ),
        Line(
            benchmark="traces",
            what=f"{case.what}: peak memory",
            unit="MiB",
            ours=spread([one.peak_memory_mib for one in ours]),
            peer="HTA",
            theirs=spread([one.peak_memory_mib for one in theirs]),
            ratio=paired_ratio([[pair] for pair in memory]),
            required=case.smaller,
        ),
        Line(
            benchmark="traces",
            what=f"{case.what}: compute; overlap {last.overlap_percent:.2f}% and {of_hta.overlap_percent:.2f}%",
            unit="ms",
            ours=spread([last.compute_ms]),
            peer="HTA",
            theirs=spread([of_hta.compute_ms]),
            ratio=paired_ratio([[(last.compute_ms, of_hta.compute_ms)]]),
        ),
    ]


def _seconds(readings: list[Reading]) -> Spread:
    return spread([one.taken_s for one in readings])


def _read(python: str, script: str, path: Path) -> Reading:
    command = [python, str(HERE / script), str(path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=HERE.parent)
    return msgspec.convert(json.loads(done.stdout.splitlines()[-1]), Reading)
