"""The committed records are those of the studies as they are configured now."""

import pytest

from scaling_study.campaign import records_of_sweep
from scaling_study.spec import Outcome
from tests.unit.samples import CONFIG, ROOT

CACHED = sorted((ROOT / "results/cached").glob("*/*/*.parquet"))


def test_the_mini_study_is_in_the_cache():
    cached = {path.stem for path in CACHED if path.parts[-3:-1] == ("mini", "local")}
    assert cached == set(CONFIG.study("mini").sweeps)


@pytest.mark.parametrize("path", CACHED, ids=lambda path: "-".join(path.with_suffix("").parts[-3:]))
def test_committed_records_are_of_the_studys_runs(path):
    study, _, sweep = path.with_suffix("").parts[-3:]
    records = records_of_sweep(CONFIG, CONFIG.study(study), sweep, (path,))
    assert set(records["outcome"]) == {Outcome.OK}
    assert set(records["provenance"]) == {"measured"}
    assert not any("dirty" in version for version in records["code_version"])


@pytest.mark.parametrize("path", sorted((ROOT / "config/studies").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_platform_of_a_study_exists(path):
    assert CONFIG.platform(CONFIG.study(path.stem).platform)
