"""The controller of pacing: its bound, its response in closed form, and hundreds of simulated runs."""

import itertools
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling_study.synchronisation.controller import PacingController, PacingSettings, Phase, helped

SEEDS = 200
PLACES = 4


def always_on(**settings):
    """A controller in a trial with holds that does not end, at a reference of one second."""
    controller = PacingController(1, PacingSettings(block=1, pairs=1000, margin=0.0, **settings))
    controller.observe(0.0, 1.0)
    return controller


def test_a_step_of_slack_is_followed_by_two_filters_in_a_row():
    controller, gain = always_on(gain=0.25, bound=0.5), 0.25
    for step in range(1, 30):
        controller.observe(0.1, 1.0)
        response = 1 - (1 - gain) ** step * (1 + step * gain)  # poles 1 - g, twice, of a unit step
        assert controller._wanted_s == pytest.approx(0.1 * response, rel=1e-9)
    assert controller._wanted_s > 0.09


@given(st.floats(0.01, 1.0), st.floats(0.0, 0.4))
def test_it_does_not_overshoot_for_any_gain(gain, slack):
    controller = always_on(gain=gain, bound=0.5)
    for _ in range(200):
        controller.observe(slack, 1.0)
        assert controller._wanted_s <= slack * (1 + 1e-12)


@given(st.lists(st.tuples(st.floats(0, 1e3), st.floats(1e-6, 1e3)), min_size=1, max_size=120), st.floats(0, 0.5))
def test_holds_of_an_iteration_are_bounded_whatever_arrives(seen, bound):
    controller = PacingController(PLACES, PacingSettings(bound=bound, block=2, pairs=2, rest=3))
    for slack, iteration in seen:
        controller.observe(slack, iteration)
        assert 0 <= controller.hold_s * PLACES <= bound * max(one for _, one in seen) * (1 + 1e-12)


@pytest.mark.parametrize("wrong", [{"gain": 0.0}, {"gain": 1.5}, {"bound": 1.0}, {"block": 0}, {"rest": 0}])
def test_settings_that_cannot_be_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        PacingSettings(**wrong)


def test_it_holds_nothing_back_before_it_has_seen_iterations_without():
    controller = PacingController(1)
    assert (controller.hold_s, controller.limit_s, controller.phase) == (0.0, 0.0, Phase.WITHOUT)


def test_trials_alternate_and_a_rejection_rests_twice_as_long_each_time():
    controller = PacingController(1, PacingSettings(block=2, pairs=2, rest=4))
    phases = []
    for _ in range(60):
        phases.append(controller.phase)
        controller.observe(0.1, 1.0)
    runs = [(phase, len(list(same))) for phase, same in itertools.groupby(phases)]
    trial = [(Phase.WITHOUT, 2), (Phase.WITH, 2)] * 2
    assert runs[:5] == [*trial, (Phase.REJECTED, 4)]
    assert runs[5:10] == [*trial, (Phase.REJECTED, 8)]
    assert runs[10:15] == [*trial, (Phase.REJECTED, 16)]
    assert [one.iteration for one in controller.verdicts] == [8, 20, 36, 60]


def test_news_of_an_iteration_of_the_phase_before_counts_for_no_trial():
    controller = PacingController(1, PacingSettings(block=2, pairs=1, rest=4))
    for iteration_s, paced in ((1.0, False), (1.0, False), (9.0, False), (2.0, True), (2.0, True)):
        controller.observe(0.1, iteration_s, paced=paced)
    (verdict,) = controller.verdicts
    assert (verdict.mean_without_s, verdict.mean_with_s, verdict.kept) == (1.0, 2.0, False)


@pytest.mark.parametrize(
    ("without", "with_holds", "kept"),
    [
        ([1.0, 1.02, 0.98, 1.0], [0.9, 0.91, 0.89, 0.9], True),
        ([1.0, 1.02, 0.98, 1.0], [1.0, 1.02, 0.98, 1.0], False),
        ([1.0, 1.3, 0.7, 1.0], [1.0, 1.01, 0.99, 1.0], True),  # as long, and steadier
        ([1.0, 1.3, 0.7, 1.0], [1.05, 1.05, 1.05, 1.05], False),  # steadier, and longer
        ([1.0, 1.6, 0.4, 1.0], [0.95, 1.5, 0.4, 0.95], False),  # shorter by less than noise
    ],
)
def test_what_counts_as_a_help(without, with_holds, kept):
    assert helped(without, with_holds, PacingSettings()) is kept


