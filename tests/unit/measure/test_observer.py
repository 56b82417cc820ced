"""The observer on real gloo ranks: nothing that is computed changes, and what one rank does is seen by all."""

import statistics
import time

import pytest
import torch
import torch.distributed as dist

from scaling_study.measure.arrivals import synchronisation_of
from scaling_study.measure.observer import Observer, observer_of, watched_backend
from scaling_study.spec import Model, Pacing, Protocol
from scaling_study.spec.synchronisation import Cause
from scaling_study.synchronisation.controller import PacingSettings
from scaling_study.training.step import Trainer
from tests.ranks import run_on_ranks
from tests.unit.training.test_step import MODEL, batch, make_run

TINY = Model(name="tiny", layers=1, hidden=16, heads=2, kv_heads=2, ffn=32, vocabulary=256, source="test")
EAGER = PacingSettings(block=1, pairs=1, margin=0.0, rest=1)  # holds in every second iteration from the second on
LATE, DELAY_S, CALM, DELAYED = 5, 0.25, 8, 14


def step_of(trainer, step):
    run = trainer.run
    rows = slice(trainer.replica * run.local_batch, (trainer.replica + 1) * run.local_batch)
    loss = trainer.step(*(part[rows] for part in batch(run, step)))
    return None if loss is None else loss.item()


def losses_of(layout, watched, pacing, steps=6):
    """Losses of a run whose first rank is late, and what its observer saw."""
    run = make_run(*layout, protocol=Protocol(observe_synchronisation=watched), pacing=pacing)
    trainer = Trainer(run, MODEL, torch.device("cpu"), watched_backend(run))
    if not run.is_observed:
        return [step_of(trainer, step) for step in range(steps)], None
    observer = Observer(trainer.mesh, EAGER if pacing is Pacing.ADAPTIVE else None, every=1)
    losses = []
    for step in range(steps):
        with observer.watching(step):
            time.sleep(0.02 if dist.get_rank() == 0 else 0.0)
            losses.append(step_of(trainer, step))
    return losses, observer.finish("host", dist.get_rank())


def test_losses_are_bit_identical_unwatched_watched_and_paced_on_every_axis():
    layout = (2, 2, 2)
    plain = [losses for losses, _ in run_on_ranks(losses_of, 8, layout, False, Pacing.OFF)]
    watched = run_on_ranks(losses_of, 8, layout, True, Pacing.OFF)
    paced = run_on_ranks(losses_of, 8, layout, True, Pacing.ADAPTIVE)
    assert [losses for losses, _ in watched] == plain
    assert [losses for losses, _ in paced] == plain
    found = synchronisation_of([arrivals for _, arrivals in watched], 1)
    assert {one.axis: one.ranks for one in found.axes if one.synchronisations > 1} == {"dp": 2, "tp": 2}
    assert (found.held_s, found.verdicts) == (0.0, [])
    tried = synchronisation_of([arrivals for _, arrivals in paced], 1)
    assert tried.held_s > 0
    assert tried.verdicts


def delayed():
    """Data-parallel training with one rank late in the second part of it; the spread of iterations in the first."""
    run = make_run(8, global_batch=16, protocol=Protocol(observe_synchronisation=True))
    trainer = Trainer(run, TINY, torch.device("cpu"), watched_backend(run))
    observer, taken = observer_of(run, trainer.mesh), []
    for step in range(CALM + DELAYED):
        start = time.perf_counter()
        with observer.watching(step):
            if dist.get_rank() == LATE and step >= CALM:
                time.sleep(DELAY_S)
            step_of(trainer, step)
        taken.append(time.perf_counter() - start)
    return taken[2:CALM], observer.finish("host", dist.get_rank())


@pytest.fixture(scope="module")
def one_late_rank():
    found = run_on_ranks(delayed, 8)
    spread = statistics.stdev(map(max, zip(*(taken for taken, _ in found), strict=True)))
    return spread, synchronisation_of([arrivals for _, arrivals in found], CALM + 2)


def test_a_delayed_rank_of_eight_is_named_and_its_delay_attributed(one_late_rank):
    spread, found = one_late_rank
    if 5 * spread > DELAY_S:
        pytest.skip(f"iterations of this machine spread by {spread:.3f} s, too much for a delay of {DELAY_S} s")
    (axis,) = [one for one in found.axes if one.axis == "dp"]
    worst = max(found.last, key=lambda one: sum(one.lost_s.values()))
    assert worst.rank == LATE
    assert worst.lost_s[Cause.HOST] == pytest.approx(DELAY_S, rel=0.05)
    assert axis.lost_s[Cause.HOST] == max(axis.lost_s.values())
    assert axis.waited_s == pytest.approx(DELAY_S * 7 / 8, rel=0.25)


def test_it_costs_less_than_a_hundredth_of_an_iteration(one_late_rank):
    _, found = one_late_rank
    assert 0 < found.overhead < 0.01
    assert found.clock_error_s == 0.0


def test_the_sample_shows_the_late_rank(one_late_rank):
    _, found = one_late_rank
    arrived = [places[0] for places in found.sample.arrived_s]
    assert max(range(8), key=arrived.__getitem__) == LATE
    assert len(found.sample.ranks) == 8
    assert all(len(places) == found.axes[0].synchronisations for places in found.sample.done_s)


def test_a_run_that_asks_for_nothing_is_not_watched():
    assert watched_backend(make_run(2)) is None
    assert observer_of(make_run(2), None) is None
