"""The paper builds from records and figures, and refuses to build where a number or a figure is missing."""

from __future__ import annotations

import functools
import re
import shutil
from pathlib import Path

import polars as pl
import pytest
from msgspec import structs

from scaling_study.claims import judged_by
from scaling_study.errors import UserError
from scaling_study.present import numbers as numbers_module
from scaling_study.present.claims import Judged
from scaling_study.present.paper import build_paper, compile_pdf, explain_typst_error
from scaling_study.records import read_records
from scaling_study.spec import Catalogue, Config
from tests.unit.present import synthetic as made

ROOT = Path(__file__).parents[3]
CONFIG = Config(ROOT / "config")
STUDY, FULL, CATALOGUE = CONFIG.study("mini"), CONFIG.study("paper"), CONFIG.catalogue
FRAMES = made.mini_frames()
CACHE = ROOT / "results" / "cached"
FULL_FRAMES = {path.stem: read_records(path) for path in sorted((CACHE / "paper" / "predict").glob("*.parquet"))}
TABLES = {path.stem: pl.read_parquet(path) for path in sorted((CACHE / "paper" / "model").glob("*.parquet"))}
TEXT = (ROOT / "paper" / "paper.typ").read_text(encoding="utf-8")
FULL_TEXT = (ROOT / "paper" / "full.typ").read_text(encoding="utf-8")
DRAWING = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20"><text font-family="Source Sans Pro">a</text></svg>'
)


@functools.cache
def judged() -> list[Judged]:
    """The claims as the committed records have them."""
    return judged_by(CONFIG, [CACHE])


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """The paper's sources with stand-ins for its figures."""
    folder = tmp_path / "paper"
    folder.mkdir()
    for path in (ROOT / "paper").iterdir():
        if path.suffix in (".typ", ".yml"):
            shutil.copy(path, folder)
    for study in (STUDY, FULL):
        for name in study.figures:
            path = tmp_path / "figures" / study.name / f"{name}.svg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(DRAWING, encoding="utf-8")
    return folder


def build(sources: Path, frames: dict = FRAMES, catalogue: Catalogue = CATALOGUE) -> Path:
    every = {"mini": frames, "paper": FULL_FRAMES}
    figures, output = sources.parent / "figures", sources / "paper.pdf"
    return build_paper([STUDY, FULL], every, TABLES, judged(), catalogue, figures, sources, output)


def test_the_paper_builds_with_numbers_and_tables(sources: Path) -> None:
    assert build(sources).read_bytes().startswith(b"%PDF")
    for study, more in (("mini", []), ("paper", ["claims.csv"])):
        own = "wsf-pairs.csv" if study == "mini" else "wsf-table1.csv"
        assert sorted(path.name for path in (sources / "build" / study).iterdir()) == [
            *more,
            "hst-table1.csv",
            "layouts.csv",
            "numbers.json",
            own,
        ]


def test_every_claim_reaches_the_paper(sources: Path) -> None:
    build(sources)
    table = sources / "build" / "paper" / "claims.csv"
    rows = pl.read_csv(table, infer_schema=False)
    assert list(dict.fromkeys(rows["id"])) == list(CONFIG.claims.claims)
    assert (sources / "claims.typ").read_text(encoding="utf-8").count('"build/paper/claims.csv"') == 1
    before = (sources / "paper.pdf").read_bytes()
    changed = rows.with_columns(verdict=pl.lit("does not hold"))
    table.write_text(changed.write_csv(), encoding="utf-8")
    assert compile_pdf(sources.parent / "figures", sources) != before
    table.unlink()
    with pytest.raises(UserError, match="claims"):
        compile_pdf(sources.parent / "figures", sources)


def test_the_same_records_give_the_same_pdf(sources: Path) -> None:
    assert build(sources).read_bytes() == build(sources).read_bytes()


def test_the_text_uses_every_number_and_no_other() -> None:
    used = set(re.findall(r'num\("([^"]+)"\)', TEXT))
    given = {name for name in numbers_module.paper_numbers(STUDY, FRAMES) if not name.startswith("sweeps.")}
    assert used == given


def test_the_text_on_predictions_uses_numbers_that_there_are() -> None:
    given = set(numbers_module.paper_numbers(FULL, FULL_FRAMES, TABLES))
    prefixes = {"full": "predicted", "reported": "reported", "validated": "validation", "sensitive": "sensitivity"}
    prefixes["woven"] = "fabric"
    used = {
        f"{prefixes[function]}.{name}"
        for function, name in re.findall(r'(full|reported|validated|sensitive|woven)\("([^"]+)"\)', FULL_TEXT)
    }
    assert used <= given
    assert {name for name in given - used if name.startswith(("validation.", "fabric."))} == set()


def test_the_text_on_predictions_shows_every_figure() -> None:
    assert set(re.findall(r'"((?:hst-|cr-|wsf-|accuracy|sensitivity)[a-z0-9]*)"', FULL_TEXT)) == set(FULL.figures)


