"""Sweeps expand into the runs that the study asks for: the grammar, and every sweep of the paper."""

import functools
import itertools
import shutil
from collections import Counter

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from scaling_study.errors import UserError
from scaling_study.spec import (
    AttentionBackend,
    Catalogue,
    CollectiveOp,
    CollectiveRun,
    Config,
    FigureRequest,
    Pacing,
    Precision,
    ReportedPoint,
    Study,
    TrainingRun,
    expand,
    find_training_run,
    run_id,
)
from tests.unit.samples import CONFIG, PART, ROOT, TINY, bounded

WIDE = msgspec.structs.replace(TINY, name="wide", layers=4, hidden=32, heads=4, kv_heads=4)
CATALOGUE = Catalogue(models={"tiny": TINY, "wide": WIDE}, hardware={"part": PART, "other": PART})
BASE = {"model": "wide", "hardware": "part", "micro_batch": 1, "local_batch": 2, "sequence_length": 16}


def _study(text, base=BASE):
    sweep = {"title": "s", **yaml.safe_load(text)}
    return msgspec.convert({"name": "test", "title": "t", "platform": "p", "base": base, "sweeps": {"s": sweep}}, Study)


def _expand(text, base=BASE):
    return expand(_study(text, base), "s", CATALOGUE)


def _layouts(text, base=BASE):
    return [(run.nodes, run.dp, run.tp, run.pp) for run in _expand(text, base)]


# -- grammar --------------------------------------------------------------------------------------------------------


def test_a_base_alone_is_one_run():
    assert _layouts("base: {nodes: 2}") == [(2, 4, 1, 1)]


def test_product_is_every_combination_in_the_order_written():
    text = "product: {nodes: [2, 4], tp: [1, 2]}"
    assert _layouts(text) == [(2, 4, 1, 1), (2, 2, 2, 1), (4, 8, 1, 1), (4, 4, 2, 1)]


def test_zip_goes_element_by_element_and_combines_with_product():
    text = "{zip: {model: [tiny, wide], micro_batch: [1, 2]}, product: {nodes: [1, 2]}}"
    found = [(run.model, run.micro_batch, run.nodes) for run in _expand(text)]
    assert found == [("tiny", 1, 1), ("tiny", 1, 2), ("wide", 2, 1), ("wide", 2, 2)]


def test_a_sweep_overrides_its_study():
    run = _expand("{base: {nodes: 1, local_batch: 4, sequence_length: 32}, product: {micro_batch: [2]}}")[0]
    assert (run.global_batch, run.sequence_length, run.micro_batch) == (8, 32, 2)


@pytest.mark.parametrize(
    ("condition", "left"),
    [
        ({"nodes": 2}, [1, 4, 8]),
        ({"nodes": [2, 8]}, [1, 4]),
        ({"nodes": {"above": 2}}, [1, 2]),
        ({"nodes": {"below": 4}}, [4, 8]),
        ({"nodes": {"above": 1, "below": 8}}, [1, 8]),
        ({"gpus": 16}, [1, 2, 4]),
        ({"gpus": {"above": 4}}, [1, 2]),
        ({"dp": {"below": 5}}, [4, 8]),
        ({"global_batch": 32}, [1, 2, 4]),
        ({"model_parallel": {"above": 1}}, [1, 2, 4, 8]),
        ({"nodes": {"above": 1}, "dp": {"below": 16}}, [1, 8]),
    ],
)
def test_exclude_where_leaves_points_out(condition, left):
    text = yaml.safe_dump({"product": {"nodes": [1, 2, 4, 8]}, "exclude_where": [condition]})
    assert [run.nodes for run in _expand(text)] == left


def test_a_point_goes_if_one_entry_holds_wholly():
    text = "{product: {nodes: [1, 2], tp: [1, 2]}, exclude_where: [{nodes: 1, tp: 2}, {nodes: 2, tp: 1}]}"
    assert _layouts(text) == [(1, 2, 1, 1), (2, 2, 2, 1)]


