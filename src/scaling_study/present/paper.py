"""The paper: numbers and table from records, Typst sources into a PDF. No network, no system fonts, no torch."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from scaling_study.errors import UserError, write_atomically
from scaling_study.present import theme
from scaling_study.present.claims import Judged, claims_table
from scaling_study.present.numbers import as_json, paper_numbers
from scaling_study.present.roofs import roof_rows
from scaling_study.present.rows import selected
from scaling_study.present.tables import make_table, write_table
from scaling_study.spec import Catalogue, FigureRequest, Study, TableRequest

SOURCE, TEMPLATE = "paper.typ", "template.typ"
BUILD = "build"


def build_paper(
    studies: Sequence[Study],
    frames: Mapping[str, Mapping[str, pl.DataFrame]],
    tables: Mapping[str, pl.DataFrame],
    judged: Sequence[Judged],
    catalogue: Catalogue,
    figures_folder: Path,
    paper_folder: Path,
    output: Path,
) -> Path:
    """Write the numbers and the tables that the paper reads, then the PDF, each complete or not at all.

    Args:
        studies: the studies that the paper is about.
        frames: of each study by name, records by the name of their sweep.
        tables: of the performance model, by name.
        judged: the claims of the sources.
        catalogue: the hardware, and what sources print of it.
        figures_folder: where the figures are, as SVG, in a folder a study.
        paper_folder: where the Typst sources are; `build/` in it is written, with a folder a study.
        output: the PDF.

    Returns:
        the PDF's path.

    Raises:
        UserError: a sweep has no records, a figure or a number that the text uses is missing, the sources have an
            error, or a file cannot be written.
    """
    for study in studies:
        check_inputs(study, frames[study.name], figures_folder / study.name)
    for study in studies:
        build, own = paper_folder / BUILD / study.name, frames[study.name]
        write_atomically(
            build / "numbers.json", as_json(paper_numbers(study, own, tables, _shown_roofs(study, catalogue)))
        )
        for name, request in sorted(study.tables.items()):
            records = own[request.sweep] if request.sweep else tables.get(request.of or "")
            claims = request.of == "claims"
            table = claims_table(judged) if claims else make_table(study, name, records, catalogue)
            write_table(table, build, name)
    write_atomically(output, compile_pdf(figures_folder.resolve(), paper_folder.resolve()))
    return output


def _shown_roofs(study: Study, catalogue: Catalogue) -> dict[str, pl.DataFrame]:
    """What the study's figures show of roofs; nothing where none does."""
    asked = next((request for request in study.figures.values() if request.of == "roofs"), None)
    return {"roofs": selected(roof_rows(catalogue), asked.where, f"study {study.name}")} if asked else {}


def check_inputs(study: Study, frames: Mapping[str, pl.DataFrame], figures_folder: Path) -> None:
    """Refuse to start where records or figures are missing.

    Raises:
        UserError: the first thing that is missing.
    """
    requests: dict[str, FigureRequest | TableRequest] = {**study.figures, **study.tables}
    for name, request in sorted(requests.items()):
        sweep = request.sweep
        if sweep and (sweep not in frames or frames[sweep].is_empty()):
            raise UserError(
                f"{name} needs records of the sweep {sweep!r}, which has none",
                where=f"study {study.name}",
                remedy="Measure or predict the sweep first.",
            )
    for name in sorted(study.figures):
        if not (figures_folder / f"{name}.svg").is_file():
            raise UserError("the figure is missing", where=str(figures_folder / f"{name}.svg"), remedy="Draw it first.")


def compile_pdf(figures_folder: Path, paper_folder: Path) -> bytes:
    """The PDF of the sources.

    Raises:
        UserError: the sources have an error or use a number that is missing, or a font is not there.
    """
    import typst

    root = Path(os.path.commonpath([figures_folder, paper_folder]))
    figures = "/" + figures_folder.relative_to(root).as_posix()
    try:
        content, warnings = typst.compile_with_warnings(
            paper_folder / SOURCE,
            root=root,
            font_paths=[theme.FONT_FOLDER],
            ignore_system_fonts=True,
            sys_inputs={"figures": figures},
            format="pdf",
        )
    except typst.TypstError as error:
        raise explain_typst_error(str(error.message), str(error.diagnostic), paper_folder) from error
    for warning in warnings:
        if "font" in str(warning.message):
            raise UserError(str(warning.message), where=str(paper_folder / SOURCE), remedy="Use a shipped font.")
    assert isinstance(content, bytes)
    return content


def explain_typst_error(message: str, diagnostic: str, paper_folder: Path) -> UserError:
    """An error of the sources as one sentence; a missing number is named, with the place that uses it."""
    places = re.findall(r"([\w./-]+\.typ):(\d+)", re.sub(r"\x1b\[[0-9;]*m", "", diagnostic))
    own = [(name, line) for name, line in places if Path(name).name != TEMPLATE] or places
    where = f"{paper_folder / Path(own[-1][0]).name}, line {own[-1][1]}" if own else str(paper_folder / SOURCE)
    missing = re.search(r"missing number: ([\w.]+)", message)
    if missing:
        return UserError(
            f"the text uses the number {missing.group(1)!r}, which the records do not give",
            where=where,
            remedy="Measure what it needs, or take it out of the text; present/numbers computes them.",
        )
    return UserError(f"the paper does not compile: {message.strip()}", where=where, remedy="Mend the source.")
