"""HST figure 2: the parts of a node and the links between them, and how fast each link is over three generations."""

from __future__ import annotations

from collections.abc import Mapping

import altair as alt
import polars as pl

from scaling_study.present import panels, theme
from scaling_study.present.axes import log_axis, logarithmic, row_axis
from scaling_study.present.context import FigureContext
from scaling_study.present.theme import BLUE, GREEN, ORANGE, PAGE_WIDTH, VERMILLION

TITLE = "A node and its links"
CLAIMS = ("hardware-table",)
GENERATIONS = ("v100", "a100", "h100")
#: Each link: its name, its column, what of the column one GPU has in one direction, its colour.
LINKS = {
    "memory_gb_per_s": ("GPU memory", 1.0, VERMILLION),
    "intra_node_gb_per_s": ("GPU to GPU", 0.5, ORANGE),
    "host_gb_per_s": ("host to GPU", 0.5, GREEN),
    "inter_node_gb_per_s": ("node to node", 1 / 8, BLUE),
}
DIAGRAM, SPEEDS = panels.Box(264, 150), panels.Box(132, 150)
#: One node of the drawing, and how far to the right the second one begins.
NODE, SECOND = panels.Box(118, 110), 146.0
NOTE = (
    "Bandwidth that one GPU has in one direction, from the data sheets: half of what they print for both directions, "
    "an eighth of a node's network. Right: the multiple of the network's."
)


def draw(records: pl.DataFrame, context: FigureContext) -> alt.TopLevelMixin:
    """The node as a drawing, with the speeds of the latest generation; the speeds of all generations beside it."""
    speeds = speed_per_gpu(records)
    latest = {row["quantity"]: row["speed"] for row in speeds.filter(hardware=GENERATIONS[-1]).iter_rows(named=True)}
    parts = (_diagram(latest), _generations(speeds))
    body = alt.hconcat(*parts, spacing=62, bounds="flush")
    sources = records.filter(pl.col("hardware").is_in(GENERATIONS), pl.col("quantity").is_in(list(LINKS)))
    said = {
        "study": context.study,
        "figure": context.figure,
        "claims": list(CLAIMS),
        "sources": sources.select("hardware", "quantity", "source").to_dicts(),
    }
    return panels.titled(body, TITLE, [NOTE], said, context, PAGE_WIDTH)


def speed_per_gpu(records: pl.DataFrame) -> pl.DataFrame:
    """Adds `speed`, GB/s of one GPU in one direction, and `multiple`, of the speed between nodes."""
    share = {name: share for name, (_, share, _) in LINKS.items()}
    frame = records.filter(pl.col("hardware").is_in(GENERATIONS), pl.col("quantity").is_in(list(LINKS)))
    frame = frame.with_columns(
        speed=pl.col("value") * pl.col("quantity").replace_strict(share, return_dtype=pl.Float64)
    )
    network = frame.filter(quantity="inter_node_gb_per_s").select("hardware", network="speed")
    joined = frame.join(network, on="hardware", how="left", maintain_order="left")
    return joined.with_columns(multiple=pl.col("speed") / pl.col("network")).drop("network")


def _generations(speeds: pl.DataFrame) -> alt.LayerChart:
    """A row a link and generation, on a logarithmic axis."""
    rows = [(link, part) for link in LINKS for part in GENERATIONS]
    order = pl.DataFrame({"quantity": [r[0] for r in rows], "hardware": [r[1] for r in rows], "row": range(len(rows))})
    frame = order.join(speeds, on=["quantity", "hardware"], how="inner", maintain_order="left")
    said = [f"{multiple:.2g}{theme.TIMES_SIGN}" for multiple in frame["multiple"]]
    frame = frame.with_columns(label=pl.Series(said, dtype=pl.String))
    x = log_axis("speed", "GB/s", logarithmic(frame["speed"], margin=2.6), format=",~r")
    y = row_axis("row", [part.upper() for _, part in rows], None)
    layers = [panels.level(index * len(GENERATIONS) - 0.5, y, "y", dash=()) for index in range(1, len(LINKS))]
    for link, (name, _, color) in LINKS.items():
        part = frame.filter(quantity=link)
        base = panels.chart(part, "speed", "row", "label").encode(x=x.x(), y=y.y())
        layers.append(base.mark_point(shape="diamond", size=22, fill=color, stroke=color, opacity=1))
        if link != "inter_node_gb_per_s":
            layers.append(base.mark_text(align="left", dx=6, color=color).encode(text="label:N"))
        middle = y.span.fraction(float(part["row"].mean() or 0.0))  # type: ignore[arg-type]
        at = (SPEEDS.width + 4, round(SPEEDS.height * (1 - middle), 2))
        layers.append(panels.words(name, at, color=color))
    return panels.panel(layers, "(b) Three generations", SPEEDS)


def _diagram(latest: Mapping[str, float]) -> alt.LayerChart:
    """Two nodes of eight GPUs on one fabric; places in points from the upper left corner."""
    layers = [*_node(0.0), *_node(SECOND)]
    for left in (0.0, SECOND):
        layers.append(
            panels.straight(
                (left + NODE.width / 2, NODE.height + 4), (left + NODE.width / 2, 130), stroke=BLUE, strokeWidth=2.0
            )
        )
    layers += [
        panels.rectangle((NODE.width / 2 - 20, 130), (SECOND + 40, 18), theme.PAPER, theme.FAINT),
        panels.words("fabric", (DIAGRAM.width / 2, 139), align="center", baseline="middle"),
    ]
    heights = {"intra_node_gb_per_s": 23, "memory_gb_per_s": 45, "host_gb_per_s": 66, "inter_node_gb_per_s": 123}
    for name, y in heights.items():
        if name in latest:
            style = {"color": LINKS[name][2], "align": "center", "baseline": "middle"}
            layers.append(panels.words(f"{latest[name]:,.0f}", (DIAGRAM.width / 2, y), **style))
    return panels.panel(layers, f"(a) Two {GENERATIONS[-1].upper()} nodes, GB/s of one GPU", DIAGRAM)


def _node(left: float) -> list[alt.Chart]:
    """A switch, eight GPUs with their memory, hosts, and the adapters, from above to below."""
    layers = [panels.rectangle((left, 4), (NODE.width, NODE.height), "white", theme.FAINT)]
    for index in range(8):
        x = left + 7 + index * 13.2
        layers += [
            panels.straight((x + 5.2, 20), (x + 5.2, 28), stroke=ORANGE, strokeWidth=2.4),
            panels.rectangle((x, 28), (10.5, 14), theme.GRID, theme.GREY),
            panels.straight((x + 7.2, 42), (x + 7.2, 48), stroke=VERMILLION, strokeWidth=4.2),
            panels.rectangle((x + 4.2, 48), (6.3, 10), VERMILLION, VERMILLION, 0.25),
            panels.straight((x + 2, 42), (x + 2, 76), stroke=GREEN, strokeWidth=0.9),
            panels.straight((x + 5.2, 88), (x + 5.2, 96), stroke=BLUE, strokeWidth=0.8),
            panels.rectangle((x + 1.2, 96), (8, 8), "white", BLUE),
            panels.straight((x + 5.2, 104), (x + 5.2, NODE.height + 4), stroke=BLUE, strokeWidth=0.8),
        ]
    for name, y, color in (("switch", 8, ORANGE), ("hosts", 76, GREEN)):
        layers.append(panels.rectangle((left + 7, y), (NODE.width - 15, 12), theme.PAPER, color))
        layers.append(panels.words(name, (left + NODE.width / 2, y + 6), align="center", baseline="middle"))
    return layers
