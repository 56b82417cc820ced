"""What kind of failure ended a rank, so that the cause of a run can be told from its consequences on other ranks."""

from __future__ import annotations

from scaling_study.spec import FailureKind

_PEER_SIGNS = (
    "Connection closed by peer",
    "Connection reset by peer",
    "Broken pipe",
    "Connection refused",
    "remote process exited or there was a network error",  # NCCL
)
_MEMORY_SIGNS = (
    "can't allocate memory",
    "not enough memory",
    "CUDA out of memory",  # PyTorch's allocator
    "CUDA error: out of memory",  # an allocation beside it
    "CUBLAS_STATUS_ALLOC_FAILED",
)


class StalledError(Exception):
    """No step for longer than the limit."""


class NotFiniteError(Exception):
    """The loss is NaN or infinite."""


def classify(error: BaseException) -> FailureKind:
    """What kind of failure an exception is."""
    message = str(error)
    if isinstance(error, NotFiniteError):
        return FailureKind.NOT_FINITE
    if isinstance(error, StalledError):
        return FailureKind.STALLED
    if isinstance(error, MemoryError) or any(sign in message for sign in _MEMORY_SIGNS):
        return FailureKind.OUT_OF_MEMORY
    if isinstance(error, KeyboardInterrupt):
        return FailureKind.KILLED
    if any(sign in message for sign in _PEER_SIGNS):
        return FailureKind.PEER_LOST
    return FailureKind.ERROR