def test_names_that_the_expansion_derives():
    run = _expand("{base: {nodes: 4, tp: 2, pp: 2, local_batch: 3}}")[0]
    assert (run.dp, run.global_batch) == (2, 24)  # 4 nodes of 2 GPUs; local batch = global batch / GPUs


def test_every_feasible_layout_drops_impossible_points():
    text = "{base: {nodes: 2, model: tiny}, product: {tp: [1, 2, 4], pp: [1, 2, 4]}, every_feasible_layout: true}"
    # tiny has one key-value head and two layers: no tp, and a pipeline of at most two
    assert _layouts(text) == [(2, 4, 1, 1), (2, 2, 1, 2)]


def test_a_part_of_a_node_may_be_asked_for():
    text = "part_of_node: true, base: {nodes: 1, dp: 1, global_batch: 2}"
    assert _layouts(f"{{{text}}}", {**BASE, "local_batch": 2}) == [(1, 1, 1, 1)]
    (run,) = _expand("{part_of_node: true, base: {nodes: 1, dp: 1}, product: {tp: [1]}}")
    assert run.global_batch == 2  # a local batch is of the ranks, not of the node
    with pytest.raises(UserError, match=r"dp\*tp\*pp \(4\*1\*1 = 4\) is not the number of GPUs"):
        _expand("{part_of_node: true, base: {nodes: 1, dp: 4}}")
    with pytest.raises(UserError, match=r"dp\*tp\*pp \(2\*1\*1 = 2\) is not the number of GPUs \(2 nodes of 2 = 4\)"):
        _expand("{part_of_node: true, base: {nodes: 2, dp: 2}}")
    with pytest.raises(UserError, match="is not the number of GPUs"):
        _expand("{base: {nodes: 1, dp: 1}}")


def test_duplicates_are_merged_and_keep_the_first_place():
    assert _layouts("product: {nodes: [2, 1, 2], sequence_length: [16, 16]}") == [(2, 4, 1, 1), (1, 2, 1, 1)]


def test_a_collective_sweep_takes_nothing_from_the_base_of_training():
    product = "{op: [all_reduce, send_recv], nodes: [1, 2], message_bytes: [8, 16]}"
    text = f"{{kind: collective, base: {{hardware: part}}, product: {product}}}"
    runs = _expand(text)
    assert len(runs) == 8
    assert all(isinstance(run, CollectiveRun) for run in runs)
    assert (runs[0].op, runs[0].nodes, runs[0].message_bytes) == (CollectiveOp.ALL_REDUCE, 1, 8)
    assert _expand(text[:-1] + ", exclude_where: [{op: send_recv}, {message_bytes: {above: 8}}]}") == [runs[0], runs[2]]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ("nodes: [1], message_bytes: [10]", "message_bytes (10) cannot be split evenly over 2 ranks of bf16"),
        ("nodes: [2], message_bytes: [12]", "message_bytes (12) cannot be split evenly over 4 ranks of bf16"),
    ],
)
def test_an_impossible_collective_is_an_error(fields, message):
    text = f"{{kind: collective, base: {{hardware: part, op: all_gather}}, product: {{{fields}}}}}"
    with pytest.raises(UserError) as caught:
        _expand(text)
    assert message in str(caught.value)
    assert "exclude_where." in str(caught.value)


def test_a_collective_of_one_rank_is_an_error():
    alone = CATALOGUE.hardware["part"]
    catalogue = Catalogue(models={}, hardware={"part": msgspec.structs.replace(alone, gpus_per_node=1)})
    text = "{kind: collective, base: {hardware: part, op: all_gather}, product: {nodes: [1], message_bytes: [8]}}"
    with pytest.raises(UserError, match=r"at least two ranks, nodes \(1\) gives 1"):
        expand(_study(text), "s", catalogue)


