"""Which code measured: the package's version and the commit of its checkout."""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path

from scaling_study import __version__


@functools.cache
def code_version() -> str:
    """`<version>+<commit>`, with `-dirty` where tracked files differ; the version alone outside a checkout."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=12", "--match="]
    try:
        described = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return __version__
    return f"{__version__}+{described}"
