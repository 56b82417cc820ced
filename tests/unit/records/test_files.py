"""Record files come back as written, and are refused once a byte of a row is another."""

import json

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling_study.errors import UserError
from scaling_study.recordfile import SCHEMA_VERSION
from scaling_study.records import SCHEMA, read_records, record_of, require_runs, write_records
from scaling_study.records.files import digest
from scaling_study.spec import Outcome, Provenance
from tests.unit.samples import PART, TINY, bounded, run_result, training_run


def records(count=3):
    return [
        record_of(
            run_result(
                training_run(repeat=repeat),
                outcome=Outcome.OK if repeat else Outcome.OUT_OF_MEMORY,
                reason=None if repeat else "it did not fit",
            ),
            TINY, PART, platform="here", provenance=Provenance.MEASURED,
        )
        for repeat in range(count)
    ]  # fmt: skip


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "study" / "sweep.parquet"
    write_records(path, records())
    return path


def _rewrite(path, frame, **metadata):
    kept = {k: v for k, v in pl.read_parquet_metadata(path).items() if k in ("schema_version", "digest")}
    frame.write_parquet(path, metadata={**kept, **metadata})


def test_records_come_back_sorted_by_run(path):
    frame = read_records(path)
    assert dict(frame.schema) == SCHEMA
    assert frame.to_dicts() == sorted(records(), key=lambda record: record["run_id"])


def test_the_file_is_complete_or_not_there(path):
    assert [found.name for found in path.parent.iterdir()] == ["sweep.parquet"]


def test_the_same_records_are_the_same_bytes_in_any_order(path):
    before = path.read_bytes()
    write_records(path, reversed(records()))
    assert path.read_bytes() == before


def test_no_records_are_a_file_too(tmp_path):
    write_records(tmp_path / "none.parquet", [])
    assert read_records(tmp_path / "none.parquet").is_empty()


def test_the_file_says_its_schema_version_and_digest(path):
    metadata = pl.read_parquet_metadata(path)
    assert metadata["schema_version"] == str(SCHEMA_VERSION) == "3"
    assert metadata["digest"] == digest(read_records(path))


@bounded
@given(st.permutations(range(4)))
def test_the_digest_does_not_depend_on_the_order_of_rows(order):
    frame = pl.DataFrame(records(4), schema=SCHEMA)
    assert digest(frame[list(order)]) == digest(frame)


@pytest.mark.parametrize("column", ["words_per_second", "run_id", "outcome", "gpus", "null_reasons", "oversubscribed"])
def test_every_column_counts_in_the_digest(column):
    frame = pl.DataFrame(records(2), schema=SCHEMA)
    other = frame.with_columns(pl.lit(None, SCHEMA[column]).alias(column))
    assert digest(other) != digest(frame)


def test_one_altered_number_is_refused(path):
    frame = read_records(path)
    _rewrite(path, frame.with_columns(pl.col("words_per_second") * (1 + 1e-12)))
    with pytest.raises(UserError, match=r"sweep\.parquet: the records were altered after they were written\."):
        read_records(path)


@pytest.mark.parametrize("drop", [["final_loss"], ["platform", "attempt"]])
def test_a_missing_column_is_refused(drop, path):
    _rewrite(path, read_records(path).drop(drop))
    with pytest.raises(UserError, match="altered"):
        read_records(path)


def test_a_missing_row_is_refused(path):
    _rewrite(path, read_records(path).head(2))
    with pytest.raises(UserError, match="altered"):
        read_records(path)


def test_a_file_without_a_seal_is_judged_by_its_rows(path):
    frame = read_records(path)
    _rewrite(path, frame)
    assert b"sealed-with" not in path.read_bytes()
    assert read_records(path).equals(frame)


def test_an_altered_digest_is_refused(path):
    _rewrite(path, read_records(path), digest="0" * 64)
    with pytest.raises(UserError, match="altered"):
        read_records(path)


@pytest.mark.parametrize(("version", "said"), [("1", "1"), ("4", "4")])
def test_another_schema_version_is_refused(version, said, path):
    _rewrite(path, read_records(path), schema_version=version)
    with pytest.raises(UserError, match=f"records of schema version {said}, this code reads 3"):
        read_records(path)


def test_a_parquet_file_of_others_is_refused(tmp_path):
    pl.DataFrame({"a": [1]}).write_parquet(tmp_path / "other.parquet")
    with pytest.raises(UserError, match="records of schema version none, this code reads 3"):
        read_records(tmp_path / "other.parquet")


