"""Bounds that no run can beat: floating-point work, bytes, links, memory that must be there. No torch."""

from scaling_study.roofline.bounds import Bound, Bounds, bounds_of_iteration, bounds_of_layer, least_traffic
from scaling_study.roofline.claims import Claim, Judgement, Roof, judge
from scaling_study.roofline.collectives import bus_factor
from scaling_study.roofline.flops import least_gpu_hours, model_flops_per_token, utilisation
from scaling_study.roofline.links import Group, Link, Load, group_of_nodes, links_of, load_of, ring_s
from scaling_study.roofline.memory import infeasible_because, least_memory_gib
from scaling_study.roofline.network import Network, network_of, network_of_parameters
from scaling_study.roofline.peaks import memory_bytes_per_s, peak_flops
from scaling_study.roofline.tensor import Shard, rate_of, shard_of

__all__ = [
    "Bound",
    "Bounds",
    "Claim",
    "Group",
    "Judgement",
    "Link",
    "Load",
    "Network",
    "Roof",
    "Shard",
    "bounds_of_iteration",
    "bounds_of_layer",
    "bus_factor",
    "group_of_nodes",
    "infeasible_because",
    "judge",
    "least_gpu_hours",
    "least_memory_gib",
    "least_traffic",
    "links_of",
    "load_of",
    "memory_bytes_per_s",
    "model_flops_per_token",
    "network_of",
    "network_of_parameters",
    "peak_flops",
    "rate_of",
    "ring_s",
    "shard_of",
    "utilisation",
]
