"""Power: what NVML can say on this machine, or the reason why there is nothing to say."""

from __future__ import annotations


def power_unavailable() -> str:
    """Why there is no power reading here.

    A machine without an NVIDIA driver has no source of power that a rank can attribute to itself. Where there is a
    driver, reading it belongs to the measurements on GPUs, which this version does not make.
    """
    try:
        import pynvml
    except ImportError:
        return "nvidia-ml-py is not installed"
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return f"no NVIDIA driver on this machine (NVML: {error})"
    pynvml.nvmlShutdown()
    return "power is read for runs on GPUs only"
