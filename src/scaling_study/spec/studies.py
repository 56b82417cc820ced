"""Studies and sweeps: named lists of runs, expanded without any result.

A sweep is written as fields common to its runs (`base`), a product, fields that vary together (`zip`), and points
left out (`exclude_where`). Beside the fields of a run, a point may be written with names that the expansion turns
into fields or tests: `local_batch` (effective: global batch / GPUs), `gpus`, `model_parallel` (tp * pp).
"""

from __future__ import annotations

import difflib
import itertools
import math
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from scaling_study.errors import UserError
from scaling_study.spec.explain import explain_validation_error
from scaling_study.spec.hardware import Hardware
from scaling_study.spec.models import Model
from scaling_study.spec.reported import ReportedTable
from scaling_study.spec.runs import CollectiveRun, Run, TrainingRun, collective_violations, run_id, violations

SweepKind = Annotated[str, Meta(pattern="^(training|collective)$")]
Status = Annotated[str, Meta(pattern="^(ready|planned)$")]
Points = dict[str, list[Any]]
_COUNTS = ("nodes", "dp", "tp", "pp", "gpus", "model_parallel", "local_batch", "global_batch")
#: What a figure shows of the performance model itself; each a table under `results/<study>/model/`.
MODEL_TABLES = ("validation", "sensitivity", "fabric")
#: What a figure shows that needs no file of results.
DEFINITIONS = ("hardware", "roofs", "system")
T = TypeVar("T")


