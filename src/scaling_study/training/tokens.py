"""The token file: memory-mapped, and cut so that no two data-parallel ranks ever see the same sequence."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import torch
from torch import Tensor

from scaling_study.errors import UserError, explain_os_error
from scaling_study.spec import TokenManifest, TrainingRun


class TokenFile:
    """Sequences of a prepared data set.

    Args:
        folder: where `<name>.bin` and `<name>.json` lie.
        name: of the data set.

    Raises:
        UserError: a file is missing, or does not have the size that its manifest says.
    """

    def __init__(self, folder: Path, name: str) -> None:
        path = folder / f"{name}.bin"
        try:
            self.manifest = msgspec.json.decode((folder / f"{name}.json").read_bytes(), type=TokenManifest)
            self.tokens = np.memmap(path, dtype=np.uint16, mode="r")
        except OSError as error:
            raise explain_os_error(error, where=str(error.filename or path)) from error
        except (msgspec.DecodeError, ValueError) as error:
            raise UserError(f"the token file is damaged ({error})", where=str(path), remedy="Delete it.") from error
        if len(self.tokens) != self.manifest.tokens:
            raise UserError(
                f"it holds {len(self.tokens):,} tokens, its manifest says {self.manifest.tokens:,}",
                where=str(path),
                remedy="Delete it; the next run prepares it again.",
            )

    def batch(self, run: TrainingRun, iteration: int, replica: int) -> tuple[Tensor, Tensor]:
        """A replica's batch of an iteration: tokens and the tokens that follow, each (local batch, T), int64.

        Raises:
            UserError: the file is smaller than one global batch, so ranks would overlap.
        """
        length, available = run.sequence_length, self.manifest.sequences(run.sequence_length)
        if available < run.global_batch:
            raise UserError(
                f"it holds {available} sequences of {length} tokens, one iteration needs {run.global_batch}",
                where=f"data set {self.manifest.dataset.name}",
                remedy="Use a larger data set or a smaller global batch.",
            )
        index = sequence_indices(run, iteration, replica, available)
        rows = np.stack([self.tokens[i * length : (i + 1) * length + 1] for i in index]).astype(np.int64)
        both = torch.from_numpy(rows)
        return both[:, :-1].contiguous(), both[:, 1:].contiguous()


def sequence_indices(run: TrainingRun, iteration: int, replica: int, available: int) -> list[int]:
    """Which sequences a replica reads: consecutive ones, starting over where a whole iteration no longer fits."""
    iterations_per_epoch = available // run.global_batch
    start = (iteration % iterations_per_epoch) * run.global_batch + replica * run.local_batch
    return list(range(start, start + run.local_batch))
