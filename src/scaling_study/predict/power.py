"""Power of a GPU from what it does: computing, waiting inside a collective, or nothing.

`power.csv` has whole servers. The GPU's share is what is left after 1,650 W for the host, fans, adapters and switches
of an eight-GPU server (our conversion, as DGX H100's 10.2 kW and eight times 700 W leave room for several times that).
Then eight H100s draw 690 W each where they compute nearly all the time (llama2_70b_lora on one node: 7,150 W), 650 W in
GPT-3 on 64 nodes (6,850 W), and 430 W where most of the time is waiting (llama2_70b_lora on 64 nodes: 5,070 W). The
other parts take the same shares of their own limits: extrapolated.
"""

from __future__ import annotations

import numpy as np

from scaling_study.predict.batch import Array, Batch
from scaling_study.predict.fast import Iteration

_IDLE_SHARE = 0.12  # of the limit, by a GPU that does nothing (about 80 W of 700)
_COMPUTING = 1.0  # of what lies between idle and the limit
_WAITING = 0.45  # kernels of collectives spin on a few multiprocessors


def computing_share(batch: Batch, found: Iteration) -> Array:
    """Share of the iteration in which the slowest stage computes."""
    blocks = batch.stage_layers * (found.block.forward_compute + found.block.backward_compute)
    ends = found.stage_forward + found.stage_backward
    ends = ends - batch.last_layers * (found.block.forward + found.block.backward)
    computed = batch.microbatches * (blocks + np.maximum(ends, 0.0)) + found.optimizer
    share: Array = np.minimum(1.0, computed / found.total)
    return share


def power_w(batch: Batch, found: Iteration, limit_w: Array) -> Array:
    """Mean power of a GPU over an iteration, W."""
    busy = computing_share(batch, found)
    between = busy * _COMPUTING + (1 - busy) * _WAITING
    watts: Array = limit_w * (_IDLE_SHARE + (1 - _IDLE_SHARE) * between)
    return watts
