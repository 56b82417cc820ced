"""The closed forms equal what the training code does under fake tensors, and that equals a real run over gloo."""

from concurrent.futures import ProcessPoolExecutor

import msgspec
import pytest

from scaling_study.predict.agreement import first_difference
from scaling_study.predict.memory import memory_of
from scaling_study.predict.workload import workload_of
from scaling_study.spec import (
    ActivationCheckpointing,
    AttentionBackend,
    Model,
    PipelineSchedule,
    Precision,
    Protocol,
    ReductionDtype,
    TrainingRun,
    violations,
)
from scaling_study.spec.hardware import Hardware
from tests.ranks import CONTEXT, run_on_ranks

#: Large enough for a memory peak that is not made of single numbers, small enough for a second.
SHAPE = {"hidden": 64, "heads": 4, "ffn": 176, "vocabulary": 256, "source": "test"}
PLAIN = Model(name="plain", layers=2, kv_heads=4, **SHAPE)
GROUPED = Model(name="grouped", layers=2, kv_heads=2, **SHAPE)
DEEP = Model(name="deep", layers=4, kv_heads=2, **SHAPE)
DEEPER = Model(name="deeper", layers=6, kv_heads=2, **SHAPE)
DEEPEST = Model(name="deepest", layers=8, kv_heads=4, **SHAPE)
SHORT = Model(name="short", layers=1, kv_heads=4, **SHAPE)
FULL, SELECTIVE = ActivationCheckpointing.FULL, ActivationCheckpointing.SELECTIVE
CLIP = Protocol(max_gradient_norm=1.0)
INTERLEAVED = {"schedule": PipelineSchedule.INTERLEAVED, "virtual_stages": 2}
NODE = Hardware(name="cpu", title="a node of one", gpus_per_node=1)


def make_run(dp=1, tp=1, pp=1, microbatches=None, **fields):
    micro_batch = fields.setdefault("micro_batch", 1)
    microbatches = microbatches or pp
    defaults = {"precision": Precision.BF16, "sequence_length": 32, "attention": AttentionBackend.XFORMERS}
    return TrainingRun(
        model="test",
        hardware="cpu",
        nodes=dp * tp * pp,
        dp=dp,
        tp=tp,
        pp=pp,
        global_batch=dp * micro_batch * microbatches,
        **{**defaults, **fields},
    )


#: Name: model, run, pipeline rank. Every layout, and between them every choice that changes the workload.
CASES = {
    "one rank, fp32": (PLAIN, make_run(precision=Precision.FP32, protocol=CLIP, microbatches=2), 0),
    "one rank, bf16": (SHORT, make_run(micro_batch=2), 0),
    "dp": (GROUPED, make_run(4, micro_batch=2), 0),
    "dp, fp32, full": (PLAIN, make_run(2, precision=Precision.FP32, activation_checkpointing=FULL), 0),
    "dp, fp16, clipped": (PLAIN, make_run(2, precision=Precision.FP16, protocol=CLIP), 0),
    "dp, rows that do not split": (PLAIN, make_run(48), 0),
    "dp, resharding, accumulation": (GROUPED, make_run(2, 1, 1, 2, reshard_after_forward=True), 0),
    "dp, accumulation, bf16 reduction": (
        PLAIN,
        make_run(2, microbatches=2, reduction_dtype=ReductionDtype.BF16, activation_checkpointing=SELECTIVE),
        0,
    ),
    "tp, fp32": (SHORT, make_run(1, 2, precision=Precision.FP32, protocol=CLIP), 0),
    "tp, bf16, accumulation": (SHORT, make_run(1, 4, microbatches=2, protocol=CLIP), 0),
    "dp-tp at 2,048 ranks": (PLAIN, make_run(1024, 2, micro_batch=2), 0),
    "dp-tp, full, resharding": (PLAIN, make_run(2, 2, activation_checkpointing=FULL, reshard_after_forward=True), 0),
    "dp-tp, selective": (SHORT, make_run(2, 2, activation_checkpointing=SELECTIVE, protocol=CLIP), 0),
    "pp, first, fp32": (PLAIN, make_run(1, 1, 2, 3, precision=Precision.FP32), 0),
    "dp-pp, first, resharding": (DEEPER, make_run(2, 1, 2, reshard_after_forward=True), 0),
    "dp-pp, middle, clipped": (DEEP, make_run(2, 1, 4, protocol=CLIP), 1),
    "dp-pp, last, resharding, full": (
        PLAIN,
        make_run(2, 1, 2, reshard_after_forward=True, activation_checkpointing=FULL),
        1,
    ),
    "dp-tp-pp, last, fp16": (PLAIN, make_run(2, 2, 2, precision=Precision.FP16, protocol=CLIP), 1),
    "interleaved, first": (DEEP, make_run(2, 1, 2, **INTERLEAVED), 0),
    "interleaved, last, resharding": (DEEP, make_run(2, 1, 2, 4, reshard_after_forward=True, **INTERLEAVED), 1),
    "interleaved, four stages a rank": (DEEPEST, make_run(2, 1, 2, **{**INTERLEAVED, "virtual_stages": 4}), 0),
    "interleaved at 2,048 ranks": (DEEP, make_run(512, 2, 2, activation_checkpointing=SELECTIVE, **INTERLEAVED), 1),
}  # fmt: skip


