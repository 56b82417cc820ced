"""What `scaling-study trace` does with one file: prints seconds, peak memory and its numbers as JSON.

The numbers are of every profiler step but the last, which HolisticTraceAnalysis leaves out; the time is of the file.
"""

import json
import sys
import time
from pathlib import Path


def peak_mib() -> float:
    """Of this program alone: `ru_maxrss` would hold that of the process that started it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


def main(path: str) -> None:
    start_s = time.perf_counter()
    from scaling_study.traces import Window, look_at

    whole = look_at([Path(path)], Window(), None)["files"][0]
    taken_s = time.perf_counter() - start_s
    peak_memory_mib = peak_mib()
    steps = tuple(whole["steps"][:-1])
    found = look_at([Path(path)], Window(steps=steps), None)["files"][0]
    exposed_share = found["exposed_communication_ms"] / found["communication_ms"]
    answer = {
        "taken_s": taken_s,
        "peak_memory_mib": peak_memory_mib,
        "compute_ms": found["compute_ms"],
        "overlap_percent": 100 * (1 - exposed_share),
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1])
