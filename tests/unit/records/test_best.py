"""The best of a group is its fastest `ok` record, within one provenance."""

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from scaling_study.records import SCHEMA, best_layouts
from scaling_study.records.best import LAYOUT
from scaling_study.spec import Outcome, Provenance
from tests.unit.samples import bounded

row = st.fixed_dictionaries(
    {
        "provenance": st.sampled_from([value.value for value in Provenance]),
        "outcome": st.sampled_from([value.value for value in Outcome] + ["ok"] * 5),
        "model": st.just("m"),
        "hardware": st.sampled_from(["a100", "h100"]),
        "nodes": st.just(1),
        "dp": st.just(8),
        "tp": st.sampled_from([1, 2]),
        "pp": st.sampled_from([1, 2]),
        "micro_batch": st.sampled_from([1, 2, 4]),
        "global_batch": st.just(8),
        "sequence_length": st.just(4096),
        "words_per_second": st.one_of(st.none(), st.integers(1, 5).map(float)),
    }
)


def table(rows):
    numbered = [{**one, "run_id": f"run-{number:02d}"} for number, one in enumerate(rows)]
    return pl.DataFrame(numbered, schema=SCHEMA)


def by_hand(frame, by):
    best = {}
    for one in frame.sort("run_id").iter_rows(named=True):
        key = (one["provenance"], *(one[name] for name in by))
        if one["outcome"] != "ok":
            continue
        rate, leader = one["words_per_second"], best.get(key)
        if leader is None or (rate or 0) > (leader["words_per_second"] or 0):
            best[key] = one
    return {key: one["run_id"] for key, one in best.items()}


@bounded
@given(st.lists(row, max_size=16), st.sampled_from([LAYOUT, ("hardware",), ("model", "nodes"), ()]), st.randoms())
def test_equals_a_plain_loop(rows, by, random):
    frame = table(rows)
    shuffled = frame[random.sample(range(frame.height), frame.height)] if frame.height else frame
    found = best_layouts(shuffled, by)
    keys = ["provenance", *by]
    assert {tuple(one[k] for k in keys): one["run_id"] for one in found.iter_rows(named=True)} == by_hand(frame, by)
    assert found.height == len(by_hand(frame, by))
    assert found.select(keys).equals(found.select(keys).sort(keys))


def _rows(*specifications):
    base = {"outcome": "ok", "provenance": "measured", "model": "m", "hardware": "h100", "nodes": 1, "dp": 8, "tp": 1}
    base |= {"pp": 1, "global_batch": 8, "sequence_length": 4096}
    return table([{**base, **one} for one in specifications])


def test_a_layout_stands_for_its_fastest_micro_batch():
    frame = _rows(*({"micro_batch": m, "words_per_second": w} for m, w in ((1, 10.0), (2, 30.0), (4, 20.0))))
    assert best_layouts(frame)["micro_batch"].to_list() == [2]


def test_layouts_differ_by_degree_batch_and_length():
    frame = _rows({}, {"tp": 2}, {"pp": 2}, {"global_batch": 16}, {"sequence_length": 8192}, {"nodes": 2}, {"dp": 4})
    assert best_layouts(frame).height == 7


def test_provenances_are_never_mixed():
    frame = _rows(
        {"provenance": "predicted", "words_per_second": 99.0},
        {"provenance": "measured", "words_per_second": 1.0},
        {"provenance": "reported", "words_per_second": 50.0},
    )
    for by in (LAYOUT, ("hardware",), ("provenance", "hardware"), ()):
        found = best_layouts(frame, by).select("provenance", "words_per_second").rows()
        assert found == [("measured", 1.0), ("predicted", 99.0), ("reported", 50.0)]


def test_ties_go_to_the_first_run_id():
    frame = _rows({"words_per_second": 7.0, "micro_batch": 4}, {"words_per_second": 7.0, "micro_batch": 1})
    assert best_layouts(frame)["run_id"].to_list() == ["run-00"]
    assert best_layouts(frame.reverse())["run_id"].to_list() == ["run-00"]


def test_only_ok_records_compete():
    frame = _rows(
        {"words_per_second": 90.0, "outcome": "failed"},
        {"words_per_second": 80.0, "outcome": "out_of_memory"},
        {"words_per_second": 5.0},
    )
    assert best_layouts(frame)["words_per_second"].to_list() == [5.0]
    assert best_layouts(frame.filter(pl.col("outcome") != "ok")).is_empty()


def test_a_record_without_a_rate_is_best_only_alone():
    assert best_layouts(_rows({"words_per_second": None}, {"words_per_second": 1.0}))["words_per_second"].to_list() == [
        1.0
    ]
    assert best_layouts(_rows({"words_per_second": None})).height == 1


def test_not_a_number_is_never_best():
    frame = _rows({"words_per_second": float("nan")}, {"words_per_second": 1.0})
    assert best_layouts(frame)["words_per_second"].to_list() == [1.0]
