"""The kind of failure is told from real errors, not from the words that we expect."""

import subprocess
import sys

import pytest

from scaling_study.errors import UserError
from scaling_study.measure.failures import NotFiniteError, classify
from scaling_study.spec import FailureKind


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (NotFiniteError("the loss is nan at iteration 3"), FailureKind.NOT_FINITE),
        (NotFiniteError("not enough memory"), FailureKind.NOT_FINITE),
        (MemoryError(), FailureKind.OUT_OF_MEMORY),
        (RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"), FailureKind.OUT_OF_MEMORY),
        (RuntimeError("CUDA error: out of memory\nCUDA kernel errors might"), FailureKind.OUT_OF_MEMORY),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling"), FailureKind.OUT_OF_MEMORY),
        (
            RuntimeError("NCCL error: ncclRemoteError: remote process exited or there was a network error"),
            FailureKind.PEER_LOST,
        ),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate"), FailureKind.OUT_OF_MEMORY),
        (RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate"), FailureKind.OUT_OF_MEMORY),
        (KeyboardInterrupt(), FailureKind.KILLED),
        (RuntimeError("[pair.cc:534] Connection closed by peer [127.0.0.1]:3221"), FailureKind.PEER_LOST),
        (RuntimeError("readv [127.0.0.1]:5: Connection reset by peer"), FailureKind.PEER_LOST),
        (ConnectionRefusedError(111, "Connection refused"), FailureKind.PEER_LOST),
        (BrokenPipeError(32, "Broken pipe"), FailureKind.PEER_LOST),
        (UserError("the data have 2 tokens"), FailureKind.ERROR),
        (ValueError("shapes differ"), FailureKind.ERROR),
        (SystemExit(1), FailureKind.ERROR),
    ],
)
def test_kinds(error, kind):
    assert classify(error) is kind


def test_an_allocation_that_fails_in_torch_is_out_of_memory():
    import torch

    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**50)
    assert classify(caught.value) is FailureKind.OUT_OF_MEMORY


def test_an_allocation_that_fails_in_numpy_is_out_of_memory():
    import numpy as np

    with pytest.raises(MemoryError) as caught:
        np.empty(2**50)
    assert classify(caught.value) is FailureKind.OUT_OF_MEMORY


LOST = """
import os, sys
import torch
import torch.distributed as dist
from scaling_study.measure.failures import classify
child = os.fork()
rank = 1 if child == 0 else 0
dist.init_process_group("gloo", store=dist.FileStore(sys.argv[1], 2), rank=rank, world_size=2)
dist.all_reduce(torch.ones(1))
if rank == 1:
    os._exit(0)
os.waitpid(child, 0)
try:
    while True:
        dist.all_reduce(torch.ones(1))
except Exception as error:
    print(classify(error), "|", error)
"""


def test_a_rank_that_is_gone_is_a_lost_peer_to_the_others(tmp_path):
    command = [sys.executable, "-c", LOST, str(tmp_path / "store")]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout
    assert printed.startswith("peer_lost |"), printed
