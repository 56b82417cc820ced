"""In place of a rank's interpreter: no torch, 30 ms to start and 10 MB, so that 2,048 are alive at once on one machine.

Ranks meet as real ones do: rank 0 binds a free port on its node and says where in the attempt's folder, the others read
that and connect. Each tells rank 0 how it was started; when it has heard from all, it writes that down and all end.
"""

import json
import os
import selectors
import socket
import sys
import time
from pathlib import Path

_POLL_S = 0.5


def main() -> None:
    """One rank; exit code 1 if it has not met the others within a limit."""
    asked = json.loads(os.environ["PROBE"])
    folder, limit_s = Path(asked["folder"]), time.monotonic() + asked["limit_s"]
    if os.environ["SLURM_PROCID"] == "0":
        sys.exit(0 if gather(folder, int(os.environ["SLURM_NTASKS"]), limit_s) else 1)
    while not (folder / "rendezvous.json").exists():
        if time.monotonic() > limit_s:
            sys.exit(1)
        time.sleep(_POLL_S)
    meeting = json.loads((folder / "rendezvous.json").read_text())
    with socket.create_connection((meeting["host"], meeting["port"]), timeout=asked["limit_s"]) as rank_0:
        rank_0.sendall(json.dumps(own_report(meeting)).encode())
        rank_0.shutdown(socket.SHUT_WR)
        rank_0.recv(1)  # until rank 0 closes it


def own_report(meeting: dict) -> dict:
    """How this rank was started, and where it meets the others."""
    return {"arguments": sys.argv[1:], "environment": dict(os.environ), **meeting}


def gather(folder: Path, ranks: int, limit_s: float) -> bool:
    """Write down the reports of all ranks, or of those that came in time; whether all did."""
    with socket.create_server((os.environ["SLURMD_NODENAME"], 0), backlog=ranks) as listener:
        meeting = {"host": os.environ["SLURMD_NODENAME"], "port": listener.getsockname()[1]}
        write(folder / "rendezvous.json", meeting)
        reports = [own_report(meeting)]
        said: dict[socket.socket, bytearray] = {}
        selector = selectors.DefaultSelector()
        selector.register(listener, selectors.EVENT_READ)
        while len(reports) < ranks and time.monotonic() < limit_s:
            for key, _ in selector.select(timeout=1.0):
                if key.fileobj is listener:
                    one, _ = listener.accept()
                    said[one] = bytearray()
                    selector.register(one, selectors.EVENT_READ)
                elif part := key.fileobj.recv(2**16):
                    said[key.fileobj] += part
                else:
                    selector.unregister(key.fileobj)
                    reports.append(json.loads(said[key.fileobj]))
        write(folder / "reports.json", reports)
    return len(reports) == ranks


def write(path: Path, content: object) -> None:
    """A file that is complete when it appears."""
    temporary = path.with_suffix(".part")
    temporary.write_text(json.dumps(content))
    temporary.rename(path)


if __name__ == "__main__":
    main()
