"""What the fork server imports before it forks ranks."""

import hypothesis  # noqa: F401
import pytest  # noqa: F401
import torch.distributed.pipelining  # noqa: F401

import scaling_study.training.step  # noqa: F401
