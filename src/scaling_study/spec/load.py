"""YAML files of `config/` into typed values, with errors that name file, key and remedy."""

from __future__ import annotations

import csv
import difflib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, NoReturn, TypeVar

import msgspec
import yaml
from msgspec import Meta

from scaling_study.errors import UserError, explain_os_error
from scaling_study.spec.claims import MEASURES, Claim, Claims
from scaling_study.spec.datasets import Dataset
from scaling_study.spec.explain import explain_validation_error
from scaling_study.spec.hardware import Hardware
from scaling_study.spec.models import Model
from scaling_study.spec.platforms import Platform
from scaling_study.spec.reported import ReportedTable
from scaling_study.spec.studies import Catalogue, ReportedPoint, Study

T = TypeVar("T")
_POINT = ("sweep", "metric", "value", "source")
_RESOLVED_ANEW = {
    "tag:yaml.org,2002:bool": (r"^(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
    "tag:yaml.org,2002:float": (
        r"^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$",
        "-+0123456789.",
    ),
}


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Safe YAML that refuses a key given twice instead of keeping the last.

    Scalars are read as YAML 1.2 reads them: `off` is a word and `3e-4` a number; YAML 1.1 has it the other way round.
    """

    yaml_implicit_resolvers: ClassVar[dict[str, list[tuple[str, re.Pattern[str]]]]] = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag not in _RESOLVED_ANEW]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            if not isinstance(key_node, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(None, None, "found unhashable key", key_node.start_mark)
            key = self.construct_object(key_node, deep=deep)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} is given twice", key_node.start_mark
                )
            seen.add(key)
        return dict(super().construct_mapping(node, deep=deep))


for _tag, (_pattern, _first) in _RESOLVED_ANEW.items():
    _Loader.add_implicit_resolver(_tag, re.compile(_pattern), list(_first))


class Config:
    """The configuration folder, read lazily: studies, platforms, models, hardware, data sets, tables of sources."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._catalogue: Catalogue | None = None
        self._studies: dict[str, Study] = {}

    def study(self, name: str) -> Study:
        """The study of that name, with what its tables of reported numbers hold.

        Raises:
            UserError: it or a table does not exist or is not valid.
        """
        if name not in self._studies:
            study = self._one("studies", name, Study)
            points = [point for path in self.reported_files(study) for point in read_points(path)]
            self._studies[name] = msgspec.structs.replace(study, reported=(*study.reported, *points))
        return self._studies[name]

    def reported_files(self, study: Study) -> list[Path]:
        """The tables of reported numbers that a study names."""
        return [self.root / "reported" / f"{table}.csv" for table in study.reported_tables]

    def platform(self, name: str) -> Platform:
        """The platform of that name; its hardware is known."""
        platform = self._one("platforms", name, Platform)
        if platform.hardware not in self.catalogue.hardware:
            raise UserError(
                f"unknown hardware {platform.hardware!r}",
                where=str(self._path("platforms", name)),
                remedy=f"Known: {', '.join(self.catalogue.hardware)}.",
            )
        return platform

    @property
    def platforms(self) -> dict[str, Platform]:
        """Every platform in the folder, by name."""
        return self._all("platforms", Platform)

    def dataset(self, name: str) -> Dataset:
        """The data set of that name."""
        return self._one("data", name, Dataset)

    @property
    def catalogue(self) -> Catalogue:
        """Every model, every hardware and every table of a source in the folder."""
        if self._catalogue is None:
            self._catalogue = Catalogue(
                models=self._all("models", Model),
                hardware=self._all("hardware", Hardware),
                reported=self._all("reported", ReportedTable),
            )
        return self._catalogue

    @property
    def claims_file(self) -> Path:
        """Where the claims are."""
        return self.root / "claims.yaml"

    @property
    def claims(self) -> Claims:
        """Every claim; their sweeps are those of a study.

        Raises:
            UserError: there is no such file, or a claim is not valid.
        """
        content = read_yaml(self.claims_file)
        known = {sweep for name in self._names("studies") for sweep in self.study(name).sweeps}
        whole = _converted(content, _Outline, str(self.claims_file))
        claims = {name: self._claim(name, claim, known) for name, claim in whole.claims.items()}
        return Claims(title=whole.title, apart=whole.apart, claims=claims)

    def _claim(self, name: str, content: dict[str, Any], sweeps: set[str]) -> Claim:
        """One claim; an error names it."""
        where = f"{self.claims_file}, claim {name}"
        checks = content.get("checks")
        for check in checks if isinstance(checks, list) else []:
            if isinstance(check, dict) and check.get("measure") not in MEASURES:
                _refuse("measure", str(check.get("measure")), MEASURES, where)
        claim = _converted(content, Claim, where)
        for sweep in sorted(claim.sweeps - sweeps):
            _refuse("sweep", sweep, sorted(sweeps), where)
        return claim

    def definition_files(self) -> list[Path]:
        """The files of what is made of definitions alone: those of hardware, models and what sources print."""
        folders = ("hardware", "models", "reported")
        return [self._path(folder, name) for folder in folders for name in self._names(folder)]

    def _path(self, folder: str, name: str) -> Path:
        return self.root / folder / f"{name}.yaml"

    def _names(self, folder: str) -> list[str]:
        return sorted(path.stem for path in (self.root / folder).glob("*.yaml"))

    def _one(self, folder: str, name: str, kind: type[T]) -> T:
        path, known = self._path(folder, name), self._names(folder)
        if not path.parent.is_dir():
            raise UserError(
                "there is no such folder", where=str(path.parent), remedy="Start from the checkout, or give --config."
            )
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"Did you mean {close[0]!r}? " if close else ""
            raise UserError(
                f"there is no {path.name}", where=str(path.parent), remedy=f"{hint}Known: {', '.join(known) or 'none'}."
            )
        return self._read(path, kind)

    def _all(self, folder: str, kind: type[T]) -> dict[str, T]:
        return {name: self._read(self._path(folder, name), kind) for name in self._names(folder)}

    def _read(self, path: Path, kind: type[T]) -> T:
        content = read_yaml(path)
        if kind is Hardware and "based_on" in content:
            content = self._inherit(path, content)
        return _converted({"name": path.stem, **content}, kind, str(path))

    def _inherit(self, path: Path, content: dict[str, Any]) -> dict[str, Any]:
        """A variant over what it is based on; its sources are added to the base's."""
        name, known = content.pop("based_on"), self._names("hardware")
        if name not in known:
            raise UserError(
                f"based_on names {name!r}, which is no hardware",
                where=str(path),
                remedy=f"Known: {', '.join(known)}.",
            )
        base = read_yaml(self._path("hardware", name))
        sources = [base.get("sources", {}), content.get("sources", {})]
        if not all(isinstance(part, dict) for part in sources):
            raise UserError("sources must be a mapping of keys to texts", where=str(path), remedy="Mend the value.")
        base.pop("device_names", None)  # a variant is another part, or none that exists
        return {**base, **content, "sources": {**sources[0], **sources[1]}}


class _Outline(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The file of claims, before each of them is looked at."""

    title: str
    apart: tuple[str, ...] = ()
    claims: dict[Annotated[str, Meta(pattern="^[a-z0-9-]+$")], dict[str, Any]]


def _converted(content: dict[str, Any], kind: type[T], where: str) -> T:
    try:
        return msgspec.convert(content, kind, strict=True)
    except msgspec.ValidationError as error:
        raise explain_validation_error(error, where) from error


def _refuse(what: str, name: str, known: Sequence[str], where: str) -> NoReturn:
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"Did you mean {close[0]!r}? " if close else ""
    raise UserError(f"there is no {what} {name!r}", where=where, remedy=f"{hint}Known: {', '.join(known)}.")


def read_points(path: Path) -> list[ReportedPoint]:
    """Reported numbers from a CSV file: `sweep`, `metric`, `value`, `source`; every other column says where.

    Raises:
        UserError: the file cannot be read, or a row is not valid.
    """
    try:
        rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    except (OSError, UnicodeDecodeError) as error:
        cause = error if isinstance(error, OSError) else OSError(str(error))
        raise explain_os_error(cause, where=str(path)) from error
    points = []
    for number, row in enumerate(rows, start=2):
        where = {name: int(value) if value.isdecimal() else value for name, value in row.items() if name not in _POINT}
        fields = {**{name: row.get(name) for name in _POINT}, "where": where}
        try:
            points.append(msgspec.convert(fields, ReportedPoint, strict=False))
        except msgspec.ValidationError as error:
            raise explain_validation_error(error, f"{path}, line {number}") from error
    return points


def read_yaml(path: Path) -> dict[str, Any]:
    """A YAML mapping.

    Raises:
        UserError: the file cannot be read, is not YAML, gives a key twice or is no mapping.
    """
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)  # noqa: S506  _Loader is a safe loader
    except OSError as error:
        raise explain_os_error(error, where=str(path)) from error
    except (yaml.YAMLError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{path}, line {mark.line + 1}" if mark else str(path)
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise UserError(f"not valid YAML: {problem}", where=place, remedy="Mend the file.") from error
    if not isinstance(content, dict):
        raise UserError("the file must hold a mapping of keys to values", where=str(path), remedy="Mend the file.")
    return content
