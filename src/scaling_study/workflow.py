"""What the Snakefile asks: which files a study has, from what they are made, and that it runs alone.

The workflow reads records from one of two places and never mixes them: `results/` where it measures and predicts, or
`results/cached/` where it only draws; the `cached` profile has no rule that measures or predicts.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any, Protocol

import msgspec

from scaling_study.errors import UserError, explain_os_error
from scaling_study.recordfile import SCHEMA_VERSION, is_damaged
from scaling_study.spec import (
    DEFINITIONS,
    MODEL_TABLES,
    PREDICT,
    Config,
    Executor,
    FigureRequest,
    Run,
    Study,
    TableRequest,
    TrainingRun,
    can_measure,
    expand,
    run_id,
)

#: Stands for every figure and table while all of them are drawn by one job.
DRAWN = "results/.drawn"
PAPER, REPORT, PAPER_STUDIES = "paper/paper.pdf", "results/report.html", ("mini", "paper")
#: What a figure shows of synchronisations.
OBSERVED = "synchronisation"
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


class Drawing(msgspec.Struct, frozen=True):
    """A figure or a table of a study, and the files that it is made of."""

    study: str
    name: str
    files: tuple[str, ...]
    timelines: tuple[str, ...] = ()
    is_table: bool = False


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
        known = {"studies", "source", "study", "figure", "platform", "config_folder", "budget_gpu_hours"}
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
        chosen = str(settings.get("studies", ",".join(PAPER_STUDIES)))
        names = [str(settings["study"])] if "figure" in settings else chosen.split(",")
        self.studies = {name: self.config.study(name) for name in names}
        self._platform = settings.get("platform")
        self.platforms = {name: str(self._platform or study.platform) for name, study in self.studies.items()}
        if not self.cached:
            for platform in set(self.platforms.values()) - {PREDICT}:
                self.config.platform(platform)
        self._budget = settings.get("budget_gpu_hours")
        self.cores = os.cpu_count() or 1  # Snakemake lowers what a rule asks to what it was given
        self._figure = settings.get("figure")
        self._lock: IO[str] | None = None

    # -- files --------------------------------------------------------------------------------------------------

    @property
    def place(self) -> str:
        """The folder of all that figures are drawn from."""
        return "results/cached" if self.cached else "results"

    def records(self, study: str, sweep: str) -> str:
        """The record file of a sweep."""
        return f"{self.place}/{study}/{self.platforms[study]}/{sweep}.parquet"

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
        request = study.figure(str(self._figure))
        if self.cached:
            self._require([*self._drawn_from(study.name, request), *self._timelines(study.name, request)])
        return [f"figures/{study.name}/{self._figure}{suffix}" for suffix in FIGURE_SUFFIXES]

    # -- inputs and parameters of rules -------------------------------------------------------------------------

    def is_local(self, study: str) -> bool:
        """Whether a study is measured on this machine, where runs disturb each other."""
        platform = self.platforms[study]
        return platform != PREDICT and self.config.platform(platform).executor is Executor.LOCAL

    def measuring_threads(self, wildcards: Wildcards) -> int:
        """Cores that measuring a sweep keeps from others: all of this machine, or one that watches jobs elsewhere."""
        return self.cores if self.is_local(wildcards.study) else 1

    def local_runs(self, wildcards: Wildcards) -> int:
        """How many of this machine's places for measured runs a sweep takes."""
        return 1 if self.is_local(wildcards.study) else 0

    def figure_records(self, wildcards: Wildcards) -> list[str]:
        """The files that a figure is drawn from: records or a table; none for one of definitions alone."""
        return self._drawn_from(wildcards.study, self.studies[wildcards.study].figures[wildcards.figure])

    def _drawn_from(self, study: str, request: FigureRequest) -> list[str]:
        if request.of in MODEL_TABLES:
            return [self._model_table(study, str(request.of))]
        if request.of == OBSERVED:
            return [self._observed(study)]
        return self._sweep_records(study, request.sweep) if request.sweep else []

    def _sweep_records(self, study: str, sweep: str) -> list[str]:
        """The record files of a sweep: what the platform measured, and what is predicted if the study is."""
        predicted = f"{self.place}/{study}/{PREDICT}/{sweep}.parquet"
        if self.studies[study].platform != PREDICT or self.platforms[study] == PREDICT:
            return [self.records(study, sweep)]
        own = [self.records(study, sweep)] if self._measured(study, sweep) else []
        return [*own, predicted]

    def _measured(self, study: str, sweep: str) -> bool:
        """Whether a study's platform has the hardware of some run of a sweep."""
        catalogue = self.config.catalogue
        hardware = catalogue.hardware[self.config.platform(self.platforms[study]).hardware]
        return any(can_measure(run, hardware) for run in expand(self.studies[study], sweep, catalogue))

    def _model_table(self, study: str, name: str) -> str:
        """A table of the performance model: of its errors, or of what a prediction hangs on."""
        return f"{self.place}/{study}/model/{name}.parquet"

    def _observed(self, study: str) -> str:
        """What the ranks of a study's platform observed."""
        return f"{self.place}/{study}/{self.platforms[study]}/observed/coordination.parquet"

    def figure_timelines(self, wildcards: Wildcards) -> list[str]:
        """The timelines that a figure shows."""
        return self._timelines(wildcards.study, self.studies[wildcards.study].figures[wildcards.figure])

    def timeline_options(self, wildcards: Wildcards) -> list[str]:
        """The same as options of the verb."""
        return [f"--timeline {path}" for path in self.figure_timelines(wildcards)]

    def _timelines(self, study: str, request: FigureRequest) -> list[str]:
        return [f"{self.place}/{study}/{PREDICT}/timelines/{run}.parquet" for run in request.timelines]

    def figure_definitions(self, wildcards: Wildcards) -> list[str]:
        """The configuration files that a figure of hardware or of roofs is drawn from; none for another."""
        return self._definitions_of([self.studies[wildcards.study].figures[wildcards.figure]])

    def table_records(self, wildcards: Wildcards) -> list[str]:
        """The files that a table is made of: all that there are for one of claims, none for definitions alone."""
        return self._made_of(wildcards.study, self.studies[wildcards.study].tables[wildcards.table])

    def _made_of(self, study: str, request: TableRequest) -> list[str]:
        if request.of == "claims":
            return [*self.all_records(), *self._all_model_tables()]
        if request.of is not None:
            return [self._model_table(study, request.of)]
        return self._sweep_records(study, request.sweep) if request.sweep else []

    @property
    def draws_all(self) -> bool:
        """Whether every figure is drawn whatever there is, so that one job may do it."""
        return self.cached and self._figure is None

    def drawings(self) -> list[Drawing]:
        """Every table and figure with its files; tables first, since judging claims takes longest."""
        tables = [
            Drawing(study.name, name, tuple(self._made_of(study.name, request)), is_table=True)
            for study in self.studies.values()
            for name, request in study.tables.items()
        ]
        figures = [
            Drawing(
                study.name,
                name,
                tuple(self._drawn_from(study.name, request)),
                tuple(self._timelines(study.name, request)),
            )
            for study in self.studies.values()
            for name, request in study.figures.items()
        ]
        return [*tables, *figures]

    def drawing_options(self) -> list[str]:
        """Studies, and a platform that is not theirs, as arguments of the verb that draws all of them."""
        platform = [f"--platform {self._platform}"] if self._platform else []
        return [*self.studies, *platform]

    def table_definitions(self, wildcards: Wildcards) -> list[str]:
        """The configuration files that a table of definitions alone is made of; none for one of records."""
        return self._definitions_of([self.studies[wildcards.study].tables[wildcards.table]])

    def paper_definitions(self) -> list[str]:
        """The same for the tables that the paper writes anew."""
        return self._definitions_of([table for study in self._reported() for table in study.tables.values()])

    def _definitions_of(self, requests: Iterable[FigureRequest | TableRequest]) -> list[str]:
        asked = list(requests)
        alone = any(one.sweep is None and one.of in (None, "claims", *DEFINITIONS) for one in asked)
        claims = [self.config.claims_file] if any(one.of == "claims" for one in asked) else []
        return [str(path) for path in [*claims, *(self.config.definition_files() if alone else [])]]

    @property
    def has_paper(self) -> bool:
        """Whether the studies that the paper reports are among the studies."""
        return set(PAPER_STUDIES) <= set(self.studies)

    def _reported(self) -> list[Study]:
        return [self.studies[name] for name in PAPER_STUDIES]

    def paper_records(self) -> list[str]:
        """The record files whose numbers the paper prints."""
        return [
            path
            for study in self._reported()
            for sweep in self.sweeps(study)
            for path in self._sweep_records(study.name, sweep)
        ]

    def paper_tables(self) -> list[str]:
        """The tables of the performance model whose numbers the paper prints."""
        return [path for study in self._reported() for path in self._model_tables(study)]

    def _model_tables(self, study: Study) -> list[str]:
        asked = {request.of for request in study.figures.values()}
        return [self._model_table(study.name, name) for name in MODEL_TABLES if name in asked]

    def table_options(self, _: Wildcards) -> list[str]:
        """The same as options of the verb."""
        return [f"--table {path}" for path in self.paper_tables()]

    def paper_figures(self) -> list[str]:
        """The figures that the paper shows."""
        return self._shown(".svg")

    def report_figures(self) -> list[str]:
        """The figures that the report shows."""
        return self._shown(".vl.json")

    def _shown(self, suffix: str) -> list[str]:
        """Each figure of the paper in one format, or what stands for all of them."""
        if self.draws_all:
            return [DRAWN]
        return [f"figures/{study.name}/{figure}{suffix}" for study in self._reported() for figure in study.figures]

    def report_timelines(self) -> list[str]:
        """The timelines that some figure shows."""
        requests = [(study.name, request) for study in self._reported() for request in study.figures.values()]
        return list(dict.fromkeys(path for study, request in requests for path in self._timelines(study, request)))

    def report_timeline_options(self, _: Wildcards) -> list[str]:
        """The same as options of the verb."""
        return [f"--timeline {path}" for path in self.report_timelines()]

    def model_inputs(self) -> list[str]:
        """The code of the performance model and the tables that it reads; a change of one predicts anew."""
        package = Path(__file__).parent
        rooms = ("predict", "roofline", "timeline", "records", "synchronisation")
        code = [path for room in rooms for path in (package / room).glob("*.py")]
        tables = [path for path in (self.config.root / "calibration").glob("*.*") if path.suffix in (".yaml", ".csv")]
        return sorted(str(path) for path in [*code, *tables])

    def printed_table(self) -> str:
        """What a source prints of pacing."""
        return str(self.config.root / "reported" / "wsf-table1.csv")

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
            self._require([*records, *self.other_inputs()])
        drawn = [DRAWN] if self.draws_all else [*self.figures(), *self.tables()]
        return [*records, *drawn, *([PAPER, REPORT] if self.has_paper else [])]

    def other_inputs(self) -> list[str]:
        """What figures are drawn from beside records: timelines, and tables of the performance model."""
        requests = [(study.name, request) for study in self.studies.values() for request in study.figures.values()]
        timelines = [path for study, request in requests for path in self._timelines(study, request)]
        observed = [self._observed(study) for study, request in requests if request.of == OBSERVED]
        return [*dict.fromkeys(timelines), *self._all_model_tables(), *dict.fromkeys(observed)]

    def _all_model_tables(self) -> list[str]:
        return [path for study in self.studies.values() for path in self._model_tables(study)]

    def made(self) -> list[str]:
        """What a person finds where, after the workflow has ended well."""
        lines = [f"figures and tables: figures/{name}/" for name in self.studies]
        if self.has_paper and self._figure is None:
            lines += [f"paper: {PAPER}", f"report: {REPORT}"]
        return lines

    def all_records(self) -> list[str]:
        """The record file of every sweep of every study."""
        return [
            path
            for study in self.studies.values()
            for sweep in self.sweeps(study)
            for path in self._sweep_records(study.name, sweep)
        ]

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
        of_one = getattr(wildcards, "study", None)
        studies = [self.studies[of_one]] if of_one else self._reported()
        name = getattr(wildcards, "figure", getattr(wildcards, "table", ""))
        said = [_presented(study, name) for study in studies]
        return hashlib.sha256(msgspec.json.encode(said, order="sorted")).hexdigest()[:16]

    def _runs(self, wildcards: Wildcards) -> list[Run]:
        """The runs of a sweep that its job is about: all of them, or those of the platform's hardware."""
        runs = expand(self.studies[wildcards.study], wildcards.sweep, self.config.catalogue)
        platform = getattr(wildcards, "platform", PREDICT)
        if platform == PREDICT:
            return runs
        hardware = self.config.platform(platform).hardware
        return [run for run in runs if run.hardware == hardware]

    def drawing_code(self) -> list[str]:
        """The modules that draw; a change of one redraws, and measures nothing."""
        package = Path(__file__).parent
        modules = [path for room in ("records", "roofline") for path in (package / room).glob("*.py")]
        drawn_by = [*(package / "present").rglob("*"), *modules]
        return sorted(str(path) for path in drawn_by if path.suffix in (".py", ".otf", ".js", ".css", ".j2"))

    def check_budget(self) -> None:
        """Refuse to begin what would take more GPU-hours than the profile allows (`budget_gpu_hours`).

        Raises:
            UserError: it would, or the budget is no number.
        """
        if self._budget is None or self.cached:
            return
        try:
            budget = float(self._budget)
        except (TypeError, ValueError) as error:
            what = f"budget_gpu_hours is {self._budget!r}, a number is needed"
            raise UserError(what, where="--config", remedy="Mend the profile.") from error
        from scaling_study.listing import list_runs

        asked = {name: platform for name, platform in self.platforms.items() if platform != PREDICT}
        rows = {
            (platform, row["run_id"]): row["expected"].gpu_hours
            for name, platform in asked.items()
            for row in list_runs(self.config, name, None, platform)["runs"]
            if set(row["sweeps"]) & set(self.sweeps(self.studies[name]))
        }
        hours = sum(rows.values())  # a run that several sweeps or studies share is measured once
        if not hours <= budget:  # nan allows nothing
            raise UserError(
                f"all of it takes about {hours:,.0f} GPU-hours, the budget is {budget:,.0f} (budget_gpu_hours)",
                where=", ".join(asked.values()),
                remedy="Raise it, or leave out sweeps; `scaling-study runs STUDY --platform P` says what takes it.",
            )

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


def cancel_timers() -> None:
    """End without waiting: Snakemake 9.27 looks for more jobs a second after it has started one, even its last."""
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer):
            thread.cancel()


def _presented(study: Study, name: str) -> list[Any]:
    """What a figure or a table prints of a study, or all of it where none is named."""
    requests: dict[str, FigureRequest | TableRequest] = {**study.figures, **study.tables}
    request = requests.get(name)
    shown = [study.sweeps[sweep] for sweep in ([request.sweep] if request else study.sweeps) if sweep]
    return [study.title, request, study.reported, [[sweep.title, sweep.assumptions] for sweep in shown]]
