"""Backends are compared with attention by its formula; a wrong one is found, a missing one named."""

import pytest
import torch

from scaling_study.measure import attention
from scaling_study.measure.attention import check, unfused
from scaling_study.spec import AttentionBackend, AttentionCheck, AttentionReport, AttentionShape, Precision

SHAPE = AttentionShape(batch=2, tokens=33, heads=4, kv_heads=2, head_dim=16)


def reports(*precisions, shape=SHAPE):
    asked = AttentionCheck(gpu=None, shapes=(shape,), precisions=precisions)
    return {(one.backend, one.precision): one for one in check(asked)}


def test_the_formula_is_that_of_a_loop():
    generator = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(1, 5, heads, 4, generator=generator) for heads in (2, 1, 1))
    out = unfused(q, k, v)
    for token in range(5):
        for head in range(2):
            scores = torch.stack([q[0, token, head] @ k[0, seen, 0] / 2 for seen in range(token + 1)])
            expected = (scores.softmax(0)[:, None] * v[0, : token + 1, 0]).sum(0)
            assert torch.allclose(out[0, token, head], expected, atol=1e-6)


def test_backends_of_a_cpu_agree_in_every_precision_and_others_say_why_not():
    found = reports(Precision.FP32, Precision.BF16)
    for precision in (Precision.FP32, Precision.BF16):
        for backend in (AttentionBackend.SDPA, AttentionBackend.SDPA_MATH):
            one = found[backend, precision]
            assert one.agrees, one
            assert one.reason is None
        for backend in (AttentionBackend.SDPA_EFFICIENT, AttentionBackend.SDPA_CUDNN, AttentionBackend.XFORMERS):
            one = found[backend, precision]
            assert (one.agrees, one.error) == (None, None)
            assert one.reason
    assert found[AttentionBackend.SDPA, Precision.FP32].error < 1e-5
    assert 1e-5 < found[AttentionBackend.SDPA, Precision.BF16].error < 0.05


@pytest.mark.parametrize("damage", [lambda out: out * 1.1, lambda out: out.flip(1), lambda out: out / 0 * 0])
def test_a_wrong_backend_is_found(damage, monkeypatch):
    monkeypatch.setattr(attention, "attend_with", lambda backend: lambda q, k, v: damage(unfused(q, k, v)))
    assert all(one.agrees is False for one in reports(Precision.FP32).values())


def test_what_did_not_run_neither_agrees_nor_disagrees():
    said = AttentionReport(backend=AttentionBackend.SDPA, precision=Precision.BF16, shape=SHAPE, allowed=1.0)
    assert said.agrees is None


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_backends_of_a_real_gpu_agree():
    from scaling_study.measure.device import identity_of
    from scaling_study.spec import hardware_of_device
    from tests.unit.samples import CONFIG

    gpu = hardware_of_device(identity_of(0).name, CONFIG.catalogue.hardware)
    shape = AttentionShape(batch=2, tokens=1000, heads=8, kv_heads=2, head_dim=128)
    precision = next(one for one in (Precision.BF16, Precision.FP16) if one in gpu.peak_tflops)
    found = check(AttentionCheck(gpu=gpu, shapes=(shape,), precisions=(precision,)))
    assert not [one for one in found if one.agrees is False]
    assert sum(one.agrees is True for one in found) >= 3
