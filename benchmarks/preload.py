"""What the fork server imports once, so that a contestant's process is ready within a second."""

import contextlib
import os

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler announces each window

from benchmarks import contestants

with contextlib.suppress(ImportError):
    contestants.import_transformers()
with contextlib.suppress(ImportError):
    contestants.import_torchtitan()
