"""Floating-point work of training, by the study's definition of MFU."""

from __future__ import annotations

from typing import Protocol

from scaling_study.spec import Hardware, Model, TrainingRun


class Dimensions(Protocol):
    """What the work of a decoder follows from: a model of this study, or anybody's."""

    @property
    def layers(self) -> int:
        """Blocks."""
        ...

    @property
    def hidden(self) -> int:
        """Width of the residual stream."""
        ...

    @property
    def parameters(self) -> int:
        """All of them."""
        ...


def model_flops_per_token(model: Dimensions, sequence_length: int) -> int:
    """FLOPs of forward and backward for one token: 6 N + 12 layers x hidden x sequence.

    N counts all parameters; recomputation is not counted (Chowdhery et al., 2022, appendix B).
    """
    return 6 * model.parameters + 12 * model.layers * model.hidden * sequence_length


def utilisation(tflops_per_gpu: float, run: TrainingRun, hardware: Hardware) -> tuple[float | None, str | None]:
    """MFU as a fraction of the part's dense peak, or None and the reason why it is not defined."""
    peak = hardware.peak_tflops.get(run.precision)
    if peak is None:
        return None, f"no peak is published for {run.precision} on {hardware.title}"
    mfu = tflops_per_gpu / peak.value
    if mfu > 1:
        return None, f"the rate is {mfu:.0%} of the peak of {hardware.title}: wrong part or wrong clock"
    return mfu, None


def least_gpu_hours(run: TrainingRun, model: Model, hardware: Hardware) -> float | None:
    """GPU-hours of the timed iterations if every FLOP ran at peak; None where the part has no published peak."""
    peak = hardware.peak_tflops.get(run.precision)
    if peak is None:
        return None
    flops = model_flops_per_token(model, run.sequence_length) * run.tokens_per_iteration
    return flops * run.protocol.iterations / (peak.value * 1e12) / 3600
