"""What runs would take on a platform: every number in closed form, and a bound where nothing is predicted."""

import msgspec
import pytest

from scaling_study.predict.forecasts import Forecast
from scaling_study.spec import (
    Catalogue,
    CollectiveOp,
    CollectiveRun,
    Executor,
    Outcome,
    Platform,
    SlurmSettings,
    Sourced,
    run_id,
)
from scaling_study.submit.cost import Cost, cost_of, costs_of, total
from tests.unit.samples import PART, TINY, training_run

EIGHT = msgspec.structs.replace(PART, gpus_per_node=8, power_limit_w=Sourced(700.0, "s"))
CATALOGUE = Catalogue(models={"tiny": TINY}, hardware={"part": EIGHT})
SLURM = SlurmSettings(
    partition="main", nodes=16, nodes_at_once=8, most_minutes=240, start_up_minutes=6.0, price_per_gpu_hour=2.0
)
LOCAL = Platform(name="it", title="t", executor=Executor.LOCAL, hardware="part", run_limit_s=3600.0)
CLUSTER = msgspec.structs.replace(LOCAL, executor=Executor.SLURM, slurm=SLURM)
#: 5 timed and 2 profiled iterations on 32 ranks
RUN = training_run(dp=32, nodes=4, global_batch=32)
#: 5 calls thrown away and 20 timed on two nodes of 8
CALLS = CollectiveRun(op=CollectiveOp.ALL_REDUCE, hardware="part", nodes=2, message_bytes=1024)


def forecast(run=RUN, outcome=Outcome.OK, **metrics):
    return Forecast(run=run, outcome=outcome, metrics=metrics, extrapolated=False)


def platform(**fields):
    return msgspec.structs.replace(CLUSTER, slurm=msgspec.structs.replace(SLURM, **fields))


def approximately(cost):
    fields = msgspec.structs.asdict(cost)
    return Cost(**{name: None if value is None else pytest.approx(value) for name, value in fields.items()})


def test_a_predicted_run_takes_its_start_up_and_its_iterations():
    found = cost_of(RUN, forecast(iteration_s=120.0, power_w_per_gpu=500.0), CLUSTER, CATALOGUE)
    assert found == approximately(
        Cost(
            runs=1, bounded=0,
            gpu_hours=32 * (0.1 + 7 * 120 / 3600),
            node_hours=4 * (0.1 + 7 * 120 / 3600),
            longest_s=360 + 840,
            energy_kwh=32 * 0.5 * 7 * 120 / 3600,
            price=2 * 32 * (0.1 + 7 * 120 / 3600),
        )
    )  # fmt: skip


def test_a_predicted_collective_takes_its_calls_at_the_power_limit():
    found = cost_of(CALLS, forecast(CALLS, call_s=36.0), CLUSTER, CATALOGUE)
    assert found == approximately(
        Cost(
            runs=1, gpu_hours=16 * (0.1 + 0.25), node_hours=2 * (0.1 + 0.25), longest_s=360 + 900,
            energy_kwh=16 * 0.7 * 0.25, price=2 * 16 * 0.35,
        )
    )  # fmt: skip


def test_a_run_that_is_predicted_not_to_fit_takes_its_start_up():
    found = cost_of(RUN, forecast(outcome=Outcome.OUT_OF_MEMORY, peak_memory_gib=99.0), CLUSTER, CATALOGUE)
    assert (found.bounded, found.energy_kwh, found.longest_s) == (0, 0.0, 360.0)
    assert found.gpu_hours == pytest.approx(3.2)


def test_without_a_prediction_the_limit_of_a_run_and_of_power_stand_in():
    found = cost_of(RUN, None, CLUSTER, CATALOGUE)
    assert found == approximately(
        Cost(runs=1, bounded=1, gpu_hours=35.2, node_hours=4.4, longest_s=3960.0, energy_kwh=32 * 0.7, price=70.4)
    )


def test_a_bound_is_not_below_what_a_job_is_given():
    from scaling_study.submit.slurm.request import wall_minutes

    assert cost_of(RUN, None, CLUSTER, CATALOGUE).longest_s >= 60 * wall_minutes(CLUSTER, None)


def test_fewer_ranks_a_node_take_more_nodes_for_the_same_gpus():
    whole, half = (
        cost_of(RUN, forecast(iteration_s=1.0), platform(tasks_per_node=each), CATALOGUE) for each in (None, 4)
    )
    assert half.node_hours == pytest.approx(2 * whole.node_hours)
    assert half.gpu_hours == whole.gpu_hours


def test_a_part_of_a_node_is_a_node():
    two = training_run(dp=2, nodes=1)
    found = cost_of(two, forecast(two, iteration_s=1.0), CLUSTER, CATALOGUE)
    assert found.node_hours == pytest.approx(found.gpu_hours / 2)


def test_this_machine_has_no_price_and_starts_quickly():
    found = cost_of(RUN, forecast(iteration_s=10.0), LOCAL, CATALOGUE)
    assert (found.longest_s, found.price) == (10.0 + 70.0, None)


def test_a_part_without_a_power_limit_takes_no_known_energy():
    catalogue = Catalogue(models={}, hardware={"part": msgspec.structs.replace(EIGHT, power_limit_w=None)})
    assert cost_of(RUN, None, CLUSTER, catalogue).energy_kwh == 0.0


@pytest.mark.parametrize("price", [None, 0.0])
def test_no_price_is_none_and_a_price_of_nothing_is_nothing(price):
    assert cost_of(RUN, None, platform(price_per_gpu_hour=price), CATALOGUE).price == price


def test_a_total_is_the_sum_and_the_longest_job():
    one = Cost(runs=1, bounded=1, gpu_hours=1.0, node_hours=2.0, longest_s=30.0, energy_kwh=4.0, price=5.0)
    other = Cost(runs=2, gpu_hours=10.0, node_hours=20.0, longest_s=20.0, energy_kwh=40.0, price=50.0)
    assert total([one, other]) == Cost(
        runs=3, bounded=1, gpu_hours=11.0, node_hours=22.0, longest_s=30.0, energy_kwh=44.0, price=55.0
    )
    assert total([]) == Cost()


def test_costs_are_by_run_and_bounded_where_nothing_is_predicted():
    found = costs_of([RUN, CALLS], {run_id(RUN): forecast(iteration_s=1.0)}, CLUSTER, CATALOGUE)
    assert {name: one.bounded for name, one in found.items()} == {run_id(RUN): 0, run_id(CALLS): 1}
