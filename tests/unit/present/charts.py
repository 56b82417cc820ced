"""Reading charts in tests: the layers of a specification with their marks, encodings and rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import altair as alt

from scaling_study.present.render import specification


class Layer:
    """One layer of a chart."""

    def __init__(self, spec: dict[str, Any], rows: list[dict[str, Any]]) -> None:
        mark = spec["mark"]
        self.mark: dict[str, Any] = mark if isinstance(mark, dict) else {"type": mark}
        self.type: str = self.mark["type"]
        self.encoding: dict[str, Any] = spec.get("encoding", {})
        self.rows = rows

    def field(self, channel: str) -> str | None:
        return self.encoding.get(channel, {}).get("field")

    def pairs(self) -> list[tuple[float, float]]:
        x, y = self.field("x"), self.field("y")
        return [(row[x], row[y]) for row in self.rows]

    def values(self) -> dict[float, float]:
        return dict(self.pairs())


_SPECIFICATIONS: dict[int, tuple[alt.TopLevelMixin, dict[str, Any]]] = {}


def _specification(chart: alt.TopLevelMixin) -> dict[str, Any]:
    """The specification, validated once a chart; the chart is kept, so that its id stays its own."""
    if id(chart) not in _SPECIFICATIONS:
        _SPECIFICATIONS[id(chart)] = (chart, specification(chart))
    return _SPECIFICATIONS[id(chart)][1]


def layers(chart: alt.TopLevelMixin) -> list[Layer]:
    spec = _specification(chart)
    return list(_walk(spec, spec.get("datasets", {}), []))


def _walk(spec: dict[str, Any], datasets: dict[str, Any], rows: list[dict[str, Any]]) -> Iterator[Layer]:
    name = spec.get("data", {}).get("name")
    rows = datasets[name] if name else rows
    if "mark" in spec:
        yield Layer(spec, rows)
    for key in ("layer", "hconcat", "vconcat", "concat"):
        for part in spec.get(key, []):
            yield from _walk(part, datasets, rows)


def drawn(chart: alt.TopLevelMixin, mark: str, y: str | None = None, x: str | None = None) -> list[Layer]:
    """Layers of one mark, along one column."""
    return [
        layer
        for layer in layers(chart)
        if layer.type == mark and y in (None, layer.field("y")) and x in (None, layer.field("x"))
    ]


def crosses(chart: alt.TopLevelMixin) -> list[Layer]:
    return [layer for layer in drawn(chart, "point") if str(layer.mark.get("shape", "")).startswith("M")]


def points(chart: alt.TopLevelMixin, y: str, x: str | None = None) -> list[Layer]:
    """Layers of provenance marks along one column."""
    return [layer for layer in drawn(chart, "point", y, x) if not str(layer.mark["shape"]).startswith("M")]


def texts(chart: alt.TopLevelMixin) -> str:
    """Every text mark and every line of the title, joined by spaces."""
    title = _specification(chart)["title"]
    lines = [*title["text"], *title["subtitle"]]
    for layer in drawn(chart, "text"):
        lines += [str(row[layer.field("text")]) for row in layer.rows]
    return " ".join(lines)
