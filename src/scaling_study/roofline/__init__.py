"""Bounds that no run can beat: floating-point work, time at peak, memory that must be there. No torch."""

from scaling_study.roofline.collectives import bus_factor
from scaling_study.roofline.flops import least_gpu_hours, model_flops_per_token, utilisation
from scaling_study.roofline.memory import infeasible_because, least_memory_gib

__all__ = [
    "bus_factor",
    "infeasible_because",
    "least_gpu_hours",
    "least_memory_gib",
    "model_flops_per_token",
    "utilisation",
]
