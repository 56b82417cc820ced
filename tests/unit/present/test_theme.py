"""The font that is shipped is the font that is drawn, and provenances can be told apart without colour."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import vl_convert

from scaling_study.errors import UserError
from scaling_study.present import theme
from scaling_study.spec import Provenance

WORD = "Wimmelbild 2,048"


def text_spec(font: str, weight: int = 400, style: str = "normal") -> dict:
    mark = {"type": "text", "font": font, "fontSize": 40, "fontWeight": weight, "fontStyle": style, "align": "left"}
    encoding = {"text": {"value": WORD}}
    return {"data": {"values": [{}]}, "mark": mark, "encoding": encoding, "padding": 0}


def width(font: str) -> int:
    found = re.search(r'width="(\d+)"', vl_convert.vegalite_to_svg(text_spec(font)))
    assert found
    return int(found.group(1))


def test_text_is_measured_and_drawn_in_the_shipped_font() -> None:
    theme.register_fonts()
    assert len({width(theme.FONT_FAMILY), width("sans-serif"), width("No Such Font")}) == 3
    ours = vl_convert.vegalite_to_png(text_spec(theme.FONT_FAMILY))
    assert ours == vl_convert.vegalite_to_png(text_spec(theme.FONT))
    assert ours != vl_convert.vegalite_to_png(text_spec("sans-serif"))
    assert ours != vl_convert.vegalite_to_png(text_spec("No Such Font"))


def test_every_face_is_drawn_as_itself() -> None:
    theme.register_fonts()
    faces = [(400, "normal"), (600, "normal"), (400, "italic")]
    assert len({vl_convert.vegalite_to_png(text_spec(theme.FONT, *face)) for face in faces}) == len(theme.FONT_FILES)


def test_a_missing_face_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(theme, "FONT_FOLDER", tmp_path)
    with pytest.raises(UserError, match=r"font face \S+ is missing"):
        theme.register_fonts.__wrapped__()


def test_the_font_comes_with_its_licence_and_is_small() -> None:
    assert "SIL OPEN FONT LICENSE" in (theme.FONT_FOLDER / "LICENSE.md").read_text(encoding="utf-8")
    assert sum(path.stat().st_size for path in theme.FONT_FOLDER.iterdir()) < 1.5e6


def test_provenances_differ_in_mark_and_line() -> None:
    styles = list(theme.MARKS.values())
    assert set(theme.MARKS) == set(Provenance)
    assert len({style.glyph for style in styles}) == 3
    assert len({(style.shape, style.hollow) for style in styles}) == 3
    assert len({style.dash for style in styles}) == 3
    assert not theme.MARKS[Provenance.MEASURED].hollow


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 12])
def test_a_ramp_darkens_steadily_and_its_lightest_colour_is_readable(count: int) -> None:
    light = [_luminance(color) for color in theme.ramp(count)]
    assert len(light) == count
    assert light == sorted(light, reverse=True)
    assert len(set(light)) == count
    assert 1.05 / (max(light) + 0.05) > 2.7  # contrast on white, WCAG


def _luminance(color: str) -> float:
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_a_ramp_runs_from_its_first_stop_to_its_last() -> None:
    assert theme.ramp(len(theme.RAMP)) == list(theme.RAMP)
    assert theme.ramp(2) == [theme.RAMP[0], theme.RAMP[-1]]
    assert theme.ramp(0) == []


def test_the_configuration_is_made_anew() -> None:
    theme.config()["axis"]["labelFontSize"] = 99
    assert theme.config()["axis"]["labelFontSize"] == theme.NOTE_SIZE
