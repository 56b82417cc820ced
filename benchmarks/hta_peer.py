"""HolisticTraceAnalysis at the same work, in its own environment: prints seconds, peak memory and its numbers as JSON.

Run as a script by that environment's Python; imports nothing of this project.
"""

import contextlib
import json
import sys
import tempfile
import time
from pathlib import Path


def peak_mib() -> float:
    """Of this program alone: `ru_maxrss` would hold that of the process that started it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


def main(path: str) -> None:
    start_s = time.perf_counter()
    from hta.trace_analysis import TraceAnalysis

    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
        link = Path(folder) / Path(path).name
        link.symlink_to(Path(path).resolve())
        analysis = TraceAnalysis(trace_files={0: str(link)}, trace_dir=folder)
        times = analysis.get_temporal_breakdown(visualize=False).iloc[0]
        overlap = analysis.get_comm_comp_overlap(visualize=False).iloc[0]
    taken_s = time.perf_counter() - start_s
    answer = {
        "taken_s": taken_s,
        "peak_memory_mib": peak_mib(),
        "compute_ms": float(times["compute_time(us)"]) / 1000,
        "overlap_percent": float(overlap["comp_comm_overlap_pctg"]),
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1])
