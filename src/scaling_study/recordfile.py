"""What can be said of a record file without reading its table: its version, and whether its bytes are damaged.

A seal over the bytes is looked at before a parser is: a damaged parquet file can make polars panic or abort. Nothing
heavy is imported here, so that a workflow can look at every record file before it plans.
"""

from __future__ import annotations

import hashlib

#: Raised when columns of records change.
SCHEMA_VERSION = 3

_SEAL = b"sealed-with-sha256-"  # 64 hexadecimal digits follow, in the file's metadata
#: The seal of a file that is not sealed yet: what `seal` replaces.
UNSEALED = _SEAL + b"0" * 64


def seal(content: bytes) -> bytes:
    """The content with its seal in the place of `UNSEALED`.

    Raises:
        ValueError: it has no such place, or several.
    """
    if content.count(UNSEALED) != 1:
        raise ValueError(f"{content.count(UNSEALED)} places for a seal, one is needed")
    return content.replace(UNSEALED, _SEAL + hashlib.sha256(content).hexdigest().encode())


def has_seal(content: bytes) -> bool:
    """Whether there is a seal, fitting or not."""
    return _SEAL in content


def is_damaged(content: bytes) -> bool:
    """Whether the content has no seal, or one that does not fit its bytes."""
    start = content.find(_SEAL)
    end = start + len(UNSEALED)
    unsealed = content[:start] + UNSEALED + content[end:]
    return start < 0 or content[start + len(_SEAL) : end] != hashlib.sha256(unsealed).hexdigest().encode()
