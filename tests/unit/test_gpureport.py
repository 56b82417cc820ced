"""The report of a check: errors beside predictions, and what makes it fail."""

import msgspec
import pytest

from scaling_study.gpureport import COMPARED, CheckedRun, GpuReportFile, LeftOut, checks_of, label, markdown
from scaling_study.records import predicted_record, record_of
from scaling_study.spec import (
    AttentionBackend,
    AttentionReport,
    AttentionShape,
    ClockReport,
    FailureKind,
    GpuIdentity,
    GpuReport,
    MachineReport,
    Outcome,
    PowerReport,
    PowerSource,
    Precision,
    Provenance,
)
from tests.unit.samples import PART, TINY, environment, rank_report, run_result, training_run

POWER = PowerReport(
    window_s=4.0, power_w=200.0, source=PowerSource.INSTANT, instant_w=200.0, instant_samples=40, sampling_share=0.25
)
GPU = GpuReport(
    identity=GpuIdentity(index=0, name="a part"), driver="1", peak_allocated_gib=0.5, peak_reserved_gib=0.75,
    allocation_retries=1, power=POWER, clocks=ClockReport(sm_mhz=1500.0, temperature_c=60.0),
)  # fmt: skip
RUN = training_run(dp=1, nodes=1, attention=AttentionBackend.SDPA_FLASH)
SHAPE = AttentionShape(batch=1, tokens=8, heads=1, kv_heads=1, head_dim=8)
MACHINE = MachineReport(gpus=[GPU.identity], torch="2.11.0", cuda="13.0")


def checked(operator="FlashAttention-2 (aten::_flash_attention_forward)", iteration_ns=1_000_000_000, **fields):
    ranks = [rank_report(gpu=GPU, iteration_ns=[iteration_ns] * 5)]
    used = environment(unavailable={}, attention_operator=operator, backend="nccl")
    result = run_result(RUN, ranks=ranks, environment=used)
    if fields:
        result = run_result(RUN, **fields)
    measured = record_of(result, TINY, PART, platform="here", provenance=Provenance.MEASURED)
    metrics = {"iteration_s": 0.8, "iteration_s_low": 0.7, "iteration_s_high": 0.9, "power_w_per_gpu": 220.0,
               "peak_memory_gib": 0.4, "exposed_communication_s": 0.0}  # fmt: skip
    predicted = predicted_record(RUN, Outcome.OK, None, metrics, TINY, PART, extrapolated=True, platform="predict")
    return CheckedRun.of(RUN, ["s"], result, measured, predicted)


def report(*runs, attention=None, **fields):
    found = attention if attention is not None else [attention_report(0.01)]
    return GpuReportFile(
        started_at="now", hardware="part", platform="here", machine=MACHINE, budget_s=450.0, runs=list(runs),
        attention=found, **fields,
    )  # fmt: skip


def attention_report(error, backend=AttentionBackend.SDPA, reason=None):
    return AttentionReport(
        backend=backend, precision=Precision.BF16, shape=SHAPE, error=error, allowed=0.02, reason=reason
    )


def failed(found):
    return [check.name for check in checks_of(found) if not check.passed]


def test_errors_are_predicted_over_measured_less_one():
    one = checked()
    assert one.relative_error["iteration_s"] == pytest.approx(-0.2)
    assert one.relative_error["words_per_second_per_gpu"] == pytest.approx(0.25)
    assert one.relative_error["peak_memory_gib"] == pytest.approx(-0.2)
    assert one.relative_error["power_w_per_gpu"] == pytest.approx(0.1)
    assert one.measured["tokens_per_joule"] == pytest.approx(64 / 200)
    assert set(one.measured) == set(one.predicted) == set(COMPARED)
    assert (one.predicted_interval_s, one.extrapolated) == ((0.7, 0.9), True)
    assert (one.peak_reserved_gib, one.allocation_retries, one.power) == (0.75, 1, [POWER])


def test_a_good_run_passes():
    assert failed(report(checked())) == []
    assert [check.name for check in checks_of(report(checked()))] == [
        "attention sdpa bf16 8 tokens",
        "tiny s16 fp32 sdpa_flash ends with a result",
        "tiny s16 fp32 sdpa_flash can be true",
        "tiny s16 fp32 sdpa_flash runs FlashAttention-2",
    ]


def test_a_rate_above_the_peak_fails():
    one = checked(iteration_ns=100)
    assert one.measured["mfu"] is None
    (check,) = [check for check in checks_of(report(one)) if not check.passed]
    assert check.name.endswith("can be true")
    assert "above the peak" in check.detail


@pytest.mark.parametrize("operator", ["CUTLASS (aten::_efficient_attention_forward)", None])
def test_another_kernel_than_the_one_asked_for_fails(operator):
    assert failed(report(checked(operator=operator))) == ["tiny s16 fp32 sdpa_flash runs FlashAttention-2"]


def test_a_run_that_failed_fails_and_out_of_memory_is_a_result():
    broken = checked(outcome=Outcome.FAILED, reason="it broke", failure=FailureKind.ERROR)
    assert failed(report(broken)) == ["tiny s16 fp32 sdpa_flash ends with a result"]
    full = checked(outcome=Outcome.OUT_OF_MEMORY, reason="CUDA out of memory", failure=FailureKind.OUT_OF_MEMORY)
    assert failed(report(full)) == []
    assert full.relative_error == {}


def test_attention_that_is_wrong_or_cannot_be_compared_fails():
    assert failed(report(attention=[attention_report(0.03)])) == ["attention sdpa bf16 8 tokens"]
    assert failed(report(attention=[])) == ["attention"]
    missing = attention_report(None, AttentionBackend.XFORMERS, "not there")
    assert failed(report(attention=[missing])) == ["attention"]
    assert failed(report(attention=[missing, attention_report(0.01)])) == []


def test_the_page_says_what_the_report_holds():
    left = LeftOut(run_id="a-run", sweeps=["s"], reason="it needs 8 GPUs, this machine has 1")
    full = checked(outcome=Outcome.OUT_OF_MEMORY, reason="CUDA out of memory")
    found = report(checked(), full, left_out=[left], notes=["a note"])
    page = markdown(msgspec.structs.replace(found, checks=checks_of(found)))
    assert "| tiny s16 fp32 sdpa_flash | ok | 1.0000 | 0.8000 | -20.0 |" in page
    assert "| tiny s16 fp32 sdpa_flash | out_of_memory (not ok) |" in page
    assert "mean absolute error 20.0% over 1 runs; 0 of 1 inside the predicted interval" in page
    assert "| tiny s16 fp32 sdpa_flash | 200 | instant | 200 |  | 25% |  | 1500 | 60 |" in page
    assert "- a-run: it needs 8 GPUs, this machine has 1" in page
    assert "5 of 5 passed." in page
    assert "- a note" in page


def test_labels_tell_runs_apart():
    assert label(RUN) == "tiny s16 fp32 sdpa_flash"
    assert label(training_run()) == "tiny s16 dp2 tp1 pp1 fp32 sdpa"
