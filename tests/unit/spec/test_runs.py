"""Identities of runs: the same everywhere and for ever, and different for different runs; and possible layouts."""

import itertools
import json
import os
import subprocess
import sys

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling_study.spec import (
    ActivationCheckpointing,
    AttentionBackend,
    CollectiveOp,
    CollectiveProtocol,
    CollectiveRun,
    Model,
    Pacing,
    PipelineSchedule,
    Precision,
    Protocol,
    ReductionDtype,
    TrainingRun,
    canonical_json,
    decode_run,
    encode_run,
    run_id,
    violations,
)
from scaling_study.spec.runs import canonical
from tests.unit.samples import CONFIG, PART, bounded

DEFAULTS = TrainingRun(model="llama2-7b", hardware="h100", nodes=32, dp=256, micro_batch=2, global_batch=512)
EVERYTHING = TrainingRun(
    model="llama2-70b",
    hardware="a100",
    nodes=4,
    dp=2,
    tp=8,
    pp=2,
    virtual_stages=2,
    micro_batch=1,
    global_batch=64,
    sequence_length=8192,
    precision=Precision.FP16,
    reduction_dtype=ReductionDtype.BF16,
    attention=AttentionBackend.SDPA,
    reshard_after_forward=True,
    activation_checkpointing=ActivationCheckpointing.SELECTIVE,
    schedule=PipelineSchedule.INTERLEAVED,
    pacing=Pacing.ADAPTIVE,
    protocol=Protocol(iterations=20, data="generated", learning_rate=1e-4, revision=2),
    repeat=3,
)
PLAIN_COLLECTIVE = CollectiveRun(op=CollectiveOp.ALL_REDUCE, hardware="h100", nodes=4, message_bytes=2**20)
COLLECTIVE = CollectiveRun(
    op=CollectiveOp.REDUCE_SCATTER,
    hardware="h100",
    nodes=16,
    message_bytes=2**26,
    dtype=Precision.FP32,
    protocol=CollectiveProtocol(repeats=50),
)

#: These may never change: results are kept under them. A change here loses every measurement made so far.
GOLDEN = [
    (
        DEFAULTS,
        "llama2-7b_h100_n32_dp256-tp1-pp1_mb2-gb512-s4096_bf16_60002582ee",
        '{"dp":256,"global_batch":512,"hardware":"h100","kind":"training","micro_batch":2,"model":"llama2-7b","nodes":32}',
    ),
    (
        EVERYTHING,
        "llama2-70b_a100_n4_dp2-tp8-pp2_mb1-gb64-s8192_fp16_5c513422f0",
        '{"activation_checkpointing":"selective","attention":"sdpa","dp":2,"global_batch":64,"hardware":"a100",'
        '"kind":"training","micro_batch":1,"model":"llama2-70b","nodes":4,"pacing":"adaptive","pp":2,'
        '"precision":"fp16","protocol":{"data":"generated","iterations":20,"learning_rate":0.0001,"revision":2},'
        '"reduction_dtype":"bf16","repeat":3,"reshard_after_forward":true,"schedule":"interleaved_1f1b",'
        '"sequence_length":8192,"tp":8,"virtual_stages":2}',
    ),
    (
        PLAIN_COLLECTIVE,
        "all-reduce_h100_n4_1048576B_bf16_d99cfc9109",
        '{"hardware":"h100","kind":"collective","message_bytes":1048576,"nodes":4,"op":"all_reduce"}',
    ),
    (
        COLLECTIVE,
        "reduce-scatter_h100_n16_67108864B_fp32_f579379888",
        '{"dtype":"fp32","hardware":"h100","kind":"collective","message_bytes":67108864,"nodes":16,'
        '"op":"reduce_scatter","protocol":{"repeats":50}}',
    ),
]
RUNS = [run for run, _, _ in GOLDEN]


@pytest.mark.parametrize(("run", "identity", "content"), GOLDEN)
def test_golden_identity(run, identity, content):
    assert canonical_json(run).decode() == content
    assert run_id(run) == identity


@pytest.mark.parametrize("run", RUNS, ids=run_id)
def test_a_run_comes_back_from_canonical_and_from_full_json(run):
    assert decode_run(canonical_json(run)) == run
    assert decode_run(encode_run(run)) == run
    assert set(json.loads(encode_run(run))) == {*run.__struct_fields__, "kind"}


class _LaterRun(TrainingRun, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="training"):
    compile: bool = False
    buckets: int | None = None


class _LaterProtocol(Protocol, frozen=True, kw_only=True, forbid_unknown_fields=True):
    cool_down_s: float = 0.0


@pytest.mark.parametrize("run", [DEFAULTS, EVERYTHING], ids=run_id)
def test_a_field_that_is_added_with_a_default_keeps_old_identities(run):
    fields = msgspec.structs.asdict(run)
    protocol = _LaterProtocol(**msgspec.structs.asdict(fields.pop("protocol")))
    later = _LaterRun(**fields, protocol=protocol)
    assert canonical_json(later) == canonical_json(run)
    assert run_id(later) == run_id(run)
    assert run_id(msgspec.structs.replace(later, compile=True)) != run_id(run)
    slower = msgspec.structs.replace(protocol, cool_down_s=1.0)
    assert run_id(msgspec.structs.replace(later, protocol=slower)) != run_id(run)


