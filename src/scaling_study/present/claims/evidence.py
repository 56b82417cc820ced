"""What claims are judged by: records by where they come from, tables of definitions, what predictions hang on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
import polars as pl

from scaling_study.present.tables import OF_DEFINITIONS
from scaling_study.records import best_layouts
from scaling_study.records.schema import LAYOUT, RUN_COLUMNS, SCHEMA
from scaling_study.spec import Catalogue, Claim, Executor, Outcome, Place, Provenance

#: Columns that follow from those of a record: what they are is in their names.
DERIVED = {
    "model_parallel": pl.col("tp") * pl.col("pp"),
    "total_power_w": pl.col("power_w_per_gpu") * pl.col("gpus"),
    "exposed_of_communication": pl.col("exposed_communication_s") / pl.col("communication_s"),
}
COLUMNS = {*SCHEMA, *DERIVED}
PROVENANCE = {
    Place.CLUSTER: Provenance.MEASURED,
    Place.LOCAL: Provenance.MEASURED,
    Place.MODEL: Provenance.PREDICTED,
    Place.SOURCES: Provenance.REPORTED,
}
_ACROSS_REPEATS = tuple(name for name in RUN_COLUMNS if name not in ("run_id", "repeat"))
_LAYOUT = tuple(name for name in LAYOUT if name != "repeat")


class UntestableError(Exception):
    """A claim cannot be judged at a place; the message says why."""


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """All that claims are judged by.

    Attributes:
        frames: records by sweep, by place.
        catalogue: hardware, models, and what sources print of them.
        sensitivity: what predicted changes hang on (`scaling-study sensitivity`); None where nobody looked.
        made: tables of definitions that were asked for.
    """

    frames: Mapping[Place, Mapping[str, pl.DataFrame]]
    catalogue: Catalogue
    sensitivity: pl.DataFrame | None = None
    made: dict[str, pl.DataFrame] = {}

    def rows(self, claim: Claim, sweep: str, place: Place) -> pl.DataFrame:
        """The `ok` records of a sweep at a place, each layout with its fastest micro-batch, repeats averaged.

        Raises:
            UntestableError: there are none, or none that says anything of the claim.
        """
        frame = self.frames.get(place, {}).get(sweep)
        if frame is None or frame.is_empty():
            raise UntestableError(f"there are no records of {sweep}")
        if claim.about == "hardware":
            frame = self._of_hardware(frame)
        frame = frame.filter(pl.col("outcome") == Outcome.OK)
        if frame.is_empty():
            raise UntestableError(f"no run of {sweep} ended well")
        return best_layouts(over_repeats(frame), _LAYOUT).with_columns(**DERIVED)

    def _of_hardware(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The records of accelerators whose ranks share nothing."""
        parts = [name for name, one in self.catalogue.hardware.items() if one.part]
        crowded = frame["oversubscribed"].fill_null(value=False)
        said = frame.filter(pl.col("hardware").is_in(parts) & ~crowded)
        if said.is_empty():
            named = ", ".join(frame["hardware"].unique().sort())
            more = f", {crowded.sum()} of {frame.height} oversubscribed" if crowded.any() else ""
            raise UntestableError(f"it is about GPUs, and these runs are of {named}{more}")
        return said

    def table(self, name: str) -> pl.DataFrame:
        """A table of definitions.

        Raises:
            UntestableError: nothing makes it.
        """
        if name not in OF_DEFINITIONS:
            raise UntestableError(f"there is no table {name} yet")
        if name not in self.made:
            self.made[name] = OF_DEFINITIONS[name](self.catalogue)
        return self.made[name]


def over_repeats(frame: pl.DataFrame) -> pl.DataFrame:
    """One record for all repeats of a run: means of numbers, the rest of the first; `repeat` 0."""
    if frame["repeat"].fill_null(0).max() == 0:
        return frame
    means = [pl.col(name).mean() for name, kind in SCHEMA.items() if kind == pl.Float64]
    rest = [pl.col(name).first() for name, kind in SCHEMA.items() if kind != pl.Float64 and name not in _ACROSS_REPEATS]
    merged = frame.sort("run_id").group_by(_ACROSS_REPEATS, maintain_order=True).agg(*means, *rest)
    return merged.with_columns(repeat=pl.lit(0, pl.Int64)).select(*SCHEMA)


def by_place(
    frames: Iterable[tuple[str, pl.DataFrame]], executors: Mapping[str, Executor]
) -> dict[Place, dict[str, pl.DataFrame]]:
    """Records by place and sweep.

    Args:
        frames: a sweep with some of its records, as often as there are files.
        executors: of platforms by name; measured on one that is not known counts as measured on a cluster.
    """
    local = [name for name, executor in executors.items() if executor is Executor.LOCAL]
    here, measured = pl.col("platform").is_in(local), pl.col("provenance") == Provenance.MEASURED
    conditions = {
        Place.CLUSTER: measured & ~here,
        Place.LOCAL: measured & here,
        Place.MODEL: pl.col("provenance") == Provenance.PREDICTED,
    }
    found: dict[Place, dict[str, pl.DataFrame]] = {place: {} for place in conditions}
    for sweep, frame in frames:
        for place, condition in conditions.items():
            part = frame.filter(condition)
            if not part.is_empty():
                others = found[place].get(sweep)
                found[place][sweep] = part if others is None else pl.concat([others, part])
    return found
