"""From files to what is presented of them: a figure from records, a table or definitions; the paper from them all."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import polars as pl

from scaling_study.campaign import records_of_sweep
from scaling_study.errors import UserError
from scaling_study.present.figures import draw_figure
from scaling_study.present.render import render
from scaling_study.present.tables import make_table, write_table
from scaling_study.records import read_table, with_reported
from scaling_study.spec import DEFINITIONS, PREDICT, Config, Study
from scaling_study.timeline import exposed_spans, read_timeline_file


def draw(
    config: Config, study: Study, name: str, files: tuple[Path, ...], timelines: tuple[Path, ...], output: Path
) -> None:
    """Write one figure of a study.

    Args:
        files: of records, or the table that it shows; none where it shows definitions alone.
        timelines: in the order in which the study names them, each file named after its run.

    Raises:
        UserError: the study has no such figure, a file is missing, damaged or not what the figure needs, or the
            output cannot be written.
    """
    request = study.figure(name)
    wanted = [f"{run}.parquet" for run in request.timelines]
    if [path.name for path in timelines] != wanted:
        needed = ", ".join(wanted) or "none"
        raise UserError("these are not its timelines", where=f"figure {name}", remedy=f"It shows: {needed}.")
    if request.of not in DEFINITIONS and not files:
        what = f"records of {request.sweep}" if request.sweep else f"the table {request.of}"
        raise UserError("no file is given", where=f"figure {name}", remedy=f"Give {what}.")
    source = None
    if request.sweep:
        source = with_reported(records_of_sweep(config, study, request.sweep, files), study, request.sweep)
    elif request.of not in DEFINITIONS:
        source = read_table(files[0])
    spans = {path.stem: _with_exposed(read_timeline_file(path)) for path in timelines}
    render(draw_figure(study, name, source, config.catalogue, spans), output, name)


def tabulate(config: Config, study: Study, name: str, files: tuple[Path, ...], output: Path) -> None:
    """Write one table of a study.

    Args:
        files: of records, or the table of the performance model that it is made of; none for one of definitions;
            of a table of claims records of any study, and tables of the model.

    Raises:
        UserError: the study has no such table, a file is missing, damaged or not what the table needs, or the output
            cannot be written.
    """
    request = study.table(name)
    if request.of == "claims":
        from scaling_study.claims import judged_by
        from scaling_study.present.claims import claims_table

        write_table(claims_table(judged_by(config, files)), output, name)
        return
    source = None
    if request.sweep and files:
        source = records_of_sweep(config, study, request.sweep, files)
    elif request.of and files:
        source = read_table(files[0])
    write_table(make_table(study, name, source, config.catalogue), output, name)


def _with_exposed(spans: pl.DataFrame) -> pl.DataFrame:
    """The spans, and below them when communication is exposed, as spans of the kind `exposed`."""
    exposed = exposed_spans(spans).with_columns(kind=pl.lit("exposed"), op=pl.lit("exposed"), stream=pl.lit("exposed"))
    return pl.concat([spans, exposed], how="diagonal")


def build(
    config: Config, record_files: tuple[Path, ...], table_files: tuple[Path, ...], figures_folder: Path, output: Path
) -> None:
    """Write the paper.

    Args:
        record_files: of every sweep of the studies, each at `<study>/<platform>/<sweep>.parquet`.
        table_files: of the performance model, each named after what it holds.
        figures_folder: with a folder a study.

    Raises:
        UserError: a file is missing or damaged, a figure or a number is missing, or the sources have an error.
    """
    from scaling_study.claims import judged_of
    from scaling_study.present.paper import build_paper

    frames = _records_by_study(config, record_files)
    studies = [config.study(name) for name in frames]
    tables = {path.stem: read_table(path) for path in table_files}
    judged = judged_of(config, _by_sweep(frames), tables)
    build_paper(studies, frames, tables, judged, config.catalogue, figures_folder, Path("paper"), output)


def report_of(
    config: Config,
    record_files: tuple[Path, ...],
    table_files: tuple[Path, ...],
    timelines: tuple[Path, ...],
    figures_folder: Path,
    output: Path,
) -> None:
    """Write the report.

    Args:
        record_files: of every sweep of the studies, each at `<study>/<platform>/<sweep>.parquet`.
        table_files: of the performance model; what some claims are judged by.
        timelines: each file named after its run.
        figures_folder: with a folder a study.

    Raises:
        UserError: a file is missing or damaged, or a figure is missing.
    """
    from scaling_study.claims import judged_of
    from scaling_study.present.claims import claims_table
    from scaling_study.present.report import build_report

    frames = _records_by_study(config, record_files)
    studies = sorted((config.study(name) for name in frames), key=lambda study: study.platform != PREDICT)
    shown = {
        study.name: {name: with_reported(frame, study, name) for name, frame in frames[study.name].items()}
        for study in studies
    }
    spans = {path.stem: read_timeline_file(path) for path in timelines}
    tables = {path.stem: read_table(path) for path in table_files}
    claims = claims_table(judged_of(config, _by_sweep(frames), tables))
    build_report(studies, shown, spans, claims, figures_folder, output)


def _by_sweep(frames: Mapping[str, Mapping[str, pl.DataFrame]]) -> list[tuple[str, pl.DataFrame]]:
    """The records of all studies, sweep after sweep."""
    return [(sweep, frame) for of_study in frames.values() for sweep, frame in of_study.items()]


def _records_by_study(config: Config, record_files: tuple[Path, ...]) -> dict[str, dict[str, pl.DataFrame]]:
    """Records by study and sweep; those of several platforms together."""
    frames: dict[str, dict[str, pl.DataFrame]] = {}
    for path in record_files:
        study, _, _ = path.parts[-3:] if len(path.parts) > 2 else ("", "", "")
        if not study:
            raise UserError("not <study>/<platform>/<sweep>.parquet", where=str(path), remedy="Give a longer path.")
        read = records_of_sweep(config, config.study(study), path.stem, (path,))
        others = frames.setdefault(study, {})
        others[path.stem] = pl.concat([others[path.stem], read]) if path.stem in others else read
    return frames
