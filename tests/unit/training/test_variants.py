"""Every variant of training equals the plain path."""

import collections

import pytest
import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

from scaling_study.spec import ActivationCheckpointing, AttentionBackend, PipelineSchedule, Precision, Protocol
from scaling_study.training.gradients import clip_by_global_norm
from scaling_study.training.initialise import initialise
from scaling_study.training.model import Llama
from scaling_study.training.step import Trainer, token_loss
from tests.ranks import run_on_ranks
from tests.unit.training.test_step import MODEL, STEPS, batch, combine, make_run, reference, train

__all__ = ["reference"]
CPU = torch.device("cpu")
INTERLEAVED = {"schedule": PipelineSchedule.INTERLEAVED, "virtual_stages": 2}


def assert_equal_to(reference, run):
    losses, gradients = combine(run_on_ranks(train, run.ranks, run))
    torch.testing.assert_close(losses, reference[0], rtol=1e-5, atol=0)
    assert gradients.keys() == reference[1].keys()
    for name, expected in reference[1].items():
        torch.testing.assert_close(gradients[name], expected, rtol=0, atol=1e-6, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize(("dp", "micro_batch"), [(1, 1), (2, 1)])
def test_accumulation(reference, dp, micro_batch):
    assert_equal_to(reference, make_run(dp, micro_batch=micro_batch))


@pytest.mark.parametrize("kind", [ActivationCheckpointing.FULL, ActivationCheckpointing.SELECTIVE])
@pytest.mark.parametrize("layout", [(2, 2, 1), (1, 1, 2)])
def test_checkpointing(reference, kind, layout):
    assert_equal_to(reference, make_run(*layout, activation_checkpointing=kind))


@pytest.mark.parametrize("layout", [(1, 1, 2), (1, 2, 2)])
def test_interleaving(reference, layout):
    micro_batch = 1 if layout[0] == 2 else 2
    assert_equal_to(reference, make_run(*layout, micro_batch=micro_batch, **INTERLEAVED))


def test_interleaving_with_checkpointing_and_resharding(reference):
    kind = ActivationCheckpointing.SELECTIVE
    run = make_run(2, 1, 2, micro_batch=1, activation_checkpointing=kind, reshard_after_forward=True, **INTERLEAVED)
    assert_equal_to(reference, run)


class Counter(TorchDispatchMode):
    """Counts operators that are computed; what a checkpoint kept does not get here."""

    def __init__(self):
        super().__init__()
        self.counts = collections.Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.counts[func._schema.name] += 1
        return func(*args, **(kwargs or {}))


def count_operators(run):
    """How often each operator is computed in one step."""
    trainer = Trainer(run, MODEL, CPU)
    with Counter() as counter:
        trainer.step(*batch(run, 0))
    return dict(counter.counts)


def test_what_is_computed_again():
    kinds = list(ActivationCheckpointing)
    runs = {kind: make_run(micro_batch=8, activation_checkpointing=kind) for kind in kinds}
    counts = {kind: run_on_ranks(count_operators, 1, run)[0] for kind, run in runs.items()}
    plain, selective, full = (counts[kind] for kind in kinds)
    attention = "aten::_scaled_dot_product_flash_attention_for_cpu"
    layers = MODEL.layers
    assert (plain["aten::silu"], selective["aten::silu"], full["aten::silu"]) == (layers, 2 * layers, 2 * layers)
    assert (plain[attention], selective[attention], full[attention]) == (layers, layers, 2 * layers)
    # a block has seven products; the early stop of a full recomputation skips the last, which nothing needs
    assert plain["aten::mm"] == selective["aten::mm"] == 3 * (7 * layers + 1)
    assert full["aten::mm"] == plain["aten::mm"] + 6 * layers


def clipped_reference(maximum):
    """Losses and gradient norms of the plain model in one process."""
    run = make_run()
    stage = Llama(MODEL, run.sequence_length)
    initialise(stage, CPU)
    optimizer = torch.optim.AdamW(stage.parameters(), lr=run.protocol.learning_rate)
    losses, norms = [], []
    for step in range(STEPS):
        optimizer.zero_grad()
        tokens, target = batch(run, step)
        loss = token_loss(stage(tokens), target)
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(stage.parameters(), maximum).item())
        optimizer.step()
        losses.append(loss.item())
    return losses, norms


def clip_and_train(run):
    """Losses, norms before clipping and after, on this rank."""
    trainer, maximum = Trainer(run, MODEL, CPU), run.protocol.max_gradient_norm
    losses, norms, after = [], [], []
    for step in range(STEPS):
        rows = slice(trainer.replica * run.local_batch, (trainer.replica + 1) * run.local_batch)
        trainer.optimizer.zero_grad(set_to_none=True)
        loss = trainer.forward_backward(*(part[rows] for part in batch(run, step)))
        norms.append(clip_by_global_norm(trainer.stages.parameters(), maximum, trainer.mesh).item())
        after.append(clip_by_global_norm(trainer.stages.parameters(), 1e9, trainer.mesh).item())
        trainer.optimizer.step()
        losses.append(None if loss is None else loss.item())
    return trainer.replica, losses, norms, after


