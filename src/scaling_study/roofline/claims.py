"""Whether a claimed rate is possible: every roof over it, the lowest one, and the arithmetic.

Roofs give the benefit of the doubt: a layout or a context that is not said is taken as it suits a claim best, work and
traffic are the least there can be, and peaks are those of data sheets. What stands above a roof all the same is
impossible; what stands below is not thereby true.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from scaling_study.roofline.links import NETWORK_HOP_S, NVLINK_HOP_S, links_of
from scaling_study.roofline.network import Network
from scaling_study.roofline.peaks import memory_bytes_per_s, peak_flops
from scaling_study.spec import Hardware, NumberFormat, Phase, Regime

#: Below this share of the compute roof, training or reading a prompt has another limit that is worth finding (CR).
FAR_BELOW = 0.3
#: Data sheets' peaks for matrices with two zeros in four are twice the dense ones.
SPARSE = 2.0

#: Per accelerator or over all: a rate too high by nearly as much as there are accelerators makes one ask.
SLIP = 0.1


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """What is claimed. Batches are sequences over all accelerators.

    Attributes:
        tokens_per_second: over all accelerators.
        batch: of a step; None where it is not said. Decoding takes one sequence then.
        context_length: of a sequence in training, of a prompt, or what a decoded token attends to.
        tp: accelerators that share one replica's layers; None where it is not said.
        tokens_per_pass: that one pass of the model gives a sequence: more than one with speculative decoding.
        kernels, launch_interval_s: of a pass, and between launches; None where they are not said.
    """

    network: Network
    hardware: Hardware
    gpus: int
    phase: Phase
    tokens_per_second: float
    number_format: NumberFormat = NumberFormat.BF16
    batch: int | None = None
    context_length: int = 0
    tp: int | None = None
    tokens_per_pass: float = 1.0
    kernels: int | None = None
    launch_interval_s: float | None = None

    @property
    def weights_bytes(self) -> float:
        """That every pass reads."""
        met = self.network.blocks if self.phase is Phase.PREFILL else self.network.multiplied
        return met * self.number_format.element_bytes

    @property
    def tokens_of_a_pass(self) -> float | None:
        """Over all accelerators; None where the batch is not said."""
        if self.phase is Phase.DECODE:
            return (self.batch or 1) * self.tokens_per_pass
        return self.batch * self.context_length if self.batch and self.context_length else None

    @property
    def at_work(self) -> int:
        """Accelerators that a pass can use at once: those of as many replicas as there are sequences."""
        if self.tp is None or self.phase is not Phase.DECODE:
            return self.gpus
        return min(self.gpus, self.tp * (self.batch or 1))


class Roof(msgspec.Struct, frozen=True, kw_only=True):
    """A rate that cannot be exceeded, tokens/s over all accelerators."""

    regime: Regime
    tokens_per_second: float
    arithmetic: str


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on a claim.

    Attributes:
        limit: the lowest roof; None where no number is published that a roof could be made of.
        share_of_limit: claimed over it: above 1, it is impossible; None without a roof, or where that is zero.
        roofs: all, the lowest first.
        notes: what to look for.
    """

    possible: bool
    claimed_tokens_per_second: float
    limit: Roof | None
    share_of_limit: float | None
    roofs: tuple[Roof, ...]
    notes: tuple[str, ...]


def judge(claim: Claim) -> Judgement:
    """Hold a claim against its roofs."""
    roofs = tuple(sorted(roofs_of(claim), key=lambda one: one.tokens_per_second))
    limit = roofs[0] if roofs else None
    share = claim.tokens_per_second / limit.tokens_per_second if limit and limit.tokens_per_second else None
    return Judgement(
        possible=limit is None or claim.tokens_per_second <= limit.tokens_per_second,
        claimed_tokens_per_second=claim.tokens_per_second,
        limit=limit,
        share_of_limit=share,
        roofs=roofs,
        notes=tuple(_notes(claim, limit, share)),
    )


def roofs_of(claim: Claim) -> Iterator[Roof]:
    """Every roof that what is said, and what is published of the part, gives."""
    for roof in (_compute(claim), _memory(claim), _communication(claim), _overhead(claim), _capacity(claim)):
        if roof is not None:
            yield roof


def least_flops(claim: Claim) -> float:
    """Of a token."""
    network, length = claim.network, claim.context_length
    if claim.phase is Phase.TRAIN:
        return network.training_flops(length)
    return network.prefill_flops(length) if claim.phase is Phase.PREFILL else network.decode_flops(length)


def _compute(claim: Claim) -> Roof | None:
    peak, flops = peak_flops(claim.hardware, claim.number_format), least_flops(claim)
    if peak is None or not flops:
        return None
    return Roof(
        regime=Regime.COMPUTE,
        tokens_per_second=peak * claim.at_work / flops,
        arithmetic=f"{claim.at_work:,} x {peak / 1e12:.4g} TFLOP/s dense {claim.number_format} "
        f"/ {flops / 1e9:.4g} GFLOP a token, the least for {claim.phase}",
    )


