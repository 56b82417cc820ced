"""The whole mini study through Slurm has the records that it has on one machine: the same runs, the same columns."""

import polars as pl
import pytest

from scaling_study.records import read_records
from scaling_study.spec import Config
from tests.slurm.conftest import ROOT, Study

COMMITTED = ROOT / "results/cached/mini/local"


@pytest.fixture
def mini(cluster, tmp_path):
    """On one node of eight cores: Slurm lets so many ranks run at once, since all share the cores of this machine."""
    made = Study(cluster, tmp_path, ROOT / "config", "mini")
    made.platform(
        tasks_per_node=8, first_iteration_limit_s=300, iteration_limit_s=120, run_limit_s=600, most_minutes=20,
        exclude=f"{cluster.names[1]},{cluster.names[2]},{cluster.names[3]}",
    )  # fmt: skip
    yield made
    made.end()


def test_its_records_are_those_of_one_machine(mini):
    sweeps = [name for name, sweep in Config(mini.config).study("mini").sweeps.items() if sweep.status == "ready"]
    drivers = [mini.start(sweep) for sweep in sweeps]  # all at once, as a workflow starts them
    for driver in drivers:
        code, said = mini.finish(driver, timeout_s=2400)
        assert code == 0, said
    assert sorted(path.stem for path in COMMITTED.glob("*.parquet")) == sorted(sweeps)
    for sweep in sweeps:
        here, there = read_records(COMMITTED / f"{sweep}.parquet"), read_records(mini.output(sweep))
        assert there.schema == here.schema
        assert sorted(there["run_id"]) == sorted(here["run_id"])
        assert outcomes(there) == outcomes(here)
        assert set(there["platform"]) == {"cluster"}
        assert filled(there) == filled(here)
    names = {name for sweep in sweeps for name in mini.run_ids(sweep)}
    assert all(len(mini.entries(name)) <= 1 for name in names)


def outcomes(records: pl.DataFrame) -> dict[str, str]:
    return dict(zip(records["run_id"], records["outcome"], strict=True))


def filled(records: pl.DataFrame) -> dict[str, list[str]]:
    """The columns that have a value, by run."""
    return {row["run_id"]: [name for name, value in row.items() if value is not None] for row in records.to_dicts()}
