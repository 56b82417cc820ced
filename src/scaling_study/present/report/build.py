"""From figures, records, claims and timelines to one HTML page.

Whatever comes from a trace, a record or a configuration is data: in the page it is text that the template escapes, or
JSON in a block that no browser runs, and the script only ever sets text. The page's policy allows the scripts in it by
their digest, and nothing from anywhere else.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import altair as alt
import msgspec
import polars as pl

from scaling_study.errors import UserError, read_bytes, write_atomically
from scaling_study.present import theme
from scaling_study.records import SCHEMA
from scaling_study.spec import Study

_HERE = Path(__file__).parent
_SPAN_COLUMNS = ("rank", "stream", "kind", "op", "axis", "bytes", "start_ns", "end_ns")
_DIGITS = 6


class ReportFigure(msgspec.Struct, frozen=True, kw_only=True):
    """A figure in the report.

    Attributes:
        key: `<study>-<name>`, its anchor.
        name: such as `hst-04`.
        title: of the figure.
        notes: the lines below it.
        claims: ids of the claims that it shows.
        content: its Vega-Lite specification without the theme, as JSON.
    """

    key: str
    name: str
    title: str
    notes: tuple[str, ...]
    claims: tuple[str, ...]
    content: str


def build_report(
    studies: Sequence[Study],
    frames: Mapping[str, Mapping[str, pl.DataFrame]],
    timelines: Mapping[str, pl.DataFrame],
    claims: pl.DataFrame,
    figures_folder: Path,
    output: Path,
) -> None:
    """Write the report, complete or not at all.

    Args:
        studies: in the order in which they are shown.
        frames: of each study by name, records by the name of their sweep.
        timelines: span tables by run id.
        claims: as `claims_table` has them.
        figures_folder: where the figures are, as Vega-Lite JSON, in a folder a study.
        output: the HTML file.

    Raises:
        UserError: a figure is missing or damaged, or the file cannot be written.
    """
    figures = {study.name: [_figure(study, name, figures_folder) for name in study.figures] for study in studies}
    records = [frame for study in studies for frame in frames[study.name].values()]
    write_atomically(output, report_page(studies, figures, records, timelines, claims).encode())


def report_page(
    studies: Sequence[Study],
    figures: Mapping[str, Sequence[ReportFigure]],
    records: Sequence[pl.DataFrame],
    timelines: Mapping[str, pl.DataFrame],
    claims: pl.DataFrame,
) -> str:
    """The page's HTML; the arguments are those of `build_report`, with each study's figures read."""
    import jinja2

    loader = jinja2.FileSystemLoader(_HERE)
    environment = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)
    script, style = _text("page.js"), _style()
    data = {
        "theme": theme.config(),
        "marks": {provenance.value: style.glyph for provenance, style in theme.MARKS.items()},
        "runs": runs_table(records),
        "timelines": {name: _spans(frame) for name, frame in timelines.items()},
        "figures": {figure.key: json.loads(figure.content)["usermeta"] for of in figures.values() for figure in of},
    }
    return environment.get_template("page.html.j2").render(
        studies=[(study, figures[study.name]) for study in studies],
        claims=[{**claim, "keys": _keys(claim["figures"].split(), figures)} for claim in claims.to_dicts()],
        verdicts=claims["verdict"].unique().sort().to_list(),
        places=claims["place"].unique().sort().to_list(),
        timelines=list(timelines),
        marks=data["marks"],
        data=in_script(data),
        specifications={figure.key: _escaped(figure.content) for of in figures.values() for figure in of},
        vega=vega_bundle(),
        script=script,
        style=style,
        script_digests=" ".join(_digest(content) for content in (vega_bundle(), script)),
        style_digest=_digest(style),
    )


def runs_table(records: Sequence[pl.DataFrame]) -> dict[str, Any]:
    """Every record once, as columns and rows; what no record has is left out, numbers have six significant digits."""
    tables = [frame.select(list(SCHEMA)) for frame in records]
    joined = pl.concat(tables).unique(["run_id", "provenance"], keep="first", maintain_order=True)
    kept = joined.select(column for column in joined.iter_columns() if column.null_count() < joined.height)
    rounded = kept.with_columns(pl.col(pl.Float64).round_sig_figs(_DIGITS)).sort("run_id", "provenance")
    return {"columns": rounded.columns, "rows": [list(row) for row in rounded.iter_rows()]}


def in_script(data: Any) -> str:
    """JSON that stands inside a script element and cannot end it."""
    return _escaped(json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False))


@cache
def vega_bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, in the version that draws the figures."""
    import vl_convert

    version = alt.SCHEMA_VERSION.rpartition(".")[0]
    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=version)
    return bundle.replace("</script", "<\\/script")


def _figure(study: Study, name: str, folder: Path) -> ReportFigure:
    path = folder / study.name / f"{name}.vl.json"
    try:
        spec = json.loads(read_bytes(path))
        title = spec["title"]
        spec.pop("config")
        return ReportFigure(
            key=f"{study.name}-{name}",
            name=name,
            title=_in_one_line(title["text"]),
            notes=_lines(title["subtitle"]),
            claims=tuple(spec["usermeta"]["claims"]),
            content=json.dumps(spec, separators=(",", ":"), ensure_ascii=False),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise UserError("not a figure of this project", where=str(path), remedy="Draw it again.") from error


def _keys(names: Sequence[str], figures: Mapping[str, Sequence[ReportFigure]]) -> list[tuple[str, str | None]]:
    """The figures that show a claim with their anchors; `hst-03` stands for its parts, as the study names them."""
    shown = {figure.name: figure.key for of in reversed(list(figures.values())) for figure in of}
    parts = {name: [one for one in shown if one == name or one[:-1] == name] for name in names}
    return [(one, shown.get(one)) for name in names for one in parts[name] or [name]]


def _lines(text: str | list[str]) -> tuple[str, ...]:
    return (text,) if isinstance(text, str) else tuple(text)


def _in_one_line(text: str | list[str]) -> str:
    return " ".join(_lines(text))


def _spans(frame: pl.DataFrame) -> dict[str, Any]:
    """A timeline in columns, times from its first span."""
    spans = frame.select(_SPAN_COLUMNS).sort("rank", "stream", "start_ns")
    first = spans["start_ns"].min() or 0
    return spans.with_columns(pl.col("start_ns", "end_ns") - first).to_dict(as_series=False)


def _escaped(text: str) -> str:
    for one, escape in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026"), ("\u2028", "\\u2028")):
        text = text.replace(one, escape)
    return text


def _text(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


def _style() -> str:
    """The style sheet, with the fonts of the figures inside."""
    faces = [
        f'@font-face{{font-family:"{theme.FONT}";font-weight:{weight};font-style:{slope};'
        f"src:url(data:font/otf;base64,{base64.b64encode((theme.FONT_FOLDER / file).read_bytes()).decode()})}}"
        for file, weight, slope in (
            ("SourceSansPro-Regular.otf", 400, "normal"),
            ("SourceSansPro-Semibold.otf", 600, "normal"),
            ("SourceSansPro-It.otf", 400, "italic"),
        )
    ]
    return "\n".join([*faces, _text("page.css")])


def _digest(content: str) -> str:
    """How a content-security policy names an inline script or style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