# -- simulated runs ---------------------------------------------------------------------------------------------------


def slow_rank(random, iterations, ranks):
    work = 1 + random.normal(0, 0.005, (iterations, ranks))
    work[:, 2] += 0.2
    return work


def periodic(random, iterations, ranks):
    work = 1 + random.normal(0, 0.005, (iterations, ranks))
    for start in range(ranks):
        work[start :: 2 * ranks, start] += 0.1
    return work


def jitter(random, iterations, ranks):
    return 1 + random.gamma(1.0, 0.02, (iterations, ranks))


def bursts(random, iterations, ranks):
    work = 1 + random.normal(0, 0.005, (iterations, ranks))
    return work + (random.random((iterations, 1)) < 0.1) * random.exponential(0.2, (iterations, ranks))


SCENARIOS = {"slow rank": slow_rank, "periodic": periodic, "jitter": jitter, "bursts": bursts}


def simulate(work, contention, settings, one_each=False):
    """Iteration times with and without pacing, and the controllers; early ranks slow the transfer by `contention`.

    Ranks synchronise once an iteration. The transfer takes 0.3 s, and longer in proportion to the mean time by which
    ranks enter before the last one. One controller stands for all ranks; with `one_each` each has its own as well.
    """
    iterations, ranks = work.shape
    controllers = [PacingController(1, settings) for _ in range(ranks)] if one_each else []
    every = PacingController(1, settings)
    paced, plain, held = [], [], []

    def iteration(entered):
        early = float((entered.max() - entered).mean())
        return float(entered.max()) + 0.3 + contention * early

    for step in range(iterations):
        holds = np.broadcast_to(every.hold_s, ranks)
        assert not controllers or np.array_equal(holds, [one.hold_s for one in controllers])
        held.append(holds)
        plain.append(iteration(work[step]))
        paced.append(iteration(work[step] + holds))
        every.observe(work[step].max() - work[step], paced[-1])
        for rank, one in enumerate(controllers):
            one.observe(float(work[step].max() - work[step, rank]), paced[-1])
    return np.array(plain), np.array(paced), np.array(held), every


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_where_early_ranks_do_no_harm_pacing_costs_next_to_nothing(scenario):
    costs = []
    for seed in range(SEEDS):
        work = SCENARIOS[scenario](np.random.default_rng(seed), 120, 8)
        plain, paced, held, _ = simulate(work, 0.0, PacingSettings())
        costs.append(paced.mean() / plain.mean() - 1)
        assert (paced >= plain - 1e-12).all()
        assert (paced - plain <= held.max(axis=1) + 1e-12).all()
        assert held.max() <= 0.05 * np.median(plain) * 1.5
    assert statistics.fmean(costs) < 0.002
    assert max(costs) < 0.01


def test_where_it_cannot_help_it_is_off_most_of_the_time():
    on = []
    for seed in range(SEEDS):
        work = jitter(np.random.default_rng(seed), 300, 8)
        *_, held, _ = simulate(work, 0.0, PacingSettings())
        on.append(float((held.max(axis=1) > 0).mean()))
    assert statistics.fmean(on) < 0.3


def test_where_early_ranks_slow_the_transfer_it_stays_on_and_helps():
    gains, kept = [], 0
    for seed in range(SEEDS):
        work = slow_rank(np.random.default_rng(seed), 120, 8)
        plain, paced, _, controller = simulate(work, 1.0, PacingSettings())
        gains.append(1 - paced.mean() / plain.mean())
        kept += controller.verdicts[0].kept
    assert kept > 0.95 * SEEDS
    assert statistics.fmean(gains) > 0.015
    assert max(gains) < 0.05  # no more than the bound could bring


def test_the_slow_rank_itself_is_never_held():
    for seed in range(SEEDS):
        *_, held, _ = simulate(slow_rank(np.random.default_rng(seed), 60, 8), 1.0, PacingSettings())
        assert held[:, 2].max() == 0
        assert held[:, [0, 1, 3]].max() > 0


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_ranks_with_a_controller_each_do_what_one_for_all_does(scenario):
    simulate(SCENARIOS[scenario](np.random.default_rng(1), 80, 8), 0.5, PacingSettings(), one_each=True)
