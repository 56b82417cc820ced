"""Every claim of the study is written down, with its tolerance; one that is wrong is one clear error."""

from __future__ import annotations

import re
import shutil

import pytest

from scaling_study.errors import UserError
from scaling_study.present.figures import MODULES, figure_module
from scaling_study.spec import Config
from scaling_study.spec.claims import CountCheck, Expected
from tests.unit.samples import CONFIG, ROOT

CLAIMS = CONFIG.claims.claims
#: Id, where the source says it, and kind: the study's list of claims.
STUDY = """
dp-throughput-drop|HST 4.1|exact dp-power-drop|HST 4.1|exact dp-compute-constant|HST 4.1|shape
dp-power-linear|HST 4.1|shape dp-majority-exposed|HST 4.1|shape small-scale-extrapolation|HST 5|shape
many-small-models|HST 5|shape larger-nodes|HST 5|shape collective-scaling|HST 2.3|shape
mp-beats-dp-h100|HST 4.2|shape mp-beats-dp-a100|HST 4.2|shape exposed-correlation|HST 4.2|exact
mp-across-nodes|HST 4.2|shape mp-more-viable|HST C|shape fixed-batch-mfu|HST 4.3|exact
fixed-batch-power|HST 5|exact pretraining-mfu|HST 4.3, E|exact generation-mfu|HST 4.4|exact
generation-exposed|HST 4.4|exact generation-v100|HST F|shape size-exposed|HST 4.5|shape
context-length|HST 4.6|shape memory-sharding|HST D|shape memory-main|HST C|shape hardware-table|HST Table 1|exact
coordination-table|WSF Table 1|exact coordination-shape|WSF|shape roofline-example|CR|exact
roofline-decode|CR|shape roofline-tp|CR|shape
"""
#: What exact claims expect, check by check: the tolerances are final.
NUMBERS = {
    "dp-throughput-drop": [(-0.3722, 0.05), (-0.3722, 0.05)],
    "dp-power-drop": [(-0.0587, 0.03), (658, 32.9), (620, 31)],
    "exposed-correlation": ["at_most -0.8"],
    "fixed-batch-mfu": [(0.40, 0.05), "below 0.15", "below 0"],
    "fixed-batch-power": [(0.4, 0.1), (0.1, 0.1), "below 0"],
    "pretraining-mfu": ["below -0.3", "above 0"],
    "generation-mfu": [(0.5967, 0.05), (0.4077, 0.05), "below 0"],
    "generation-exposed": [(0.1283, 0.05)],
    "hardware-table": ["at_most 0"],
    "coordination-table": [
        *[(change, 0.015) for change in (-0.006, 0.008, 0.033)],
        *[(cv, 0.01) for cv in (0.02, 0.04, 0.09, 0.02, 0.03, 0.05)],
    ],
    "roofline-example": [(27e-6, 1e-6), "above 2e-05"],
}


def test_every_claim_of_the_study_is_there() -> None:
    listed = re.findall(r"([a-z0-9-]+)\|([^|]+)\|(exact|shape)", " ".join(STUDY.split()))
    assert len(listed) == 30
    assert [(name, claim.source, claim.kind) for name, claim in CLAIMS.items()] == listed


@pytest.mark.parametrize("name", NUMBERS)
def test_tolerances_are_those_of_the_study(name: str) -> None:
    said = []
    for check in CLAIMS[name].checks:
        one = check.expect
        bounds = [
            f"{key} {value:g}" for key in ("above", "below", "at_most") if (value := getattr(one, key)) is not None
        ]
        said.append(bounds[0] if bounds else (one.value, pytest.approx(one.tolerance)))
    assert said == NUMBERS[name]
    assert {name for name, claim in CLAIMS.items() if claim.kind == "exact"} == set(NUMBERS)


def test_figures_and_claims_name_each_other() -> None:
    known = set(MODULES) | {"hst-table1", "cr-01", "cr-02", "wsf-01", "wsf-02", "wsf-05", "wsf-fabric"}
    assert all(figure in known for claim in CLAIMS.values() for figure in claim.figures)
    for module in MODULES:
        for name in figure_module(module).CLAIMS:
            assert module in CLAIMS[name].figures


def test_no_constant_is_fitted_on_a_claim() -> None:
    for path in (ROOT / "config/calibration").iterdir():
        text = path.read_text(encoding="utf-8").lower()
        assert not any(name in text for name in ("2411.13055", "hardware scaling trends", "when scaling fails")), path


@pytest.mark.parametrize(
    ("fields", "inside", "outside"),
    [
        ({"above": 1}, [1.1], [1.0, 0]),
        ({"at_least": 1, "at_most": 2}, [1, 1.5, 2], [0.9, 2.1]),
        ({"below": -0.3}, [-0.31], [-0.3, 0]),
        ({"value": 658, "within_share": 0.05}, [626, 690], [625, 691]),
        ({"value": -0.3722, "within": 0.05}, [-0.33, -0.42], [-0.32, -0.43]),
    ],
)
def test_what_is_expected(fields: dict, inside: list[float], outside: list[float]) -> None:
    one = Expected(**fields)
    assert all(one.holds(value) for value in inside)
    assert not any(one.holds(value) for value in outside)


@pytest.mark.parametrize(
    "fields", [{}, {"value": 1}, {"within": 1}, {"above": 1, "within": 1}, {"value": 1, "above": 0}]
)
def test_what_cannot_be_expected(fields: dict) -> None:
    with pytest.raises(ValueError, match=r"bounds|within"):
        Expected(**fields)


def test_a_baseline_goes_with_columns() -> None:
    with pytest.raises(ValueError, match="baseline"):
        CountCheck(sweep="model_parallel", than={"tp": 1}, expect=Expected(above=0))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "measure: change",
            "measure: chnge",
            "claim dp-throughput-drop: there is no measure 'chnge'. Did you mean 'change'",
        ),
        (
            "sweep: data_parallel",
            "sweep: data_paralel",
            "there is no sweep 'data_paralel'. Did you mean 'data_parallel'",
        ),
        ("within: 0.05", "withn: 0.05", r"claim dp-throughput-drop, at checks\[0\].expect: unknown key 'withn'"),
        (", within: 0.05", "", "a value, and only a value, needs `within`"),
        ("kind: exact", "kind: exakt", "claim dp-throughput-drop, at kind: invalid enum value 'exakt'"),
        ("kind: exact", "kind: shape", "`shape` is of claims of the kind exact"),
        ("sweep: data_parallel, of", "of", "a check is of a `sweep` or of a `table`"),
        ("claims:\n", "claims: 3\nmore:\n", "expected `object`, got `int`"),
    ],
)
def test_a_wrong_claim_is_one_clear_error(tmp_path, old: str, new: str, message: str) -> None:
    folder = tmp_path / "config"
    shutil.copytree(ROOT / "config", folder)
    text = CONFIG.claims_file.read_text(encoding="utf-8")
    (folder / "claims.yaml").write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(UserError, match=message):
        _ = Config(folder).claims
