"""Each worker of a parallel test run has a temporary folder of its own, and so a lock of its own for local runs."""

import os
import tempfile
from pathlib import Path

worker = os.environ.get("PYTEST_XDIST_WORKER")
if worker:
    folder = Path(tempfile.gettempdir()) / f"scaling-study-tests-{os.getuid()}" / worker
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