def _memory(claim: Claim) -> Roof | None:
    """Every pass reads the weights, and each sequence that is decoded its keys and values."""
    rate, tokens = memory_bytes_per_s(claim.hardware), claim.tokens_of_a_pass
    if rate is None or tokens is None:
        return None
    replicas = _replicas(claim)
    kept = 0.0
    if claim.phase is Phase.DECODE:
        element = min(2.0, max(1.0, claim.number_format.element_bytes))
        kept = claim.network.key_value_elements * element * claim.context_length * (claim.batch or 1)
    passes = 2 if claim.phase is Phase.TRAIN else 1
    traffic = passes * claim.weights_bytes * replicas + kept
    if not traffic:
        return None
    weights = f"{claim.weights_bytes / 1e9:.4g} GB of weights" + (f" x {passes} passes" if passes > 1 else "")
    shown = weights + (f" x {replicas:g} replicas" if replicas > 1 else "")
    shown += f" + {kept / 1e9:.4g} GB of keys and values" if kept else ""
    return Roof(
        regime=Regime.MEMORY,
        tokens_per_second=tokens * rate * claim.at_work / traffic,
        arithmetic=f"{_counted(tokens)} a pass x {claim.at_work:,} x {rate / 1e9:.4g} GB/s / ({shown})",
    )


def _replicas(claim: Claim) -> float:
    """Copies of the weights that a pass reads; one where no layout is said, which suits a claim best."""
    return claim.at_work / claim.tp if claim.tp and claim.phase is Phase.DECODE else 1.0


def _communication(claim: Claim) -> Roof | None:
    """Two all-reduces a block and pass (training: four) over tensor-parallel ranks: their bytes, and a hop each."""
    network, ranks = claim.network, claim.tp or 1
    if ranks < 2 or not network.layers:
        return None
    links, across = links_of(claim.hardware), ranks > claim.hardware.gpus_per_node
    link = links.get("network") if across else links.get("nvlink") or links.get("pcie")
    if link is None:
        return None
    calls = (4 if claim.phase is Phase.TRAIN else 2) * network.layers
    element = min(2.0, max(1.0, claim.number_format.element_bytes))
    nodes = -(-ranks // claim.hardware.gpus_per_node)
    members, rate = (nodes, link.bytes_per_s * claim.hardware.gpus_per_node) if across else (ranks, link.bytes_per_s)
    wire = calls * (members - 1) / members * network.hidden * element / rate  # seconds of one token
    tokens, groups = claim.tokens_of_a_pass, claim.at_work / ranks
    hop = NETWORK_HOP_S if across else NVLINK_HOP_S
    latency = calls * hop if tokens else 0.0
    each = (tokens / claim.tokens_per_pass / groups if tokens else 1.0) * wire + latency
    return Roof(
        regime=Regime.COMMUNICATION,
        tokens_per_second=(tokens or groups) / each,
        arithmetic=f"{calls} all-reduces a pass over {ranks} ranks by {link.name}: {wire * 1e6:.4g} us of bytes a token"
        + (f" + {calls} x {hop * 1e6:g} us of latency a pass" if latency else ""),
    )


def _overhead(claim: Claim) -> Roof | None:
    tokens = claim.tokens_of_a_pass
    if claim.kernels is None or claim.launch_interval_s is None or tokens is None:
        return None
    seconds = claim.kernels * claim.launch_interval_s
    return Roof(
        regime=Regime.OVERHEAD,
        tokens_per_second=tokens / seconds,
        arithmetic=f"{_counted(tokens)} a pass / ({claim.kernels:,} kernels x {claim.launch_interval_s * 1e6:g} us)",
    )


def _capacity(claim: Claim) -> Roof | None:
    """Weights that do not fit are read over the host's link in every pass."""
    memory = claim.hardware.memory_gib
    if memory is None or claim.phase is Phase.TRAIN:
        return None
    kept, room = claim.network.parameters * claim.number_format.element_bytes, memory.value * 2**30 * claim.gpus
    if kept <= room:
        return None
    said = f"{kept / 1e9:.4g} GB of weights do not fit {claim.gpus:,} x {memory.value:g} GiB"
    host, tokens = links_of(claim.hardware).get("pcie"), claim.tokens_of_a_pass
    if host is None:
        return Roof(regime=Regime.CAPACITY, tokens_per_second=0.0, arithmetic=said)
    if tokens is None:
        return None
    rest, rate = kept - room, host.bytes_per_s * claim.gpus
    return Roof(
        regime=Regime.CAPACITY,
        tokens_per_second=tokens * rate / rest,
        arithmetic=f"{said}; {_counted(tokens)} a pass x {rate / 1e9:.4g} GB/s from the host / {rest / 1e9:.4g} GB",
    )


def _counted(tokens: float) -> str:
    return f"{tokens:g} token{'' if tokens == 1 else 's'}"


def _notes(claim: Claim, limit: Roof | None, share: float | None) -> Iterator[str]:
    if limit is None:
        yield "nothing is published of the part that a roof could be made of"
    if limit is None or share is None:
        return
    compute = next((one for one in roofs_of(claim) if one.regime is Regime.COMPUTE), None)
    of_compute = claim.tokens_per_second / compute.tokens_per_second if compute else None
    if share > 1 and limit.regime is Regime.COMPUTE and share <= SPARSE:
        yield "it would be possible at the peak for 2:4 sparse matrices, twice the dense one: was that one used?"
    if share > 1 and limit.regime is Regime.MEMORY and claim.phase is Phase.DECODE:
        yield (
            f"it would take {share * claim.tokens_per_pass:.3g} tokens a pass (speculative decoding), "
            f"{share:.3g} times the batch, or smaller weights"
        )
    if share > 1 and SLIP * claim.gpus <= share <= claim.gpus:
        yield "per accelerator or over all of them: was one taken for the other?"
    if share <= 1 and of_compute is not None and of_compute < FAR_BELOW and claim.phase is not Phase.DECODE:
        yield (
            f"only {of_compute:.0%} of the compute roof: look for launch overhead, poor shapes of matrix products, "
            "exposed communication, or the host"
        )