def test_an_identity_does_not_depend_on_the_order_of_fields():
    fields = msgspec.to_builtins(EVERYTHING)
    fields["protocol"] = dict(reversed(fields["protocol"].items()))
    shuffled = msgspec.convert(dict(reversed(fields.items())), TrainingRun)
    assert list(fields) != list(reversed(fields))
    assert run_id(shuffled) == run_id(EVERYTHING)


def test_a_default_that_is_spelled_out_is_the_same_run():
    assert run_id(msgspec.structs.replace(DEFAULTS, sequence_length=4096, protocol=Protocol(iterations=60))) == run_id(
        DEFAULTS
    )


@pytest.mark.parametrize("seed", ["0", "7"])
def test_an_identity_does_not_depend_on_folder_hash_seed_or_locale(seed, tmp_path):
    script = (
        "import sys; from scaling_study.spec import decode_run, run_id\n"
        "print(*(run_id(decode_run(line.encode())) for line in sys.stdin), sep='\\n')"
    )
    environment = {**os.environ, "PYTHONHASHSEED": seed, "LC_ALL": "C", "TZ": "Asia/Tokyo"}
    printed = subprocess.run(
        [sys.executable, "-c", script],
        input="\n".join(content for _, _, content in GOLDEN),
        capture_output=True, text=True, check=True, cwd=tmp_path, env=environment,
    ).stdout  # fmt: skip
    assert printed.splitlines() == [identity for _, identity, _ in GOLDEN]


small = st.integers(1, 64)
protocols = st.builds(
    Protocol,
    iterations=st.integers(20, 100),
    discard=st.integers(0, 19),
    profiled_iterations=small,
    data=st.sampled_from(["wikipedia-stackexchange", "generated"]),
    learning_rate=st.floats(1e-6, 1e-1),
    revision=st.integers(1, 3),
)
training_runs = st.builds(
    TrainingRun,
    model=st.sampled_from(["llama2-7b", "llama2-70b"]),
    hardware=st.sampled_from(["a100", "h100"]),
    nodes=small,
    dp=small,
    tp=small,
    pp=small,
    virtual_stages=small,
    micro_batch=small,
    global_batch=small,
    sequence_length=st.sampled_from([2048, 4096]),
    precision=st.sampled_from(Precision),
    reduction_dtype=st.sampled_from(ReductionDtype),
    attention=st.sampled_from(AttentionBackend),
    reshard_after_forward=st.booleans(),
    activation_checkpointing=st.sampled_from(ActivationCheckpointing),
    schedule=st.sampled_from(PipelineSchedule),
    pacing=st.sampled_from(Pacing),
    protocol=protocols,
    repeat=st.integers(0, 4),
)
collective_runs = st.builds(
    CollectiveRun,
    op=st.sampled_from(CollectiveOp),
    hardware=st.sampled_from(["a100", "h100"]),
    nodes=small,
    message_bytes=st.integers(1, 2**40),
    dtype=st.sampled_from(Precision),
    protocol=st.builds(CollectiveProtocol, warmup=small, repeats=small, revision=st.integers(1, 3)),
    repeat=st.integers(0, 4),
)
any_run = st.one_of(training_runs, collective_runs)


@bounded
@given(any_run)
def test_every_run_comes_back(run):
    assert decode_run(encode_run(run)) == run
    assert decode_run(canonical_json(run)) == run


@bounded
@given(any_run, any_run)
def test_distinct_runs_have_distinct_identities(one, other):
    assert (run_id(one) == run_id(other)) == (one == other)


#: For each field of a training run, another value than its default.
OTHER = {
    name: getattr(EVERYTHING, name) for name in TrainingRun.__struct_fields__ if name not in ("protocol", "micro_batch")
}


@pytest.mark.parametrize("name", [*OTHER, "micro_batch"])
def test_every_field_counts(name):
    value = OTHER.get(name, 4)
    assert getattr(DEFAULTS, name) != value
    assert run_id(msgspec.structs.replace(DEFAULTS, **{name: value})) != run_id(DEFAULTS)


@bounded
@given(training_runs)
def test_the_canonical_form_holds_what_differs_from_defaults_and_nothing_else(run):
    required = {"model", "hardware", "nodes", "dp", "micro_batch", "global_batch", "kind"}
    differing = {name for name in run.__struct_fields__ if getattr(run, name) != getattr(DEFAULTS, name)}
    optional = {f.name for f in msgspec.structs.fields(TrainingRun) if not f.required}
    assert set(canonical(run)) == required | (differing & optional)


def test_properties_of_a_layout():
    run = EVERYTHING
    assert (run.ranks, run.model_parallel, run.local_batch, run.microbatches) == (32, 16, 32, 32)
    assert run.tokens_per_iteration == 64 * 8192


