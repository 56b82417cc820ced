"""Tensor parallelism against its links: the third document's questions, and its two shapes."""

from __future__ import annotations

import pytest

from scaling_study.roofline import Link, links_of, network_of, rate_of, shard_of
from scaling_study.roofline.tensor import Shard
from scaling_study.spec import NumberFormat, Regime
from tests.unit.samples import CONFIG

MODEL, H100 = CONFIG.catalogue.models["llama2-70b"], CONFIG.catalogue.hardware["h100"]
LINKS = links_of(H100)
DEGREES = [2**power for power in range(7)]


def rates(link, tokens):
    return [rate_of(shard_of(MODEL, H100, LINKS[link], tp, tokens, NumberFormat.BF16), MODEL, tokens) for tp in DEGREES]


def test_local_compute_of_20_us_and_an_all_reduce_of_27_us_is_bound_by_communication():
    """Its first question."""
    assert Shard(tp=2, local_s=20e-6, all_reduce_s=27e-6 / 2).regime is Regime.COMMUNICATION
    assert Shard(tp=2, local_s=28e-6, all_reduce_s=27e-6 / 2).regime is Regime.COMPUTE


def test_a_shard_by_hand():
    block = network_of(MODEL).blocks / 80
    many = shard_of(MODEL, H100, LINKS["nvlink"], 4, 512, NumberFormat.BF16)
    assert many.local_s == pytest.approx(2 * block / 4 * 512 / 989.4e12)
    assert many.all_reduce_s == pytest.approx(6 * 0.47e-6 + 1.5 * 512 * 8192 * 2 / 450e9)
    one = shard_of(MODEL, H100, LINKS["nvlink"], 4, 1, NumberFormat.BF16)
    assert one.local_s == pytest.approx(2 * block / 4 / 3350e9)
    assert one.block_s == pytest.approx(one.local_s + 2 * one.all_reduce_s)
    assert rate_of(one, MODEL, 1) == pytest.approx(1 / (80 * one.block_s))


@pytest.mark.parametrize("tokens", [1, 512])
@pytest.mark.parametrize("link", LINKS)
def test_past_some_degree_more_ranks_give_fewer_tokens(link, tokens):
    """Its second question: extra ranks add bytes and hops, and a run that they bind already pays more than it gains."""
    found = rates(link, tokens)
    best = found.index(max(found))
    assert 0 < best < len(found) - 1
    assert found[: best + 1] == sorted(found[: best + 1])
    assert found[best:] == sorted(found[best:], reverse=True)


@pytest.mark.parametrize("tokens", [1, 512])
def test_nvlink_stays_viable_longer_than_pcie_and_the_network(tokens):
    def viable(link):
        shards = (shard_of(MODEL, H100, LINKS[link], tp, tokens, NumberFormat.BF16) for tp in DEGREES)
        return max(one.tp for one in shards if one.regime is Regime.COMPUTE)

    assert viable("nvlink") > viable("pcie") >= viable("network")
    best = {link: DEGREES[rates(link, tokens).index(max(rates(link, tokens)))] for link in LINKS}
    assert best["nvlink"] > best["network"]


def test_a_part_without_roofs_is_refused():
    with pytest.raises(ValueError, match="no roof is published for cpu"):
        shard_of(
            MODEL, CONFIG.catalogue.hardware["cpu"], Link(name="l", bytes_per_s=1, hop_s=0), 2, 1, NumberFormat.BF16
        )
