"""Errors that a person can act on, and the rule for writing files.

Whatever a user can cause (a key mistyped, a file missing, a disk full) is a `UserError`: one message that says
what is wrong, where, and what to do. The command line prints it and exits with 2; nothing else is shown.
"""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path


class UserError(Exception):
    """Something the user can mend.

    Args:
        what: what is wrong, as a sentence without its full stop.
        where: the file, key or place it concerns.
        remedy: what to do about it.
    """

    def __init__(self, what: str, *, where: str | None = None, remedy: str | None = None) -> None:
        self.what, self.where, self.remedy = what, where, remedy
        message = f"{where}: {what}" if where else what
        super().__init__(f"{message}. {remedy}" if remedy else message)


_DISK_ADVICE = {
    errno.ENOSPC: ("no space left on the device", "Free some space, or put the folder on another disk."),
    errno.EDQUOT: ("the disk quota is used up", "Free some space, or put the folder on another disk."),
    errno.EROFS: ("the file system is read-only", "Choose an output on a file system that can be written."),
    errno.EACCES: ("permission denied", "Check who owns it and its mode, or choose another place."),
    errno.EPERM: ("operation not permitted", "Check who owns it and its mode, or choose another place."),
    errno.ENOENT: ("no such file or folder", "Check the path."),
    errno.ENOTDIR: ("a part of the path is not a folder", "Check the path."),
    errno.EISDIR: ("it is a folder, a file is needed", "Check the path."),
    errno.EEXIST: ("a file is in the way of a folder", "Move it, or choose another place."),
}


def explain_os_error(error: OSError, *, where: str | None = None) -> UserError:
    """The `UserError` for a failed file operation (disk full, read-only, missing)."""
    what, remedy = _DISK_ADVICE.get(error.errno or 0, (error.strerror or str(error), "Check the path and the disk."))
    return UserError(what, where=where or str(error.filename or "file system"), remedy=remedy)


def read_bytes(path: Path) -> bytes:
    """All of a file.

    Raises:
        UserError: it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise explain_os_error(error, where=str(path)) from error


def write_atomically(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Write a file so that it appears complete or not at all: a temporary neighbour, then a rename.

    Args:
        path: the file; its folder is made.
        content: all of it.
        durable: wait until the content is on the disk.

    Raises:
        UserError: the folder cannot be made or written, or the disk is full. Nothing is left behind.
    """
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        temporary = Path(name)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    except BaseException as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise explain_os_error(error, where=str(path)) from error
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