def test_what_the_text_says_of_predictions_without_a_number_is_true() -> None:
    """Sentences of full.typ that rest on predictions: who changes the model sees here which of them to mend."""
    given = numbers_module.paper_numbers(FULL, FULL_FRAMES, TABLES)

    def value(name: str) -> float:
        return float(given[f"predicted.{name}"].value)

    assert value("dp.exposed_of_communication") < 0.5  # most of it stays hidden
    assert value("dp.compute_change") > 0.02  # computation slows beside it
    assert value("dp.rate_change") > -0.3722  # the prediction falls less than what is reported
    assert value("dp.memory_smallest") > value("dp.memory_largest") + 5
    for part in ("h100", "a100"):  # nothing beats data parallelism alone, and pipelines cost without communicating
        assert str(given[f"predicted.mp.{part}.verdict"].value).startswith("no layout is faster")
        assert -0.8 < value(f"mp.{part}.spearman") < -0.4
    assert abs(value("generations.a100.exposed") - value("generations.h100.exposed")) < 0.02  # hardly differs
    v100 = FULL_FRAMES["generations"].filter(hardware="v100", tp=1, pp=1)
    assert set(v100["outcome"]) == {"out_of_memory"}
    assert given["sensitivity.data_parallel.interval"].value == "none"
    reduce, gather = (given[f"predicted.collectives.all_{op}_1gib"].text for op in ("reduce", "gather"))
    assert re.fullmatch(r"falls by \d\.\d%", reduce)
    assert re.fullmatch(r"falls by \d\d%", gather)
    assert float(given["fabric.miss"].value) > 1  # no pair of values gives all printed numbers
    assert float(given["fabric.high"].value.strip("+%")) < float(given["fabric.printed"].value.strip("+%"))


def test_the_text_shows_every_figure_and_sweep() -> None:
    assert sorted(re.findall(r'"((?:hst|wsf)-\d+[a-z]?)"', TEXT)) == sorted(STUDY.figures)
    assert set(re.findall(r'^    \("(\w+)", \[@', TEXT, re.MULTILINE)) == set(STUDY.sweeps)


def test_a_semicolon_after_a_number_is_printed() -> None:
    assert not re.findall(r'num\("[^"]+"\);', TEXT)


def test_a_number_that_is_missing_stops_the_build(sources: Path) -> None:
    lines = [*TEXT.splitlines(), '#num("dp.no_such_number")']
    (sources / "paper.typ").write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(UserError) as error:
        build(sources)
    assert "'dp.no_such_number'" in error.value.what
    assert error.value.where == f"{sources / 'paper.typ'}, line {len(lines)}"
    assert not (sources / "paper.pdf").exists()


def test_records_that_lack_a_number_stop_the_build(sources: Path) -> None:
    frames = {**FRAMES, "data_parallel": FRAMES["data_parallel"].head(1)}
    with pytest.raises(UserError, match=r"paper.typ, line \d+: the text uses the number 'dp\."):
        build(sources, frames)


@pytest.mark.parametrize("sweep", ["data_parallel", "model_parallel_large_scale", "generations"])
def test_a_sweep_that_was_only_predicted_stops_the_build(sources: Path, sweep: str) -> None:
    predicted = FRAMES[sweep].with_columns(provenance=pl.lit("predicted"))
    with pytest.raises(UserError, match=rf"the text uses the number '(sweeps\.{sweep}|dp)\."):
        build(sources, {**FRAMES, sweep: predicted})


def test_hardware_may_differ_from_the_printed_table(sources: Path) -> None:
    table = CATALOGUE.reported["hst-table1"]
    rows = [structs.replace(row, printed={part: 2 * one for part, one in row.printed.items()}) for row in table.rows]
    other = structs.replace(table, rows=tuple(rows), source="another table")
    assert build(sources, catalogue=structs.replace(CATALOGUE, reported={"hst-table1": other})).is_file()
    verdicts = pl.read_csv(sources / "build" / "mini" / "hst-table1.csv")["verdict"]
    assert verdicts.unique().to_list() == ["differs"]


def test_a_font_that_is_not_shipped_stops_the_build(sources: Path) -> None:
    template = sources / "template.typ"
    template.write_text(template.read_text(encoding="utf-8").replace('"Libertinus Serif"', '"No Such Serif"'))
    with pytest.raises(UserError, match="unknown font family: no such serif"):
        build(sources)


def test_a_missing_figure_is_named(sources: Path) -> None:
    (sources.parent / "figures" / "mini" / "hst-05.svg").unlink()
    with pytest.raises(UserError, match=r"hst-05.svg: the figure is missing"):
        build(sources)


def test_a_sweep_without_records_is_named(sources: Path) -> None:
    with pytest.raises(UserError, match="needs records of the sweep 'model_parallel'"):
        build(sources, {name: frame for name, frame in FRAMES.items() if name != "model_parallel"})


def test_other_errors_keep_their_message() -> None:
    error = explain_typst_error("unknown variable: x", "error: ...\n  ┌─ paper/paper.typ:7:3\n", Path("paper"))
    assert str(error) == "paper/paper.typ, line 7: the paper does not compile: unknown variable: x. Mend the source."
