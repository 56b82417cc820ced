"""Tables that a source prints: every note belongs to a number, and mistakes in the file are one message."""

import pytest

from scaling_study.errors import UserError
from scaling_study.spec import Config
from tests.unit.samples import CONFIG

ROW = "{quantity: q, unit: GB/s, field: memory_gb_per_s, printed: {a100: 2000}}"


def _load(folder, rows, **head):
    (folder / "reported").mkdir()
    fields = {"title": "t", "source": "s", "tolerance": 0.02} | head
    text = "".join(f"{name}: {value}\n" for name, value in fields.items())
    (folder / "reported" / "it.yaml").write_text(f"{text}rows: [{rows}]\n")
    return Config(folder).catalogue.reported["it"]


def test_a_table_is_named_after_its_file(tmp_path):
    table = _load(tmp_path, ROW)
    assert (table.name, table.rows[0].printed) == ("it", {"a100": 2000})


def test_the_table_of_the_paper_names_hardware_that_there_is():
    table = CONFIG.catalogue.reported["hst-table1"]
    assert {name for row in table.rows for name in row.printed} == {"v100", "a100", "h100"}
    assert set(CONFIG.catalogue.hardware) >= {"v100", "a100", "h100"}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("memory_gb_per_s", "memory", "'memory'"),
        ("2000", "0", "expected `float` > 0"),
        ("printed: {a100: 2000}", "printed: {a100: 1}, notes: {h100: n}", "notes name h100, of which nothing is"),
        ("unit:", "units:", "unknown key 'units'"),
    ],
)
def test_a_mistake_is_one_message(old, new, message, tmp_path):
    with pytest.raises(UserError) as caught:
        _load(tmp_path, ROW.replace(old, new))
    assert "reported/it.yaml" in caught.value.where
    assert message in str(caught.value)


def test_a_tolerance_is_a_fraction(tmp_path):
    with pytest.raises(UserError, match=r"it\.yaml, at tolerance"):
        _load(tmp_path, ROW, tolerance=2)