class Sweep(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A named list of runs that figures read.

    Attributes:
        base: fields that all runs share, over the study's `base`.
        product: every combination of these values.
        zip: these lists go together, element by element.
        exclude_where: points to leave out: a condition is a field and a value, a list of values, or a mapping with
            `above` or `below`; a point goes if all conditions of one entry hold.
        every_feasible_layout: points that break an invariant are no part of the sweep (the paper's "every viable
            tp x pp"); without it such a point is an error.
        part_of_node: runs may have fewer ranks than their one node has GPUs; `dp` is then given.
        as_time_allows: some runs may be left out where they are measured, so records of a part of them are whole.
        assumptions: what the source leaves open and was decided here.
        status: `planned`: listed, but the study's targets leave it out.
    """

    title: str
    kind: SweepKind = "training"
    base: dict[str, Any] = {}
    product: Points = {}
    zip: Points = {}
    exclude_where: tuple[dict[str, Any], ...] = ()
    every_feasible_layout: bool = False
    part_of_node: bool = False
    as_time_allows: bool = False
    assumptions: tuple[str, ...] = ()
    status: Status = "ready"


class FigureRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A figure of a study: what it shows.

    Attributes:
        sweep: whose records; None where it shows something else.
        of: that: `hardware`, as its files have it; `roofs`, tensor parallelism by data sheets; `system`, a drawing of
            this one; `validation`, the performance model against public measurements that it was not fitted on;
            `sensitivity`, what its predictions hang on; `fabric`, what pacing is predicted to change;
            `synchronisation`, what the study's platform observed.
        draw: the module that draws it, if it is not named after the figure.
        where: values that columns of the records must have, such as `{hardware: a100}`, where a sweep has several.
        timelines: ids of runs of the sweep whose predicted timelines it shows beside the records.
    """

    sweep: str | None = None
    of: Literal["hardware", "roofs", "system", "validation", "sensitivity", "fabric", "synchronisation"] | None = None
    draw: str | None = None
    where: dict[str, str | int] = {}
    timelines: tuple[Annotated[str, Meta(pattern="^[A-Za-z0-9_.-]+$")], ...] = ()

    def __post_init__(self) -> None:
        if (self.sweep is None) == (self.of is None):
            raise ValueError("a figure shows either the records of a sweep or `of` something else")
        if self.timelines and self.sweep is None:
            raise ValueError("timelines are of runs of a sweep, which the figure must name")


class TableRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of a study.

    Attributes:
        sweep: of whose records; None for a table of definitions alone, or of something else.
        of: that: `claims`, judged by every record that there is; `fabric`, a table of the performance model.
    """

    sweep: str | None = None
    of: Literal["claims", "fabric"] | None = None

    def __post_init__(self) -> None:
        if self.sweep is not None and self.of is not None:
            raise ValueError("a table shows the records of a sweep or `of` something else, not both")


class ReportedPoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A number that the source prints of a sweep, drawn beside ours.

    Attributes:
        sweep: of whose runs.
        where: values of the columns of a record: the fastest of these runs gives the place in a figure.
        metric: column that the number is of.
        value: the number, in the column's unit; None where the source prints a change.
        bound: that the source says no more than this of it; such a number is not drawn.
        change: of the metric, from our own number at the runs of `since`; a fraction, -0.37 for a fall by 37%.
        source: where the source prints it.
    """

    sweep: str
    where: dict[str, str | int]
    metric: str
    value: float | None = None
    bound: Literal["below", "above"] | None = None
    change: float | None = None
    since: dict[str, str | int] = {}
    source: str

    def __post_init__(self) -> None:
        if (self.value is None) == (self.change is None) or bool(self.since) != (self.change is not None):
            raise ValueError("a reported point has a value, or a change and what it is since")


class Study(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A named set of sweeps with what their runs share, the figures and tables drawn from them, and what is reported.

    Attributes:
        platform: measures it where nothing else is said; `predict` is the performance model.
        reported: what sources print of its sweeps.
        reported_tables: more of it, names of CSV files in `config/reported`.
    """

    name: str
    title: str
    platform: str
    base: dict[str, Any] = {}
    sweeps: dict[str, Sweep]
    figures: dict[str, FigureRequest] = {}
    tables: dict[str, TableRequest] = {}
    reported: tuple[ReportedPoint, ...] = ()
    reported_tables: tuple[Annotated[str, Meta(pattern="^[a-z0-9-]+$")], ...] = ()

    def __post_init__(self) -> None:
        for what, names, pattern in (
            ("sweep", self.sweeps, r"[a-z0-9_]+"),
            ("figure", self.figures, r"[a-z0-9-]+"),
            ("table", self.tables, r"[a-z0-9-]+"),
        ):
            for name in names:
                if not re.fullmatch(pattern, name):
                    raise ValueError(f"the name of the {what} {name!r} does not match {pattern}: it becomes a file")
        requests: dict[str, FigureRequest | TableRequest] = {**self.figures, **self.tables}
        for name, request in requests.items():
            if request.sweep is not None and request.sweep not in self.sweeps:
                raise ValueError(f"{name!r} draws the sweep {request.sweep!r}, which the study does not have")
        for point in self.reported:
            if point.sweep not in self.sweeps:
                raise ValueError(f"`reported` names the sweep {point.sweep!r}, which the study does not have")

    def figure(self, name: str) -> FigureRequest:
        """What the study says of a figure.

        Raises:
            UserError: it has no such figure.
        """
        return _request(self, "figure", name, self.figures)

    def table(self, name: str) -> TableRequest:
        """What the study says of a table.

        Raises:
            UserError: it has no such table.
        """
        return _request(self, "table", name, self.tables)


def _request(study: Study, what: str, name: str, requests: Mapping[str, T]) -> T:
    if name not in requests:
        known = ", ".join(requests) or "none"
        raise UserError(
            f"there is no {what} {name!r}", where=f"study {study.name}", remedy=f"{what.capitalize()}s: {known}."
        )
    return requests[name]


class Catalogue(msgspec.Struct, frozen=True, kw_only=True):
    """The models and the hardware that runs may name, and the tables that sources print of them."""

    models: Mapping[str, Model]
    hardware: Mapping[str, Hardware]
    reported: Mapping[str, ReportedTable] = {}


def named(known: Mapping[str, T], name: str, where: str) -> T:
    """The model, the hardware or whatever else has that name.

    Args:
        known: everything, by name.
        where: the name was given, such as an option.

    Raises:
        UserError: there is none.
    """
    if name not in known:
        raise UserError(f"unknown: {name!r}", where=where, remedy=f"Known: {', '.join(known)}.")
    return known[name]


def expand(study: Study, sweep_name: str, catalogue: Catalogue) -> list[Run]:
    """The runs of one sweep, in the order written, without duplicates.

    Raises:
        UserError: the study has no such sweep, or a point names an unknown model, hardware or field, or breaks an
            invariant in a sweep that does not ask for feasible layouts only.
    """
    if sweep_name not in study.sweeps:
        raise UserError(
            f"there is no sweep {sweep_name!r}",
            where=f"study {study.name}",
            remedy=f"Sweeps: {', '.join(study.sweeps)}.",
        )
    sweep, where = study.sweeps[sweep_name], f"study {study.name}, sweep {sweep_name}"
    runs: dict[str, Run] = {}
    for point in _points(sweep, study.base if sweep.kind == "training" else {}, where):
        run = _run(point, sweep, catalogue, where)
        if run is not None:
            runs.setdefault(run_id(run), run)
    if not runs:
        raise UserError("no point is left", where=where, remedy="Check product, zip and exclude_where.")
    return list(runs.values())


def find_training_run(study: Study, name: str, catalogue: Catalogue) -> TrainingRun:
    """The training run of a study with that id.

    Raises:
        UserError: there is none; one of a similar name is offered.
    """
    runs = {
        run_id(run): run
        for sweep in study.sweeps
        for run in expand(study, sweep, catalogue)
        if isinstance(run, TrainingRun)
    }
    if name not in runs:
        close = difflib.get_close_matches(name, runs, n=1, cutoff=0.8)
        hint = f"Did you mean {close[0]}? " if close else ""
        raise UserError(
            f"there is no training run {name!r}",
            where=f"study {study.name}",
            remedy=f"{hint}`scaling-study runs {study.name}` lists them.",
        )
    return runs[name]


def _points(sweep: Sweep, base: Mapping[str, Any], where: str) -> Iterator[dict[str, Any]]:
    lengths = {name: len(values) for name, values in sweep.zip.items()}
    if len(set(lengths.values())) > 1:
        raise UserError(f"the lists of zip differ in length ({lengths})", where=where, remedy="Give one value each.")
    zipped = [dict(zip(sweep.zip, values, strict=True)) for values in zip(*sweep.zip.values(), strict=True)]
    product = [dict(zip(sweep.product, values, strict=True)) for values in itertools.product(*sweep.product.values())]
    for together, combination in itertools.product(zipped if sweep.zip else [{}], product):
        yield {**base, **sweep.base, **together, **combination}


def _run(point: dict[str, Any], sweep: Sweep, catalogue: Catalogue, where: str) -> Run | None:
    hardware = _lookup(catalogue.hardware, point.get("hardware"), "hardware", where)
    if sweep.kind == "collective":
        return None if _excluded(point, sweep, where) else _collective(point, sweep, hardware, where)
    model = _lookup(catalogue.models, point.get("model"), "model", where)
    fields, broken = _derive(point, sweep, hardware, where)
    if _excluded(fields, sweep, where):
        return None
    names = {"gpus", "model_parallel", "local_batch"}
    if not broken:
        run = _convert({k: v for k, v in fields.items() if k not in names}, TrainingRun, where)
        broken = violations(run, model, hardware, part_of_node=sweep.part_of_node)
        if not broken:
            return run
    if sweep.every_feasible_layout:
        return None
    raise _impossible("layout", point, sweep, broken, where)


def _collective(point: dict[str, Any], sweep: Sweep, hardware: Hardware, where: str) -> CollectiveRun:
    run = _convert(point, CollectiveRun, where)
    if broken := collective_violations(run, hardware):
        raise _impossible("collective", point, sweep, broken, where)
    return run


def _impossible(what: str, point: dict[str, Any], sweep: Sweep, broken: list[str], where: str) -> UserError:
    shown = ", ".join(f"{name}={point[name]}" for name in (*sweep.zip, *sweep.product)) or "base"
    every = ", or set every_feasible_layout: true" if sweep.kind == "training" else ""
    return UserError(
        f"impossible {what} at {shown}: " + "; ".join(broken),
        where=where,
        remedy=f"Change the values, or leave the point out with exclude_where{every}.",
    )


def _derive(point: dict[str, Any], sweep: Sweep, hardware: Hardware, where: str) -> tuple[dict[str, Any], list[str]]:
    """The point with what follows from it: GPUs, dp, total model parallelism, batches."""
    for name in _COUNTS:
        _check_count(name, point.get(name, 1), where)
    fields = dict(point)
    broken: list[str] = []
    fields["model_parallel"] = degree = point.get("tp", 1) * point.get("pp", 1)
    gpus = point.get("nodes", 1) * hardware.gpus_per_node
    if sweep.part_of_node and "dp" in point:
        gpus = point["dp"] * degree
    fields["gpus"] = gpus
    if "dp" not in fields:
        if gpus % degree:
            broken.append(f"{gpus} GPUs are not divisible by tp*pp ({degree})")
        fields["dp"] = max(1, gpus // degree)
    if "local_batch" in fields and "global_batch" not in fields:
        fields["global_batch"] = fields["local_batch"] * gpus
    _check_agreement("gpus", point, gpus, where)
    _check_agreement("model_parallel", point, degree, where)
    _check_agreement("local_batch", point, fields.get("global_batch", 0) / gpus, where)
    return fields, broken


def _check_count(name: str, value: Any, where: str) -> None:
    if type(value) is not int or value < 1:
        raise UserError(f"{name} must be a whole number above 0, not {value!r}", where=where, remedy="Mend the value.")


def _check_agreement(name: str, point: Mapping[str, Any], follows: float, where: str) -> None:
    """A name that follows from others may be written, but not against them."""
    if name in point and point[name] != follows:
        raise UserError(
            f"{name} ({point[name]}) is given, {follows:g} follows from the other values",
            where=where,
            remedy="Give one or the other.",
        )


def _excluded(fields: Mapping[str, Any], sweep: Sweep, where: str) -> bool:
    return any(
        all(_holds(fields, name, condition, where) for name, condition in entry.items())
        for entry in sweep.exclude_where
    )


def _holds(fields: Mapping[str, Any], name: str, condition: Any, where: str) -> bool:
    if name not in fields:
        raise UserError(
            f"exclude_where names {name!r}, which no point has",
            where=where,
            remedy=f"Names: {', '.join(sorted(fields))}.",
        )
    value = fields[name]
    if isinstance(condition, dict):
        unknown = set(condition) - {"above", "below"}
        if unknown or not condition:
            raise UserError(
                f"a condition on {name!r} has {sorted(unknown) or 'nothing'}", where=where, remedy="Use above or below."
            )
        if not all(isinstance(number, int | float) for number in (value, *condition.values())):
            raise UserError(
                f"above and below compare numbers, here {name!r} is {value!r} and the condition {condition}",
                where=where,
                remedy="Use a value or a list of values.",
            )
        return bool(condition.get("above", -math.inf) < value < condition.get("below", math.inf))
    return bool(value in condition) if isinstance(condition, list) else bool(value == condition)


def _lookup(known: Mapping[str, T], name: Any, what: str, where: str) -> T:
    if isinstance(name, str) and name in known:
        return known[name]
    raise UserError(
        f"unknown {what} {name!r}" if name else f"a point names no {what}",
        where=where,
        remedy=f"Known: {', '.join(sorted(known))}. Others go into config/{'models' if what == 'model' else what}/.",
    )


def _convert(fields: Mapping[str, Any], kind: type[T], where: str) -> T:
    tag = {"kind": "training" if kind is TrainingRun else "collective"}
    try:
        return msgspec.convert({**fields, **tag}, kind)
    except msgspec.ValidationError as error:
        raise explain_validation_error(error, where) from error
