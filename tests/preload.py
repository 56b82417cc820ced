"""What the fork server imports before it forks ranks."""

import torch.distributed.pipelining

import scaling_study.training.step  # noqa: F401
