"""The communication primitives that collective runs measure, one call at a time, through torch.distributed.

Every rank's data are functions of its rank, so that a result can be checked before it is timed: a backend that
returned something else fast would be worth nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist

from scaling_study.spec import CollectiveOp, CollectiveRun
from scaling_study.training.parallel import DTYPES


class WrongResultError(Exception):
    """A collective returned other values than it must."""


def _label(rank: int) -> int:
    """A value that tells a rank from its neighbours, exact in every dtype."""
    return rank % 127 + 1


def _summand(rank: int) -> int:
    """Values whose partial sums stay small, so that sums over any number of ranks are exact in every dtype."""
    return 3 if rank == 0 else 1 - 2 * (rank % 2)


class Primitive:
    """One primitive with its buffers on this rank, over all ranks of the default group.

    Args:
        run: the primitive and its message.
        device: where the buffers live.

    Raises:
        ValueError: the message is no whole number of elements for every rank.
    """

    def __init__(self, run: CollectiveRun, device: torch.device) -> None:
        self.run, self.rank, self.ranks = run, dist.get_rank(), dist.get_world_size()
        dtype = DTYPES[run.dtype]
        count, left = divmod(run.message_bytes, dtype.itemsize)
        if left or count % self.ranks:
            raise ValueError(f"{run.message_bytes} bytes of {run.dtype} cannot be split evenly over {self.ranks} ranks")
        share = count // self.ranks
        gathers, scatters = run.op is CollectiveOp.ALL_GATHER, run.op is CollectiveOp.REDUCE_SCATTER
        self.input = torch.empty(share if gathers else count, dtype=dtype, device=device)
        self.output = torch.empty(share if scatters else count, dtype=dtype, device=device)
        self._call: Callable[[], None] = {
            CollectiveOp.ALL_REDUCE: self._all_reduce,
            CollectiveOp.ALL_GATHER: self._all_gather,
            CollectiveOp.REDUCE_SCATTER: self._reduce_scatter,
            CollectiveOp.SEND_RECV: self._send_recv,
        }[run.op]

    def __call__(self) -> None:
        """Run the primitive once; returns when this rank's part is done or, on a GPU, queued."""
        self._call()

    def check(self) -> None:
        """Run the primitive once on known values.

        Raises:
            WrongResultError: the output is not what it must be.
        """
        reduces = self.run.op in (CollectiveOp.ALL_REDUCE, CollectiveOp.REDUCE_SCATTER)
        values = [_summand(rank) if reduces else _label(rank) for rank in range(self.ranks)]
        self.input.fill_(values[self.rank])
        self.output.fill_(values[self.rank] if self.run.op is CollectiveOp.ALL_REDUCE else 0)
        self()
        expected = {
            CollectiveOp.ALL_REDUCE: [sum(values)],
            CollectiveOp.ALL_GATHER: values,
            CollectiveOp.REDUCE_SCATTER: [sum(values)],
            CollectiveOp.SEND_RECV: [values[self.rank - 1]],
        }[self.run.op]
        parts = self.output.view(len(expected), -1)
        if not torch.equal(parts, torch.tensor(expected).to(parts)[:, None].expand_as(parts)):
            raise WrongResultError(f"{self.run.op} over {self.ranks} ranks returned wrong values")
        self.output.zero_()  # sums in place, again and again, stay finite

    def _all_reduce(self) -> None:
        dist.all_reduce(self.output)

    def _all_gather(self) -> None:
        dist.all_gather_into_tensor(self.output, self.input)

    def _reduce_scatter(self) -> None:
        dist.reduce_scatter_tensor(self.output, self.input)

    def _send_recv(self) -> None:
        """Each rank to the next, as in nccl-tests' `sendrecv`."""
        works = dist.batch_isend_irecv(
            [
                dist.P2POp(dist.isend, self.input, (self.rank + 1) % self.ranks),
                dist.P2POp(dist.irecv, self.output, (self.rank - 1) % self.ranks),
            ]
        )
        for work in works:
            work.wait()
