"""Closed forms against numbers worked out by hand."""

from __future__ import annotations

import pytest

from scaling_study.errors import UserError
from scaling_study.present.claims.bounds import measure
from scaling_study.spec import Precision
from scaling_study.spec.claims import BusyCheck, DecodeCheck, Expected, TransferCheck
from tests.unit.samples import CONFIG

ANY = Expected(at_least=0)


def decode(**fields) -> DecodeCheck:
    defaults = {"model": "llama2-70b", "hardware": "h100", "precision": Precision.BF16, "batch": 1, "expect": ANY}
    return DecodeCheck(**{**defaults, **fields})


def test_bytes_over_a_bandwidth() -> None:
    found = measure(TransferCheck(size_bytes=8e6, gb_per_s=300, expect=ANY), CONFIG.catalogue).value
    assert found == pytest.approx(26.67e-6, abs=5e-9)


@pytest.mark.parametrize(("kernel_us", "share"), [(3, 0.3), (10, 1.0), (20, 1.0)])
def test_a_kernel_that_is_launched_every_so_often(kernel_us: float, share: float) -> None:
    assert measure(BusyCheck(kernel_us=kernel_us, every_us=10, expect=ANY), CONFIG.catalogue).value == share


@pytest.mark.parametrize(("batch", "share"), [(1, 3350 / 989.4e3), (100, 335e3 / 989.4e3), (1000, 1.0)])
def test_decoding_reads_every_weight_once_a_step(batch: int, share: float) -> None:
    assert measure(decode(batch=batch), CONFIG.catalogue).value == pytest.approx(share)


@pytest.mark.parametrize("fields", [{"model": "none"}, {"hardware": "none"}, {"hardware": "cpu"}])
def test_what_is_not_known_is_an_error(fields: dict) -> None:
    with pytest.raises(UserError, match=r"no none|has no peak|no llama2-70b or no none"):
        measure(decode(**fields), CONFIG.catalogue)