def test_a_protocol_may_be_given_for_a_sweep():
    run = _expand("base: {nodes: 1, protocol: {iterations: 7, discard: 1}}")[0]
    assert (run.protocol.iterations, run.protocol.discard, run.protocol.profiled_iterations) == (7, 1, 3)


@bounded
@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=4),
    st.lists(st.integers(1, 4), min_size=1, max_size=4),
    st.integers(0, 6),
)
def test_expansion_equals_a_plain_loop(nodes, repeats, above):
    sweep = {"product": {"nodes": nodes, "repeat": repeats}, "exclude_where": [{"nodes": {"above": above}}]}
    kept = [(n, r) for n, r in itertools.product(nodes, repeats) if n <= above]
    if kept:
        assert [(run.nodes, run.repeat) for run in _expand(yaml.safe_dump(sweep))] == list(dict.fromkeys(kept))
    else:
        with pytest.raises(UserError, match="no point is left"):
            _expand(yaml.safe_dump(sweep))


# -- mistakes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("base: {nodes: 1, tp: 2, model: tiny}", "impossible layout at base: kv_heads (1) is not divisible"),
        ("{base: {nodes: 2, model: tiny}, product: {tp: [4]}}",
         "impossible layout at tp=4: heads (2) is not divisible by tp (4); kv_heads (1) is not divisible by tp (4). "),
        ("{base: {nodes: 1}, zip: {pp: [1, 2]}, product: {micro_batch: [4]}}", "at pp=1, micro_batch=4: global_batch"),
        ("{base: {nodes: 1}, product: {tp: [3]}}", "2 GPUs are not divisible by tp*pp (3)"),
        ("base: {nodes: 1, pp: 2, micro_batch: 4}", "a pipeline of 2 stages needs at least 2 micro-batches"),
        ("base: {nodes: 1, model: tyni}", "unknown model 'tyni'. Known: tiny, wide. Others go into config/models/."),
        ("base: {nodes: 1, hardware: p}", "unknown hardware 'p'. Known: other, part. Others go into config/hardware/."),
        ("base: {nodes: 1, hardware: [part]}", "unknown hardware ['part']"),
        ("base: {nodes: 1, model: {a: b}}", "unknown model {'a': 'b'}"),
        ("base: {nodes: 1, hardware: null}", "a point names no hardware"),
        ("base: {nodes: 1, tensor: 2}", "unknown key 'tensor'"),
        ("base: {nodes: 1, micro_bach: 2}", "unknown key 'micro_bach'. Did you mean 'micro_batch'?"),
        ("base: {nodes: 1, precision: bf61}", "at precision: invalid enum value 'bf61'"),
        ("base: {nodes: 1, protocol: {iterations: 3}}", "discard (10) must be smaller than iterations (3)"),
        ("base: {nodes: 1, protocol: {iteration: 3}}", "at protocol: unknown key 'iteration'"),
        ("base: {nodes: 0}", "nodes"),
        ("base: {nodes: two}", "nodes"),
        ("base: {nodes: '2'}", "nodes"),
        ("base: {nodes: [1, 2]}", "nodes"),
        ("base: {nodes: 1.5}", "nodes"),
        ("base: {nodes: true}", "nodes"),
        ("base: {nodes: 1, tp: '1'}", "tp"),
        ("base: {nodes: 1, tp: 0}", "tp"),
        ("base: {nodes: 1, pp: null}", "pp"),
        ("base: {nodes: 1, local_batch: many}", "local_batch"),
        ("{}", "nodes"),
        ("{zip: {nodes: [1, 2], repeat: [0]}}", "the lists of zip differ in length ({'nodes': 2, 'repeat': 1})"),
        ("{base: {nodes: 1}, product: {repeat: []}}", "no point is left. Check product, zip and exclude_where."),
        ("{base: {nodes: 1}, zip: {repeat: []}}", "no point is left"),
        ("{base: {nodes: 1}, exclude_where: [{nodes: 1}]}", "no point is left"),
        ("{base: {nodes: 1}, exclude_where: [{node: 1}]}", "exclude_where names 'node', which no point has. Names: "),
        ("{base: {nodes: 1}, exclude_where: [{nodes: {over: 1}}]}", "a condition on 'nodes' has ['over']. Use above"),
        ("{base: {nodes: 1}, exclude_where: [{nodes: {}}]}", "a condition on 'nodes' has nothing"),
        ("{base: {nodes: 1}, exclude_where: [{model: {above: 1}}]}", "'model'"),
        ("{base: {nodes: 1}, exclude_where: [{nodes: {above: one}}]}", "'nodes'"),
        ("base: {nodes: 1, gpus: 16}", "gpus (16)"),
        ("base: {nodes: 1, model_parallel: 2}", "model_parallel (2)"),
        ("base: {nodes: 1, global_batch: 8}", "local_batch (2)"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_sweep_is_one_sentence(text, what):
    with pytest.raises(UserError) as caught:
        _expand(text)
    assert what in str(caught.value)
    assert caught.value.where.startswith("study test, sweep s")
    assert caught.value.remedy


def test_an_unknown_sweep_lists_what_there_is():
    with pytest.raises(UserError, match=r"study test: there is no sweep 't'\. Sweeps: s\."):
        expand(_study("base: {nodes: 1}"), "t", CATALOGUE)


# -- the paper's sweeps ---------------------------------------------------------------------------------------------

PAPER, MINI = CONFIG.study("paper"), CONFIG.study("mini")
DEGREES, MICRO = (1, 2, 4, 8, 16), (1, 2, 4)


@functools.cache
def runs_of(sweep, study="paper"):
    return expand(CONFIG.study(study), sweep, CONFIG.catalogue)


COUNTS = {
    "collectives": 192,
    "data_parallel": 9,
    "model_parallel": 80,
    "model_parallel_small_batch": 31,
    "model_parallel_large_scale": 40,
    "fixed_batch": 104,
    "fixed_batch_pretraining": 394,
    "generations": 111,
    "model_size": 152,
    "context_length": 6,
    "fabric_speed": 26,
    "coordination": 30,
}


@pytest.mark.parametrize(("sweep", "count"), COUNTS.items())
def test_golden_counts(sweep, count):
    assert len(runs_of(sweep)) == count


def test_no_sweep_of_the_paper_is_missing_or_uncounted():
    assert set(PAPER.sweeps) == set(COUNTS)


def layouts(run):
    return (run.tp, run.pp, run.micro_batch)


def possible(gpus, global_batch, *, heads=32, layers=32, degrees=DEGREES):
    """Every (tp, pp, micro-batch) that the batch and the model allow, by brute force."""
    return {
        (tp, pp, micro)
        for tp, pp, micro in itertools.product(degrees, degrees, MICRO)
        if tp * pp <= 16
        and gpus % (tp * pp) == 0
        and heads % tp == 0
        and layers % pp == 0
        and global_batch % (gpus // (tp * pp) * micro) == 0
        and (pp == 1 or global_batch // (gpus // (tp * pp) * micro) >= pp)
    }


def test_everything_but_collectives_shares_the_setting_of_the_paper():
    for sweep in set(PAPER.sweeps) - {"collectives"}:
        for run in runs_of(sweep):
            assert isinstance(run, TrainingRun)
            assert run.sequence_length == 4096 or sweep == "context_length"
            assert run.precision is (Precision.FP16 if run.hardware == "v100" else Precision.BF16)
            assert run.attention is AttentionBackend.XFORMERS
            assert not run.reshard_after_forward
            protocol = run.protocol
            assert (protocol.iterations, protocol.discard, protocol.data) == (60, 10, "wikipedia-stackexchange")
            assert run.model == "llama2-7b" or sweep in ("model_size", "fixed_batch_pretraining")


def test_data_parallel_goes_from_8_to_2048_gpus_at_a_local_batch_of_2():
    runs = runs_of("data_parallel")
    assert [run.ranks for run in runs] == [8, 16, 32, 64, 128, 256, 512, 1024, 2048]
    for run in runs:
        assert (run.hardware, run.dp, run.tp, run.pp) == ("h100", run.ranks, 1, 1)
        assert (run.micro_batch, run.local_batch, run.global_batch) == (2, 2, 2 * run.ranks)


@pytest.mark.parametrize("hardware", ["h100", "a100"])
def test_model_parallel_has_every_possible_layout(hardware):
    runs = [run for run in runs_of("model_parallel") if run.hardware == hardware]
    assert {layouts(run) for run in runs} == possible(256, 512)
    assert len(runs) == len(possible(256, 512)) == 40
    assert {(run.ranks, run.global_batch) for run in runs} == {(256, 512)}
    assert {(run.tp, run.pp) for run in runs} == {(t, p) for t in DEGREES for p in DEGREES if t * p <= 16}


@pytest.mark.parametrize(
    ("sweep", "gpus", "global_batch"),
    [("model_parallel_small_batch", 256, 256), ("model_parallel_large_scale", 2048, 4096)],
)
def test_model_parallel_in_other_settings(sweep, gpus, global_batch):
    runs = runs_of(sweep)
    assert {layouts(run) for run in runs} == possible(gpus, global_batch)
    assert {(run.hardware, run.ranks, run.global_batch) for run in runs} == {("h100", gpus, global_batch)}


def test_fixed_batch_keeps_32_sequences_on_2_to_32_nodes():
    runs = runs_of("fixed_batch")
    assert {run.global_batch for run in runs} == {32}
    for nodes in (2, 4, 8, 16, 32):
        assert {layouts(run) for run in runs if run.nodes == nodes} == possible(nodes * 8, 32)
    on_32_nodes = {run.model_parallel for run in runs if run.nodes == 32}
    assert on_32_nodes == {8, 16}  # 32 sequences feed at most 32 replicas


def test_fixed_batch_pretraining_has_two_models_two_batches_three_scales():
    runs = runs_of("fixed_batch_pretraining")
    for model, batch, gpus in itertools.product(("llama2-7b", "llama2-70b"), (1024, 2048), (512, 1024, 2048)):
        degrees = {"heads": 8, "layers": 80} if model == "llama2-70b" else {}
        found = {layouts(r) for r in runs if (r.model, r.global_batch, r.ranks) == (model, batch, gpus)}
        assert found == possible(gpus, batch, **degrees), (model, batch, gpus)


def test_generations_differ_in_precision_and_batch():
    runs = runs_of("generations")
    settings = {(run.hardware, run.precision, run.global_batch) for run in runs}
    assert settings == {("v100", "fp16", 256), ("a100", "bf16", 512), ("h100", "bf16", 512)}
    for hardware, batch in (("v100", 256), ("a100", 512), ("h100", 512)):
        assert {layouts(run) for run in runs if run.hardware == hardware} == possible(256, batch)


def test_generations_share_runs_with_model_parallel():
    shared = {run_id(run) for run in runs_of("generations")} & {run_id(run) for run in runs_of("model_parallel")}
    assert len(shared) == 80


def test_model_size_has_the_layouts_that_each_model_allows():
    runs = runs_of("model_size")
    shape = {"llama2-1b": (16, 16), "llama2-7b": (32, 32), "llama2-13b": (40, 40), "llama2-70b": (8, 80)}
    for model, (heads, layers) in shape.items():
        found = {layouts(run) for run in runs if run.model == model}
        assert found == possible(256, 512, heads=heads, layers=layers)
    assert max(run.tp for run in runs if run.model == "llama2-70b") == 8  # as many as key-value heads
    assert {run.pp for run in runs if run.model == "llama2-13b"} == {1, 2, 4, 8}  # 40 layers, not by 16


def test_context_length_sweeps_sequences_on_256_gpus():
    runs = runs_of("context_length")
    assert [run.sequence_length for run in runs] == [1024, 2048, 4096, 8192, 16384, 32768]
    assert {(run.ranks, run.dp, run.micro_batch, run.global_batch) for run in runs} == {(256, 256, 1, 256)}


def test_collectives_cover_three_operations_4_to_512_nodes_1_mib_to_16_gib():
    runs = runs_of("collectives")
    assert {run.op for run in runs} == {"all_reduce", "all_gather", "reduce_scatter"}
    assert {run.nodes for run in runs} == {4, 8, 16, 32, 64, 128, 256, 512}
    sizes = sorted({run.message_bytes for run in runs})
    assert (sizes[0], sizes[-1]) == (2**20, 16 * 2**30)
    assert {larger // smaller for smaller, larger in itertools.pairwise(sizes)} == {4}
    assert 64 * 2**20 in sizes  # a claim is made at 64 MiB and at 1 GiB
    assert 2**30 in sizes


def test_fabric_speed_changes_network_and_node_size():
    runs = runs_of("fabric_speed")
    gpus = {name: [] for name in CONFIG.catalogue.hardware}
    for run in runs:
        gpus[run.hardware].append(run.ranks)
        assert (run.tp, run.pp, run.micro_batch, run.global_batch) == (1, 1, 2, 2 * run.ranks)
    for hardware in ("h100-ib100", "h100-ib200", "h100", "h100-roce400"):
        assert gpus[hardware] == [8, 32, 128, 512, 2048]
    assert gpus["h100-nvl72"] == [72, 144, 288, 576, 1008, 2016]


def test_coordination_is_observed_with_and_without_pacing_five_times():
    assert all(run.is_observed and run.protocol.discard == 10 for run in runs_of("coordination"))
    counts = Counter((run.nodes, run.pacing) for run in runs_of("coordination"))
    assert counts == dict.fromkeys(itertools.product((4, 8, 16), (Pacing.OFF, Pacing.ADAPTIVE)), 5)


def test_what_the_paper_leaves_open_is_marked():
    for name in ("model_parallel", "fixed_batch_pretraining", "model_size", "context_length", "fabric_speed"):
        assert PAPER.sweeps[name].assumptions


def mini_runs():
    """Every run of the mini study once."""
    return {run_id(run): run for sweep in MINI.sweeps for run in runs_of(sweep, "mini")}


def test_mini_has_every_sweep_that_a_machine_can_measure():
    assert set(MINI.sweeps) == set(PAPER.sweeps) - {"fabric_speed"}
    scaling = runs_of("data_parallel", "mini")
    assert [(run.ranks, run.global_batch) for run in scaling] == [(1, 2), (2, 4), (4, 8)]
    grid = {(run.tp, run.pp) for run in runs_of("model_parallel", "mini")}
    assert grid == {(tp, pp) for tp in (1, 2, 4) for pp in (1, 2, 4) if tp * pp <= 4}
    assert {run.precision for run in runs_of("generations", "mini")} == {"fp16", "bf16", "fp32"}
    assert {run.op for run in runs_of("collectives", "mini")} == set(CollectiveOp)


def test_mini_stays_small():
    runs = mini_runs().values()
    pairs = runs_of("coordination", "mini")
    assert len(runs) - len(pairs) <= 40
    assert Counter((run.nodes, run.pacing) for run in pairs) == {
        (nodes, pacing): repeats for nodes, repeats in ((2, 2), (4, 10)) for pacing in Pacing
    }
    assert {run.hardware for run in runs} == {"cpu"}
    large = [run for run in runs if run.nodes > 4]
    assert [(run.dp, run.tp, run.pp) for run in large] == [(2, 2, 2)]


def test_mini_draws_the_figures_that_are_drawn_from_measurements():
    numbers = {int(name[4:6]) for name in MINI.figures if name.startswith("hst")}
    assert numbers == {1, *range(3, 10), *range(11, 15)}
    assert {name for name in MINI.figures if name.startswith("wsf")} == {"wsf-01", "wsf-02", "wsf-05"}
    assert {"hst-table1", "wsf-pairs"} <= set(MINI.tables)


# -- cosmetic edits -------------------------------------------------------------------------------------------------


def _comments(text):
    return "# a comment\n\n" + text.replace("\nsweeps:", "\n# another\n\nsweeps:  # here too\n")


def _quoted(text):
    return text.replace("precision: bf16", 'precision: "bf16"').replace("model: llama2-7b", "'model': 'llama2-7b'")


def _reordered(text):
    def back(value):
        return {key: back(value[key]) for key in reversed(value)} if isinstance(value, dict) else value

    content = yaml.safe_load(text)
    sweeps = {
        name: {k: v if k in ("product", "zip") else back(v) for k, v in s.items()}
        for name, s in content["sweeps"].items()
    }
    return yaml.safe_dump({**back(content), "sweeps": sweeps}, sort_keys=False)


def _block_style(text):
    return yaml.safe_dump(yaml.safe_load(text), default_flow_style=False, sort_keys=False, indent=6, width=40)


@pytest.mark.parametrize("edit", [_comments, _quoted, _reordered, _block_style])
def test_cosmetic_edits_of_a_study_change_no_run(edit, tmp_path):
    text = (ROOT / "config" / "studies" / "paper.yaml").read_text()
    edited = edit(text)
    assert edited != text
    (tmp_path / "studies").mkdir()
    (tmp_path / "studies" / "paper.yaml").write_text(edited)
    shutil.copytree(ROOT / "config" / "reported", tmp_path / "reported")
    study = Config(tmp_path).study("paper")
    for sweep in PAPER.sweeps:
        found = [run_id(run) for run in expand(study, sweep, CONFIG.catalogue)]
        assert found == [run_id(run) for run in runs_of(sweep)]


# -- figures and tables ---------------------------------------------------------------------------------------------


def test_a_study_knows_what_its_figures_and_tables_draw():
    mini = CONFIG.study("mini")
    assert mini.figure("hst-05").sweep == "model_parallel"
    assert mini.table("layouts").sweep == "model_parallel"


@pytest.mark.parametrize(("what", "known"), [("figure", "hst-01, hst-03a, hst-03b, hst-04"), ("table", "layouts")])
def test_an_unknown_figure_or_table_lists_those_that_there_are(what, known):
    with pytest.raises(UserError) as caught:
        getattr(CONFIG.study("mini"), what)("zzz")
    assert str(caught.value).startswith(f"study mini: there is no {what} 'zzz'. {what.capitalize()}s: {known}")
    with pytest.raises(UserError, match=f"{what.capitalize()}s: none"):
        getattr(_study("base: {nodes: 1}"), what)("zzz")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "either the records of a sweep or `of` something else"),
        ({"sweep": "one", "of": "hardware"}, "either the records of a sweep or `of` something else"),
        ({"of": "validation", "timelines": ["run"]}, "timelines are of runs of a sweep"),
    ],
)
def test_a_figure_shows_one_thing(fields, said):
    with pytest.raises(msgspec.ValidationError, match=said):
        msgspec.convert(fields, FigureRequest)


@pytest.mark.parametrize(
    "fields", [{}, {"value": 1.0, "change": 0.1}, {"change": 0.1}, {"value": 1.0, "since": {"a": 1}}]
)
def test_a_reported_point_has_a_value_or_a_change(fields):
    base = {"sweep": "one", "where": {"gpus": 8}, "metric": "mfu", "source": "page 1"}
    with pytest.raises(msgspec.ValidationError, match="a value, or a change and what it is since"):
        msgspec.convert({**base, **fields}, ReportedPoint)


def test_timelines_of_the_paper_study_are_of_its_runs():
    for figure in PAPER.figures.values():
        for run in figure.timelines:
            assert find_training_run(PAPER, run, CONFIG.catalogue)
            assert run in {run_id(one) for one in runs_of(figure.sweep)}