@pytest.mark.parametrize("layout", [(1, 1, 1), (2, 2, 2)])
def test_clipping_by_the_norm_over_all_ranks(layout):
    maximum = 0.05
    expected_losses, expected_norms = clipped_reference(maximum)
    assert min(expected_norms) > 2 * maximum
    run = make_run(*layout, protocol=Protocol(max_gradient_norm=maximum))
    results = run_on_ranks(clip_and_train, run.ranks, run)
    for _, _, norms, after in results:
        assert norms == pytest.approx(expected_norms, rel=1e-4)
        assert after == pytest.approx([maximum] * STEPS, rel=1e-4)
    per_replica = {replica: losses for replica, losses, _, _ in results if losses[0] is not None}
    mean = torch.tensor(list(per_replica.values())).mean(0)
    torch.testing.assert_close(mean.tolist(), expected_losses, rtol=1e-5, atol=0)


@pytest.mark.parametrize(
    ("layout", "fields"),
    [((1, 1, 1), {}), ((2, 2, 1), {}), ((1, 1, 2), INTERLEAVED)],
)
def test_fp16_stays_within_its_precision(reference, layout, fields):
    run = make_run(*layout, precision=Precision.FP16, **fields)
    losses, gradients = combine(run_on_ranks(train, run.ranks, run))
    torch.testing.assert_close(losses, reference[0], rtol=2e-3, atol=0)
    for name, expected in reference[1].items():
        error = (gradients[name] - expected).norm() / expected.norm()
        assert error < 0.02, f"{name}: {error}"


def overflow_on_one_rank(run):
    """Whether parameters change when one rank has an infinite gradient, and when none has; the loss scale."""
    trainer = Trainer(run, MODEL, CPU)
    rows = slice(trainer.replica * run.local_batch, (trainer.replica + 1) * run.local_batch)
    changed, scales = [], [trainer.scaler.scale]
    for step, poisoned_rank in enumerate((0, None)):
        before = [p.detach().clone() for p in trainer.stages.parameters()]
        trainer.optimizer.zero_grad(set_to_none=True)
        trainer.forward_backward(*(part[rows] for part in batch(run, step)))
        if dist.get_rank() == poisoned_rank:
            gradient = next(iter(trainer.stages.parameters())).grad
            getattr(gradient, "to_local", lambda g=gradient: g)().view(-1)[0] = float("inf")
        trainer.update()
        after = list(trainer.stages.parameters())
        changed.append(
            any(not torch.equal(a.full_tensor(), b.full_tensor()) for a, b in zip(before, after, strict=True))
        )
        scales.append(trainer.scaler.scale)
    return changed, scales


@pytest.mark.parametrize("layout", [(1, 1, 2), (2, 2, 1)])
def test_fp16_no_rank_updates_where_one_overflows(layout):
    run = make_run(*layout, precision=Precision.FP16)
    for changed, scales in run_on_ranks(overflow_on_one_rank, run.ranks, run):
        assert changed == [False, True]
        assert scales == [2.0**16, 2.0**15, 2.0**15]


@pytest.mark.parametrize("backend", [AttentionBackend.SDPA_FLASH, AttentionBackend.SDPA_MATH])
def test_attention_kernels_agree(reference, backend):
    assert_equal_to(reference, make_run(attention=backend))


def fails(run):
    """The error of a first step."""
    try:
        Trainer(run, MODEL, CPU).step(*batch(run, 0))
    except (RuntimeError, ImportError, NotImplementedError) as error:
        return type(error).__name__
    return "nothing"


@pytest.mark.parametrize(
    "backend", [AttentionBackend.SDPA_EFFICIENT, AttentionBackend.SDPA_CUDNN, AttentionBackend.XFORMERS]
)
def test_a_missing_attention_backend_fails_and_nothing_takes_its_place(backend):
    assert run_on_ranks(fails, 1, make_run(attention=backend))[0] != "nothing"


def count_collectives(run):
    """How often a rank gathers parameters and reduces gradients in its second step."""
    trainer = Trainer(run, MODEL, CPU)
    rows = slice(trainer.replica * run.local_batch, (trainer.replica + 1) * run.local_batch)
    parts = [part[rows] for part in batch(run, 0)]
    trainer.step(*parts)
    with Counter() as counter:
        trainer.step(*parts)
    return counter.counts["c10d::_allgather_base_"], counter.counts["c10d::_reduce_scatter_base_"]


@pytest.mark.parametrize("microbatches", [1, 4])
@pytest.mark.parametrize("reshard", [False, True])
def test_how_often_parameters_are_gathered(microbatches, reshard):
    """One unit a block and one for the ends; without resharding, once a step however many micro-batches there are."""
    units = MODEL.layers + 1
    run = make_run(2, micro_batch=4 // microbatches, reshard_after_forward=reshard)
    gathers = 2 * units * microbatches if reshard else units
    assert run_on_ranks(count_collectives, 2, run) == [(gathers, units)] * 2
