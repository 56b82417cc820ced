"""The folder `config/calibration`: parts, stacks, networks, and the parameter set of each family of parts."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

from scaling_study.errors import UserError
from scaling_study.predict.parameters import KNOBS, Constants
from scaling_study.predict.setup import Part, Specification, Traits
from scaling_study.spec.explain import explain_validation_error
from scaling_study.spec.load import read_yaml

T = TypeVar("T")


class Estimate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A fitted constant: its value and the interval that holds it with 90% probability, in the unit of its knob."""

    value: float
    low: float
    high: float


class Spread(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Measured over predicted time: its 10% and 90% quantile."""

    low: float
    high: float


class ParameterSet(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The constants of one family of parts.

    Attributes:
        fitted_on: sources of the rows of this family; empty where nothing was measured.
        extrapolated: the family has no measured ground; its rates are a neighbour's.
        error_low, error_high: measured over predicted step time, 10% and 90% quantile over left-out sources.
        small_calls, large_calls: the same of a collective's time below and from `LARGE_MESSAGE` bytes, over tables
            that nothing is fitted on.
    """

    family: str
    fitted_on: tuple[str, ...]
    extrapolated: bool
    error_low: float
    error_high: float
    small_calls: Spread
    large_calls: Spread
    constants: dict[str, Estimate]

    def __post_init__(self) -> None:
        if set(self.constants) != set(KNOBS):
            different = sorted(set(self.constants) ^ set(KNOBS))
            raise ValueError(f"constants must be exactly those of the model; differing: {', '.join(different)}")

    def values(self) -> Constants:
        """The fitted values alone."""
        return Constants(**{name: estimate.value for name, estimate in self.constants.items()})


class _PartEntry(Specification, frozen=True, kw_only=True, forbid_unknown_fields=True):
    names: tuple[str, ...]
    source: str


class _StackEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    match: str
    traits: Traits
    source: str


class Network(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The injection bandwidth of a node, as a paper states it."""

    node_network_gb_per_s: float
    source: str


class _Parts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    parts: dict[str, _PartEntry]


class _Stacks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    stacks: tuple[_StackEntry, ...]


class _Networks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    networks: dict[str, Network]


class Library:
    """Everything that a prediction needs beside the setup; read once.

    Args:
        config_root: the folder that holds `calibration`.
        stated_networks: put the network that a paper states in place of one that a table assumes.
    """

    def __init__(self, config_root: Path, *, stated_networks: bool = True) -> None:
        self.folder = config_root / "calibration"
        self._parts = _convert(self.folder / "parts.yaml", _Parts).parts
        self._stacks = _convert(self.folder / "stacks.yaml", _Stacks).stacks
        self.networks = _convert(self.folder / "networks.yaml", _Networks).networks if stated_networks else {}
        self._names = {name: key for key, entry in self._parts.items() for name in (key, *entry.names)}
        self._sets: dict[str, ParameterSet] = {}

    @property
    def part_names(self) -> list[str]:
        """Every name under which a part is known."""
        return sorted(self._names)

    def part(self, name: str) -> Part | None:
        """The part of that name, or None."""
        key = self._names.get(name)
        if key is None:
            return None
        return Part(name=key, **{field: getattr(self._parts[key], field) for field in Specification.__struct_fields__})

    def traits(self, framework: str) -> Traits:
        """Traits of the first stack whose word the framework's name contains; the defaults where none does."""
        name = framework.lower()
        return next((entry.traits for entry in self._stacks if entry.match in name), Traits())

    def parameter_set(self, family: str) -> ParameterSet:
        """The fitted constants of a family.

        Raises:
            UserError: it has none.
        """
        if family not in self._sets:
            path = self.folder / f"{family}.yaml"
            if not path.exists():
                raise UserError(
                    f"there is no parameter set for {family}", where=str(path), remedy="Run `scaling-study calibrate`."
                )
            self._sets[family] = _convert(path, ParameterSet)
        return self._sets[family]


def _convert(path: Path, kind: type[T]) -> T:
    try:
        return msgspec.convert(read_yaml(path), kind, strict=False)
    except msgspec.ValidationError as error:
        raise explain_validation_error(error, str(path)) from error
