"""Evidence made up for tests; no number here is a result."""

from __future__ import annotations

from typing import Any

import polars as pl

from scaling_study.present.claims import Evidence
from scaling_study.records import SCHEMA
from scaling_study.spec import Claim, Place
from scaling_study.spec.claims import AnyCheck
from tests.unit.samples import CONFIG


def row(**fields: Any) -> dict[str, Any]:
    """A predicted run of data parallelism on H100s."""
    defaults = {
        "kind": "training", "provenance": "predicted", "platform": "predict", "outcome": "ok", "model": "llama2-7b",
        "hardware": "h100", "tp": 1, "pp": 1, "micro_batch": 1, "repeat": 0, "gpus": 8, "words_per_second": 1.0,
    }  # fmt: skip
    made = dict.fromkeys(SCHEMA) | defaults | fields
    made["nodes"] = made["gpus"] // 8
    made["dp"] = made["gpus"] // (made["tp"] * made["pp"])
    made["run_id"] = made["run_id"] or "_".join(
        str(made[name]) for name in ("model", "hardware", "gpus", "tp", "pp", "micro_batch", "pacing", "repeat", "op")
    )
    return made


def frame(*rows: dict[str, Any]) -> pl.DataFrame:
    return pl.DataFrame(list(rows), schema=SCHEMA)


def evidence(place: Place = Place.MODEL, sensitivity: pl.DataFrame | None = None, **frames: pl.DataFrame) -> Evidence:
    return Evidence(frames={place: frames}, catalogue=CONFIG.catalogue, sensitivity=sensitivity)


def claim(*checks: AnyCheck, kind: str = "shape", **fields: Any) -> Claim:
    return Claim(source="S 1", says="it is so", kind=kind, figures=(), checks=checks, **fields)
