"""What the Snakefile asks: which files a study has, from what they are made, and that it runs alone.

The workflow reads records from one of two places and never mixes them: `results/` where it measures, or
`results/cached/` where it only draws; the `cached` profile has no rule that measures.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any, Protocol

import msgspec

from scaling_study.errors import UserError, explain_os_error
from scaling_study.recordfile import SCHEMA_VERSION, is_damaged
from scaling_study.spec import Config, FigureRequest, Run, Study, TableRequest, TrainingRun, expand, run_id

PAPER, PAPER_STUDY = "paper/paper.pdf", "mini"
SOURCES = ("measure", "cached")
FIGURE_SUFFIXES = (".svg", ".png", ".vl.json")


class Wildcards(Protocol):
    """Snakemake's wildcards of the rules here; each rule has some of them."""

    study: str
    platform: str
    sweep: str
    figure: str
    table: str
    dataset: str


class Plan:
    """The files of a workflow run.

    Args:
        settings: Snakemake's `config`: `studies` (comma-separated names), `source` (`measure` or `cached`), and for
            one figure `study` and `figure`.
        root: the checkout.

    Raises:
        UserError: a setting, a study or a platform is not as it must be.
    """

    def __init__(self, settings: Mapping[str, Any], root: Path = Path()) -> None:
        known = {"studies", "source", "study", "figure", "platform", "config_folder"}
        if set(settings) - known:
            unknown = ", ".join(sorted(set(settings) - known))
            raise UserError(
                f"unknown setting {unknown}", where="--config", remedy=f"Known: {', '.join(sorted(known))}."
            )
        if settings.get("source", "measure") not in SOURCES:
            raise UserError(
                f"unknown source {settings['source']!r}", where="--config", remedy=f"Known: {', '.join(SOURCES)}."
            )
        if ("study" in settings) != ("figure" in settings):
            raise UserError(
                "study and figure go together", where="--config", remedy="Give both, or studies for whole studies."
            )
        self.root = root
        folder = settings.get("config_folder") or os.environ.get("SCALING_STUDY_CONFIG", "config")
        self.config = Config(root / str(folder))
        self.cached = settings.get("source", "measure") == "cached"
        names = [str(settings["study"])] if "figure" in settings else str(settings.get("studies", "mini")).split(",")
        self.studies = {name: self.config.study(name) for name in names}
        self.platforms = {n: str(settings.get("platform", s.platform)) for n, s in self.studies.items()}
        if not self.cached:
            for platform in self.platforms.values():
                self.config.platform(platform)
        self._figure = settings.get("figure")
        self._lock: IO[str] | None = None

    # -- files --------------------------------------------------------------------------------------------------

    def records(self, study: str, sweep: str) -> str:
        """The record file of a sweep."""
        place = "results/cached" if self.cached else "results"
        return f"{place}/{study}/{self.platforms[study]}/{sweep}.parquet"

    def sweeps(self, study: Study) -> list[str]:
        """Sweeps that are measured or drawn: those that are not only planned."""
        return [name for name, sweep in study.sweeps.items() if sweep.status == "ready"]

    def figures(self) -> list[str]:
        """Every figure of every study, one file for each format."""
        return [
            f"figures/{study.name}/{figure}{suffix}"
            for study in self.studies.values()
            for figure in study.figures
            for suffix in FIGURE_SUFFIXES
        ]

    def tables(self) -> list[str]:
        """Every table of every study."""
        return [f"figures/{study.name}/{table}.csv" for study in self.studies.values() for table in study.tables]

    def one_figure(self) -> list[str]:
        """The files of the figure that was asked for.

        Raises:
            UserError: the study has no such figure, or there are no records to draw it from.
        """
        study = next(iter(self.studies.values()))
        sweep = study.figure(str(self._figure)).sweep
        if self.cached:
            self._require([self.records(study.name, sweep)])
        return [f"figures/{study.name}/{self._figure}{suffix}" for suffix in FIGURE_SUFFIXES]

    # -- inputs and parameters of rules -------------------------------------------------------------------------

    def figure_records(self, wildcards: Wildcards) -> list[str]:
        """The record files that a figure is drawn from."""
        return [self.records(wildcards.study, self.studies[wildcards.study].figures[wildcards.figure].sweep)]

    def table_records(self, wildcards: Wildcards) -> list[str]:
        """The record files that a table is made of; none for one of definitions alone."""
        sweep = self.studies[wildcards.study].tables[wildcards.table].sweep
        return [self.records(wildcards.study, sweep)] if sweep else []

    def table_definitions(self, wildcards: Wildcards) -> list[str]:
        """The configuration files that a table of definitions alone is made of; none for one of records."""
        return self._definitions_of([self.studies[wildcards.study].tables[wildcards.table]])

    def paper_definitions(self) -> list[str]:
        """The same for the tables that the paper writes anew."""
        return self._definitions_of(self.studies[PAPER_STUDY].tables.values())

    def _definitions_of(self, tables: Iterable[TableRequest]) -> list[str]:
        alone = any(table.sweep is None for table in tables)
        return [str(path) for path in self.config.definition_files()] if alone else []

    @property
    def has_paper(self) -> bool:
        """Whether the study that the paper reports is among the studies."""
        return PAPER_STUDY in self.studies

    def paper_records(self) -> list[str]:
        """The record files whose numbers the paper prints."""
        study = self.studies[PAPER_STUDY]
        return [self.records(study.name, sweep) for sweep in self.sweeps(study)]

    def paper_figures(self) -> list[str]:
        """The figures that the paper shows."""
        return [f"figures/{PAPER_STUDY}/{figure}.svg" for figure in self.studies[PAPER_STUDY].figures]

    def paper_sources(self) -> list[str]:
        """The paper's own files."""
        return sorted(
            str(path.relative_to(self.root))
            for path in (self.root / "paper").glob("*.*")
            if path.suffix in (".typ", ".yml")
        )

    def targets(self) -> list[str]:
        """Everything, or the files of the figure that was asked for."""
        if self._figure is not None:
            return self.one_figure()
        records = self.all_records()
        if self.cached:  # Snakemake takes a figure whose records are gone for a file that needs none
            self._require(records)
        return [*records, *self.figures(), *self.tables(), *([PAPER] if self.has_paper else [])]

    def made(self) -> list[str]:
        """What a person finds where, after the workflow has ended well."""
        lines = [f"figures and tables: figures/{name}/" for name in self.studies]
        if self.has_paper and self._figure is None:
            lines.append(f"paper: {PAPER}")
        return lines

    def all_records(self) -> list[str]:
        """The record file of every sweep of every study."""
        return [self.records(study.name, sweep) for study in self.studies.values() for sweep in self.sweeps(study)]

    def _require(self, records: list[str]) -> None:
        for path in (self.root / record for record in records):
            if not path.exists():
                raise UserError(
                    "there are no committed records", where=str(path), remedy="Measure and promote the study first."
                )

    def set_damaged_aside(self) -> None:
        """Move damaged record files out of the way, so that they are gathered again; not where another run is at work.

        Raises:
            UserError: a file cannot be read or moved.
        """
        try:
            self.lock()
        except UserError:
            return
        for path in (self.root / record for record in self.all_records()):
            try:
                if not is_damaged(path.read_bytes()):
                    continue
                aside = path.with_suffix(f".damaged-{time.time_ns()}")
                path.rename(aside)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise explain_os_error(error, where=str(path)) from error
            print(f"{path} is damaged; it is kept as {aside.name} and gathered again", file=sys.stderr)

    def data_of_sweep(self, wildcards: Wildcards) -> list[str]:
        """The token files that a sweep reads."""
        names = {run.protocol.data for run in self._runs(wildcards) if isinstance(run, TrainingRun)}
        return [f"results/data/{name}{suffix}" for name in sorted(names) for suffix in (".json", ".bin")]

    def run_ids(self, wildcards: Wildcards) -> str:
        """The runs of a sweep: with `definitions`, all of a study that may cause it to be gathered anew."""
        return " ".join(run_id(run) for run in self._runs(wildcards))

    def definitions(self, wildcards: Wildcards) -> str:
        """A digest of what a sweep's names mean: models, hardware, data, columns. A change gathers it anew."""
        runs = self._runs(wildcards)
        training = [run for run in runs if isinstance(run, TrainingRun)]
        named = [
            *(self.config.catalogue.models[name] for name in sorted({run.model for run in training})),
            *(self.config.catalogue.hardware[name] for name in sorted({run.hardware for run in runs})),
            *(self.config.dataset(name) for name in sorted({run.protocol.data for run in training})),
        ]
        content = msgspec.json.encode([SCHEMA_VERSION, *named], order="sorted")
        return hashlib.sha256(content).hexdigest()[:16]

    def definition_of_data(self, wildcards: Wildcards) -> str:
        """A digest of a data set's definition."""
        definition = msgspec.json.encode(self.config.dataset(wildcards.dataset), order="sorted")
        return hashlib.sha256(definition).hexdigest()[:16]

    def presented(self, wildcards: Wildcards) -> str:
        """A digest of what a figure, a table or the paper prints of a study's definition: titles and assumptions."""
        study = self.studies[getattr(wildcards, "study", PAPER_STUDY)]
        requests: dict[str, FigureRequest | TableRequest] = {**study.figures, **study.tables}
        request = requests.get(getattr(wildcards, "figure", getattr(wildcards, "table", "")))
        shown = [study.sweeps[name] for name in ([request.sweep] if request else study.sweeps) if name]
        said = [study.title, request, [[sweep.title, sweep.assumptions] for sweep in shown]]
        return hashlib.sha256(msgspec.json.encode(said, order="sorted")).hexdigest()[:16]

    def _runs(self, wildcards: Wildcards) -> list[Run]:
        return expand(self.studies[wildcards.study], wildcards.sweep, self.config.catalogue)

    def drawing_code(self) -> list[str]:
        """The modules that draw; a change of one redraws, and measures nothing."""
        package = Path(__file__).parent
        drawn_by = [*(package / "present").rglob("*"), *(package / "records").glob("*.py")]
        return sorted(str(path) for path in drawn_by if path.suffix in (".py", ".otf"))

    # -- one at a time ------------------------------------------------------------------------------------------

    def lock(self) -> None:
        """Hold the checkout while this process lives; the lock cannot outlive it. Again, it does nothing.

        Raises:
            UserError: another workflow run holds it.
        """
        if self._lock is not None:
            return
        path = self.root / "results" / ".workflow.lock"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = path.open("w", encoding="ascii")
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._lock = file
        except BlockingIOError as error:
            raise UserError(
                "another workflow run is at work in this checkout", where=str(path), remedy="Wait for it, or stop it."
            ) from error
        except OSError as error:
            raise explain_os_error(error, where=str(path)) from error
