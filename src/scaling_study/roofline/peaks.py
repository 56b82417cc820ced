"""The fastest that a part computes and moves bytes, by its data sheet."""

from __future__ import annotations

from scaling_study.spec import Hardware, NumberFormat, Precision


def peak_flops(hardware: Hardware, number_format: NumberFormat) -> float | None:
    """Dense FLOP/s in a format; None where nothing is published that bounds it.

    A format of 16 or 32 bits without a peak of its own is no faster than the fastest that has one (fp32 on tensor
    cores). Weights of 4 bits are widened before they are multiplied, and bounded by the peak of 8 bits.
    """
    if number_format.value not in {one.value for one in Precision}:
        return hardware.peak_8bit_tflops.value * 1e12 if hardware.peak_8bit_tflops else None
    known = {name.value: one.value for name, one in hardware.peak_tflops.items()}
    found = known.get(number_format.value, max(known.values(), default=None))
    return None if found is None else found * 1e12


def memory_bytes_per_s(hardware: Hardware) -> float | None:
    """Bandwidth of one accelerator's memory."""
    return hardware.memory_gb_per_s.value * 1e9 if hardware.memory_gb_per_s else None
