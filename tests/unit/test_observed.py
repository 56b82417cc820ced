"""What ranks observed, from results in the run store into the table that figures read."""

import msgspec
import polars as pl
import pytest

from scaling_study.errors import UserError, write_atomically
from scaling_study.observed import SCHEMA, write_observed
from scaling_study.spec import Environment, Outcome, Pacing, RankReport, RunResult, expand
from scaling_study.spec.synchronisation import AxisSkew, Cause, SampleIteration, Synchronisation, Verdict
from scaling_study.submit import RunStore
from tests.unit.samples import CONFIG

RUNS = expand(CONFIG.study("mini"), "coordination", CONFIG.catalogue)
SEEN = Synchronisation(
    axes=[
        AxisSkew(
            axis="dp", ranks=2, synchronisations=2, skew_s=0.1, skew_s_p50=0.1, skew_s_p95=0.2, waited_s=0.05,
            lost_s={Cause.HOST: 0.03, Cause.NETWORK: 0.01},
        )
    ],
    last=[],
    overhead=0.001,
    clock_error_s=0.0,
    held_s=0.0,
    held_s_largest=0.0,
    sample=SampleIteration(
        axis="dp", iteration=3, ranks=[0, 1], arrived_s=[[0.0, 0.2], [0.1, 0.2]], entered_s=[[0.0, 0.3], [0.1, 0.2]],
        done_s=[[0.15, 0.35], [0.15, 0.35]],
    ),
)  # fmt: skip
KEPT = Verdict(
    iteration=8, kept=True, mean_without_s=1.0, mean_with_s=0.9, deviation_without_s=0.1, deviation_with_s=0.1
)
RANK = RankReport(
    rank=0, host="h", device="AMD EPYC", cores=2, threads=1, peak_memory_gib=0.1, iteration_ns=[1], profiled_ns=[1],
    losses=[1.0], compute_ns=1, communication_ns=0, exposed_communication_ns=0, communication_by_axis_ns={},
    exposed_by_axis_ns={},
)  # fmt: skip
ENVIRONMENT = Environment(
    torch="2", python="3", backend="gloo", attention_operator=None, code_version="0", data_source=None,
    data_sha256=None, host_cores=2, unavailable={},
)  # fmt: skip


def write_results(folder, seen):
    store = RunStore(folder / "store" / "local")
    for run in RUNS:
        own = seen and msgspec.structs.replace(seen, verdicts=[KEPT] if run.pacing is Pacing.ADAPTIVE else [])
        result = RunResult(
            run=run, outcome=Outcome.OK, attempt=1, started_at="", finished_at="", ranks=[RANK],
            environment=ENVIRONMENT, synchronisation=own,
        )  # fmt: skip
        write_atomically(store.files(run).result, msgspec.json.encode(result))


def test_the_table_has_a_row_a_run_and_axis_and_the_arrivals_of_first_repeats(tmp_path):
    write_results(tmp_path, SEEN)
    output = tmp_path / "observed.parquet"
    write_observed(CONFIG, "mini", "coordination", "local", output, tmp_path)
    table = pl.read_parquet(output)
    assert dict(table.schema) == SCHEMA
    axes = table.filter(kind="axis")
    assert axes.height == len(RUNS)
    assert axes["lost_host_s"].unique().to_list() == [0.03]
    assert axes["lost_locality_s"].unique().to_list() == [0.0]
    assert set(axes.filter(pacing="adaptive")["trials_kept"]) == {1}
    assert set(axes.filter(pacing="off")["trials"]) == {0}
    sample = table.filter(kind="sample", nodes=4, pacing="off")
    assert sample.select("rank", "place", "entered_s").rows() == [(0, 0, 0.0), (0, 1, 0.3), (1, 0, 0.1), (1, 1, 0.2)]
    assert set(table["provenance"]) == {"measured"}


def test_runs_that_were_not_measured_or_not_observed_are_errors(tmp_path):
    with pytest.raises(UserError, match="the run has no result"):
        write_observed(CONFIG, "mini", "coordination", "local", tmp_path / "o", tmp_path)
    write_results(tmp_path, None)
    with pytest.raises(UserError, match="no run of the sweep was under observation"):
        write_observed(CONFIG, "mini", "coordination", "local", tmp_path / "o", tmp_path)


def test_a_result_without_synchronisation_is_read_as_before():
    result = RunResult(run=RUNS[0], outcome=Outcome.OK, attempt=1, started_at="", finished_at="")
    content = msgspec.json.decode(msgspec.json.encode(result))
    del content["synchronisation"]
    assert msgspec.convert(content, RunResult).synchronisation is None
