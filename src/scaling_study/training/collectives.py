"""The communication primitives that collective runs measure, one call at a time, through torch.distributed.

Every rank's data are functions of its rank, so that a result can be checked before it is timed: a backend that
returned something else fast would be worth nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

from scaling_study.spec import CollectiveOp, CollectiveRun
from scaling_study.training.parallel import DTYPES


class WrongResultError(Exception):
    """A collective returned other values than it must."""


_WHOLE = (CollectiveOp.ALL_REDUCE, CollectiveOp.ALL_GATHER)


def _label(rank: int) -> int:
    """A value that tells a rank or its shard from its neighbours, exact in every dtype."""
    return rank % 127 + 1


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
        given = {CollectiveOp.ALL_REDUCE: 0, CollectiveOp.ALL_GATHER: share}.get(run.op, count)
        self.input = torch.empty(given, dtype=dtype, device=device)
        self.output = torch.empty(share if run.op is CollectiveOp.REDUCE_SCATTER else count, dtype=dtype, device=device)
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
        reduced = self.run.op in (CollectiveOp.ALL_REDUCE, CollectiveOp.REDUCE_SCATTER)
        mine = self._summand() if reduced else torch.full_like(self.input, _label(self.rank))
        (self.output if self.run.op is CollectiveOp.ALL_REDUCE else self.input).copy_(mine)
        if self.run.op is not CollectiveOp.ALL_REDUCE:
            self.output.zero_()
        self()
        parts = self.output.view(self.ranks, -1) if self.run.op in _WHOLE else self.output[None]
        labels = {
            CollectiveOp.ALL_REDUCE: range(self.ranks),
            CollectiveOp.ALL_GATHER: range(self.ranks),
            CollectiveOp.REDUCE_SCATTER: [self.rank],
            CollectiveOp.SEND_RECV: [(self.rank - 1) % self.ranks],
        }[self.run.op]
        expected = torch.tensor([_label(label) for label in labels]).to(parts)
        if not torch.equal(parts, expected[:, None].expand_as(parts)):
            raise WrongResultError(f"{self.run.op} over {self.ranks} ranks returned wrong values")
        self.output.zero_()  # sums in place, again and again, stay finite

    def _summand(self) -> Tensor:
        """What this rank adds: of each shard the label, at every element that is this rank's turn, zero elsewhere.

        One rank alone adds to an element, so that the sum is exact in every dtype and a missing rank leaves zeros.
        """
        whole = self.output if self.run.op is CollectiveOp.ALL_REDUCE else self.input
        shards = torch.zeros_like(whole).view(self.ranks, -1)
        labels = torch.tensor([_label(shard) for shard in range(self.ranks)]).to(shards)
        shards[:, self.rank :: self.ranks] = labels[:, None]
        return shards.flatten()

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