#: Cheap enough to run for real; together they have every kind of communication but the loss scaler's.
REAL = {
    "dp": make_run(2, precision=Precision.FP32, protocol=CLIP),
    "tp": make_run(1, 2, protocol=CLIP),
    "pp": make_run(1, 1, 2, protocol=CLIP),
}


def extract_last_rank(model, run, stage):
    """The extraction of the rank that is last on every axis but the pipeline's, and how many steps it told of."""
    from scaling_study.predict.extract import Place, extract

    told = []
    return extract(run, model, Place(stage, run.dp - 1, run.tp - 1), advance=told.append), sum(told)


@pytest.fixture(scope="module")
def extractions():
    """All cases, two at a time, in processes that import torch once."""
    with ProcessPoolExecutor(2, mp_context=CONTEXT) as pool:
        yield {name: pool.submit(extract_last_rank, *case) for name, case in CASES.items()}
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("name", CASES)
def test_closed_forms_equal_the_training_code(name, extractions):
    model, run, stage = CASES[name]
    assert violations(run, model, NODE) == []
    extracted, told = extractions[name].result(timeout=300)
    assert first_difference(workload_of(run, model, stage).steps(), extracted.steps) is None
    assert 2.0 <= told / len(extracted.steps) < 2.5  # twice, and of what DTensor did of its own the first time
    predicted = memory_of(run, model, stage, run.dp - 1)
    assert predicted.peak_bytes == pytest.approx(extracted.peak_memory_bytes, rel=0.05)


def record_real_step(model, run):
    """The second step of this rank of a real process group."""
    import torch

    from scaling_study.predict.extract import Recorder
    from scaling_study.training.step import Trainer

    trainer = Trainer(msgspec.structs.replace(run, attention=AttentionBackend.SDPA), model, torch.device("cpu"))
    tokens = torch.zeros(run.local_batch, run.sequence_length, dtype=torch.int64)
    trainer.step(tokens, tokens)
    recorder = Recorder(trainer.mesh)
    with recorder:
        trainer.step(tokens, tokens)
    return recorder.steps


@pytest.mark.parametrize("name", REAL)
def test_closed_forms_equal_a_real_run(name):
    run = REAL[name]
    for rank, steps in enumerate(run_on_ranks(record_real_step, run.ranks, GROUPED, run)):
        stage = rank // (run.dp * run.tp)
        assert first_difference(workload_of(run, GROUPED, stage).steps(), steps) is None


def test_a_process_that_is_in_a_group_is_refused():
    with pytest.raises(AssertionError, match="this process belongs to a process group"):
        run_on_ranks(extract_last_rank, 1, SHORT, make_run(), 0)
