"""Which GPUs this machine has, as PyTorch and NVML see them. It initialises CUDA, so it is for a process of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import torch

from scaling_study.measure.device import identity_of, nccl_version, why_no_cuda, xformers_version
from scaling_study.measure.nvml import MIG_REFUSED, NoGpuError, Nvml, NvmlUnavailableError, is_slice, visible
from scaling_study.spec import MachineReport


def look(
    cuda: Any = torch.cuda, nvml: Callable[[], Nvml] = Nvml, environment: Mapping[str, str] = os.environ
) -> MachineReport:
    """The GPUs that PyTorch sees; where there is none, the most telling reason.

    Args:
        cuda: `torch.cuda`; another one in its place in tests.
        nvml: opens NVML; likewise.
        environment: with `CUDA_VISIBLE_DEVICES`.
    """
    driver, no_nvml, hidden = _ask_nvml(nvml, environment)
    why = hidden or why_no_cuda(cuda)
    if why is not None:
        because = f" ({no_nvml})" if no_nvml and not hidden else ""
        return MachineReport(no_gpu=f"{why}{because}", no_nvml=no_nvml, torch=str(torch.__version__), driver=driver)
    gpus = [identity_of(index, cuda) for index in range(cuda.device_count())]
    slices = [gpu.name for gpu in gpus if is_slice(gpu.name)]
    if slices:
        reason = MIG_REFUSED.format(what=slices[0])
        return MachineReport(no_gpu=reason, no_nvml=no_nvml, torch=str(torch.__version__), driver=driver)
    return MachineReport(
        gpus=gpus,
        no_nvml=no_nvml,
        torch=str(torch.__version__),
        cuda=torch.version.cuda,
        driver=driver,
        nccl=nccl_version(cuda),
        xformers=xformers_version(),
    )


def _ask_nvml(nvml: Callable[[], Nvml], environment: Mapping[str, str]) -> tuple[str | None, str | None, str | None]:
    """The driver's version, why NVML tells nothing, and why CUDA would show no GPU that can be measured."""
    try:
        opened = nvml()
        gpus = [gpu.identity for gpu in opened.gpus()]
    except NvmlUnavailableError as error:
        return None, str(error), None
    try:
        visible(gpus, environment)
    except NoGpuError as error:
        return opened.driver(), None, str(error)
    finally:
        opened.close()
    return opened.driver(), None, None