def test_a_protocol_keeps_at_least_one_iteration():
    with pytest.raises(ValueError, match=r"discard \(10\) must be smaller than iterations \(10\)"):
        Protocol(iterations=10, discard=10)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b'{"kind":"training","model":"m"}', "missing required field `hardware`"),
        (b'{"kind":"inference"}', "Invalid value 'inference'"),
        (canonical_json(DEFAULTS).replace(b'"dp":256', b'"dp":0'), "Expected `int` >= 1 - at `\\$.dp`"),
        (canonical_json(DEFAULTS).replace(b'"dp":256', b'"dq":256'), "unknown field `dq`"),
        (canonical_json(DEFAULTS).replace(b"}", b',"precision":"int8"}'), "Invalid enum value 'int8'"),
    ],
)
def test_what_is_no_run_is_refused(content, complaint):
    with pytest.raises(msgspec.ValidationError, match=complaint):
        decode_run(content)


# -- possible layouts -----------------------------------------------------------------------------------------------

MODEL = Model(name="m", layers=4, hidden=64, heads=8, kv_heads=4, ffn=96, vocabulary=256, source="test")


def _run(**fields):
    dp, tp, pp = (fields.get(name, 1) for name in ("dp", "tp", "pp"))
    defaults = {
        "dp": dp,
        "nodes": max(1, dp * tp * pp // 2),
        "micro_batch": 1,
        "global_batch": 8,
        "sequence_length": 64,
    }
    return TrainingRun(model="m", hardware="part", **{**defaults, **fields})


VIOLATIONS = [
    ({"dp": 3, "nodes": 2, "global_batch": 6}, MODEL,
     "dp*tp*pp (3*1*1 = 3) is not the number of GPUs (2 nodes of 2 = 4)"),
    ({"tp": 8, "sequence_length": 64}, msgspec.structs.replace(MODEL, heads=4, vocabulary=256, kv_heads=4),
     "heads (4) is not divisible by tp (8)"),
    ({"tp": 8}, MODEL, "kv_heads (4) is not divisible by tp (8)"),
    ({"tp": 4}, msgspec.structs.replace(MODEL, ffn=98), "ffn (98) is not divisible by tp (4)"),
    ({"tp": 4}, msgspec.structs.replace(MODEL, vocabulary=254), "vocabulary (254) is not divisible by tp (4)"),
    ({"tp": 4, "sequence_length": 66}, MODEL, "sequence_length (66) is not divisible by tp (4)"),
    ({"pp": 8}, MODEL, "layers (4) is not divisible by pp*virtual_stages (8)"),
    ({"dp": 2, "micro_batch": 3}, MODEL, "global_batch (8) is not divisible by dp*micro_batch (6)"),
    ({"dp": 2, "pp": 4, "global_batch": 4}, MODEL,
     "a pipeline of 4 stages needs at least 4 micro-batches, global_batch/(dp*micro_batch) gives 2"),
    ({"pp": 2, "virtual_stages": 2}, MODEL, "virtual_stages (2) needs the schedule interleaved_1f1b"),
    ({"pp": 2, "schedule": PipelineSchedule.INTERLEAVED}, MODEL,
     "the schedule interleaved_1f1b needs pp > 1 and virtual_stages > 1"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "model", "sentence"), VIOLATIONS, ids=[v[2] for v in VIOLATIONS])
def test_a_broken_invariant_is_said_in_a_sentence(fields, model, sentence):
    found = violations(_run(**fields), model, PART)
    assert sentence in found
    others = [other for other in found if other != sentence]
    assert all("heads" in other for other in others), others  # a tp that divides no heads divides no kv_heads either


@pytest.mark.parametrize(("dp", "tp", "pp"), list(itertools.product((1, 2), (1, 2, 4), (1, 2, 4))))
def test_good_layouts_break_nothing(dp, tp, pp):
    nodes = dp * tp * pp // 2
    if nodes:
        assert violations(_run(dp=dp, tp=tp, pp=pp, nodes=nodes), MODEL, PART) == []


def test_a_good_interleaved_layout_breaks_nothing():
    run = _run(pp=2, virtual_stages=2, schedule=PipelineSchedule.INTERLEAVED)
    assert violations(run, MODEL, PART) == []


@bounded
@given(st.integers(0, 8), st.integers(0, 4), st.integers(0, 4), st.integers(0, 2))
def test_layouts_of_7b_in_powers_of_two_are_possible_where_the_batch_lasts(nodes, tp, pp, micro):
    nodes, tp, pp, micro = 2**nodes, 2**tp, 2**pp, 2**micro
    gpus = nodes * 8
    if gpus % (tp * pp):
        return
    dp = gpus // (tp * pp)
    run = TrainingRun(
        model="llama2-7b", hardware="h100", nodes=nodes, dp=dp, tp=tp, pp=pp, micro_batch=micro, global_batch=gpus * 2
    )
    lasts = (gpus * 2) % (dp * micro) == 0 and (pp == 1 or gpus * 2 // (dp * micro) >= pp)
    catalogue = CONFIG.catalogue
    assert (violations(run, catalogue.models["llama2-7b"], catalogue.hardware["h100"]) == []) == lasts