def test_a_truncated_file_is_refused_at_every_length(path):
    content = path.read_bytes()
    for length in {0, 1, 4, 8, *range(12, len(content), len(content) // 25), len(content) - 1}:
        path.write_bytes(content[:length])
        with pytest.raises(UserError, match=r"sweep\.parquet: not a parquet file, or damaged"):
            read_records(path)


def test_a_flipped_byte_is_refused_before_any_parser_sees_it(path):
    content, good = path.read_bytes(), read_records(path)
    for position in range(0, len(content), max(1, len(content) // 150)):
        path.write_bytes(content[:position] + bytes([content[position] ^ 0x55]) + content[position + 1 :])
        with pytest.raises(UserError, match="not a parquet file, or damaged"):
            read_records(path)
    path.write_bytes(content)
    assert read_records(path).equals(good)


def test_a_text_file_is_refused(tmp_path):
    path = tmp_path / "text.parquet"
    path.write_text(json.dumps({"a": 1}))
    with pytest.raises(UserError, match="not a parquet file, or damaged"):
        read_records(path)


@pytest.mark.parametrize(
    ("folders", "remedy"),
    [(("results", "mini"), "Delete it; the next run writes it again."),
     (("results", "cached", "mini"), "Restore it from git.")],
)  # fmt: skip
def test_the_remedy_fits_the_place(folders, remedy, tmp_path):
    path = tmp_path.joinpath(*folders, "sweep.parquet")
    path.parent.mkdir(parents=True)
    path.write_bytes(b"damaged")
    with pytest.raises(UserError) as caught:
        read_records(path)
    assert caught.value.remedy == remedy


def test_a_missing_file_is_said(tmp_path):
    with pytest.raises(UserError, match=r"none\.parquet: no such file or folder"):
        read_records(tmp_path / "none.parquet")


def test_a_folder_that_cannot_be_made_is_said(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UserError, match=r"sweep\.parquet: "):
        write_records(tmp_path / "file" / "sweep.parquet", records())


def test_numbers_come_back_bit_for_bit(tmp_path):
    values = [0.1 + 0.2, 1e-300, 2.0**53 + 2, 1 / 3]
    rows = [{**record, "words_per_second": value} for record, value in zip(records(4), values, strict=True)]
    frame = write_records(tmp_path / "a.parquet", rows)
    assert read_records(tmp_path / "a.parquet").equals(frame)
    assert sorted(frame["words_per_second"]) == sorted(values)


def _runs(frame):
    return dict(zip(frame["run_id"], frame["hardware"], strict=True))


def test_records_that_lack_a_run_of_their_hardware_are_refused():
    frame = pl.DataFrame(records(2), schema=SCHEMA)
    with pytest.raises(UserError, match=r"1 of its runs are missing \(such as another\)"):
        require_runs(frame, _runs(frame) | {"another": frame["hardware"][0]}, "here")
    with pytest.raises(UserError, match="there are none"):
        require_runs(frame.clear(), _runs(frame), "here")


def test_records_of_the_runs_that_are_wanted_pass():
    frame = pl.DataFrame(records(2), schema=SCHEMA)
    assert require_runs(frame, _runs(frame) | {"another": "other hardware"}, "here").equals(frame)


def test_measured_records_of_some_runs_pass_where_they_are_measured_as_time_allows():
    frame = pl.DataFrame(records(2), schema=SCHEMA).with_columns(provenance=pl.lit("measured"))
    more = _runs(frame) | {"another": frame["hardware"][0]}
    assert require_runs(frame, more, "here", partly=True).equals(frame)
    with pytest.raises(UserError, match=r"1 of its runs are missing \(such as another\)"):
        require_runs(frame.with_columns(provenance=pl.lit("predicted")), more, "here", partly=True)
    with pytest.raises(UserError, match="2 of runs that the sweep does not have"):
        require_runs(frame, {"another": frame["hardware"][0]}, "here", partly=True)
    with pytest.raises(UserError, match="there are none"):
        require_runs(frame.clear(), more, "here", partly=True)


def test_records_of_other_runs_are_refused():
    frame = pl.DataFrame(records(3), schema=SCHEMA)
    first, *strangers = sorted(frame["run_id"])
    with pytest.raises(
        UserError, match=r"not those of the sweep: 2 of runs that the sweep does not have \(such as "
    ) as caught:
        require_runs(frame, {first: _runs(frame)[first]}, "figures/mini")
    assert strangers[0] in str(caught.value)
    assert caught.value.where == "figures/mini"
