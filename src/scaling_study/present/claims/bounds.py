"""Measures that need no run: times and shares that follow from bytes, bandwidths and peaks."""

from __future__ import annotations

from scaling_study.errors import UserError
from scaling_study.present.claims.measures import Measured
from scaling_study.spec import Catalogue
from scaling_study.spec.claims import BusyCheck, Check, DecodeCheck, TransferCheck

#: FLOPs of a weight in a forward pass of one token: a multiplication and an addition.
_FLOPS_PER_WEIGHT = 2


def measure(check: Check, catalogue: Catalogue) -> Measured:
    """The number of a closed form.

    Raises:
        UserError: it names a model or a hardware that is not there, or a peak that is not published.
    """
    if isinstance(check, TransferCheck):
        return Measured(value=check.size_bytes / (check.gb_per_s * 1e9))
    if isinstance(check, BusyCheck):
        return Measured(value=min(1.0, check.kernel_us / check.every_us))
    assert isinstance(check, DecodeCheck)
    return Measured(value=decoding_share(check, catalogue))


def decoding_share(check: DecodeCheck, catalogue: Catalogue) -> float:
    """The share of the peak that a decoding step reaches if it takes no longer than reading every weight once."""
    model, part = catalogue.models.get(check.model), catalogue.hardware.get(check.hardware)
    if model is None or part is None:
        raise UserError(f"no {check.model} or no {check.hardware}", where="claims", remedy="Mend config/claims.yaml.")
    peak, memory = part.peak_tflops.get(check.precision), part.memory_gb_per_s
    if peak is None or memory is None:
        raise UserError(f"{check.hardware} has no peak or bandwidth", where="claims", remedy="Mend config/claims.yaml.")
    reading_s = model.parameters * check.precision.element_bytes / (memory.value * 1e9)
    computing_s = check.batch * _FLOPS_PER_WEIGHT * model.parameters / (peak.value * 1e12)
    return computing_s / max(reading_s, computing_s)
