"""Which code measured: the package's version and the commit of its checkout; and a digest of its files."""

from __future__ import annotations

import functools
import hashlib
import subprocess
from pathlib import Path

from scaling_study import __version__


@functools.cache
def code_version() -> str:
    """`<version>+<commit>`, with `-dirty` where the package's files differ; the version alone outside a checkout.

    Only the package counts: figures that a workflow redraws do not change what is measured, and configuration is in
    the run itself.
    """
    package = Path(__file__).parents[1]
    try:
        commit = _git(package, "rev-parse", "--short=12", "HEAD")
        dirty = "-dirty" if _git(package, "status", "--porcelain", "--untracked-files=no", "--", ".") else ""
    except (OSError, subprocess.SubprocessError):
        return __version__  # installed from an archive, or git refuses the folder
    return f"{__version__}+{commit}{dirty}"


@functools.cache
def code_digest() -> str:
    """SHA-256 of the package's modules: equal on two hosts if and only if they run the same code, git or not."""
    package, digest = Path(__file__).parents[1], hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(package).as_posix()}:{len(content)}:".encode())
        digest.update(content)
    return digest.hexdigest()


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
