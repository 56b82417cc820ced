"""Which records are drawn, in which order and precision, and what is said of them."""

from __future__ import annotations

import msgspec
import polars as pl
import pytest

from scaling_study.errors import UserError
from scaling_study.present import rows
from tests.unit.present import synthetic as made


def test_a_layout_stands_for_its_fastest_micro_batch() -> None:
    slow, fast = (made.mini_row(dp=4, micro_batch=n, iteration_s=s) for n, s in ((1, 2.0), (2, 1.0)))
    assert rows.chosen(made.frame(slow, fast))["micro_batch"].to_list() == [2]


def test_a_layout_without_a_good_run_stays_as_what_it_became() -> None:
    ended = made.paper_row(dp=8, outcome="out_of_memory", reason="CUDA out of memory")
    other = made.paper_row(dp=16, micro_batch=1, iteration_s=1.0)
    hidden = made.paper_row(dp=16, micro_batch=4, outcome="out_of_memory", reason="CUDA out of memory", global_batch=32)
    found = rows.chosen(made.frame(ended, other, hidden))
    assert found.select("dp", "outcome").rows() == [(8, "out_of_memory"), (16, "ok")]


def test_provenances_do_not_compete() -> None:
    both = [made.paper_row(dp=8, iteration_s=s, provenance=p) for s, p in ((2.0, "measured"), (1.0, "predicted"))]
    assert rows.chosen(made.frame(*both)).height == 2
    assert rows.provenances(made.frame(*reversed(both))) == ["measured", "predicted"]


def test_every_collective_is_its_own_point() -> None:
    frame = made.paper_collectives("measured", "predicted")
    found = rows.chosen(frame)
    key = ["run_id", "provenance"]
    assert found.select(key).sort(key).equals(frame.select(key).sort(key))
    again = made.call_row(op="all_reduce", nodes=4, message_bytes=2**20, repeat=1, run_id="again")
    assert rows.chosen(pl.concat([frame, made.frame(again)])).height == frame.height + 1


def test_a_call_as_long_as_a_percentile_has_its_bandwidth() -> None:
    row = made.call_row(op="all_reduce", nodes=1, gpus=2, message_bytes=10**9, call_s=0.5)
    found = rows.with_bandwidth_spread(made.frame(row | {"call_s_p05": 0.4, "call_s_p95": 1.0}))
    assert found["bus_bandwidth_gb_per_s"].item() == pytest.approx(2)
    assert found["bus_bandwidth_low"].item() == pytest.approx(1)
    assert found["bus_bandwidth_high"].item() == pytest.approx(2.5)


def test_bars_are_explained() -> None:
    assert rows.bars_of_calls(made.mini_collectives()) == "5th to 95th percentile of 40 calls"
    both = pl.concat([made.mini_collectives(), made.paper_collectives("measured")])
    assert rows.bars_of_calls(both) == "5th to 95th percentile of 20 to 40 calls"
    predicted = made.mini_collectives().with_columns(provenance=pl.lit("predicted"))
    said = rows.bars_of_calls(pl.concat([made.mini_collectives(), predicted]))
    assert said.startswith("\u25cf 5th to 95th percentile of 40 calls, \u25cb what held four of five measurements")


def test_a_figure_without_conditions_has_every_record() -> None:
    frame = made.mini_collectives()
    assert rows.selected(frame, {}, "it").height == 8
    assert rows.selected(frame, {"op": "all_reduce", "nodes": 4}, "it")["message_bytes"].to_list() == [2**16, 2**24]
    with pytest.raises(UserError, match="no column 'opp'"):
        rows.selected(frame, {"opp": "all_reduce"}, "it")


def test_floats_are_rounded_to_six_digits() -> None:
    found = rows.rounded(pl.DataFrame({"a": [0.1 + 0.2, 123456.789], "b": [1, 2]}))
    assert found["a"].to_list() == [0.3, 123457.0]


def test_a_chart_has_a_row_budget() -> None:
    assert rows.within_budget(pl.DataFrame({"a": range(4999)})).height == 4999
    with pytest.raises(UserError, match="5,000 rows are more than the 4,999"):
        rows.within_budget(pl.DataFrame({"a": range(5000)}))


def test_spread_is_tokens_over_percentiles_of_time() -> None:
    row = made.mini_row(dp=2, global_batch=4, sequence_length=100, iteration_s=2.0)
    row |= {"iteration_s_p05": 1.6, "iteration_s_p95": 2.5}
    found = rows.with_spread(made.frame(row))
    assert found["words_per_second_low"].item() == pytest.approx(400 / 2.5)
    assert found["words_per_second_high"].item() == pytest.approx(400 / 1.6)


def test_the_ideal_line_starts_at_each_provenances_smallest_good_scale() -> None:
    found = rows.with_ideal(rows.chosen(made.paper_data_parallel()))
    measured = found.filter(pl.col("provenance") == "measured")
    first = measured.filter(pl.col("gpus") == 16)["words_per_second"].item()
    lines = dict(measured.select("gpus", "ideal_words_per_second").iter_rows())
    assert lines[16] == pytest.approx(first)
    assert lines[256] == pytest.approx(first * 16)
    predicted = found.filter(pl.col("provenance") == "predicted")
    assert predicted["ideal_words_per_second"][0] == pytest.approx(predicted["words_per_second"][0])


def test_one_line_joins_one_hardware_only() -> None:
    frame = made.paper_model_parallel("predicted", hardware=("a100", "h100"))
    with pytest.raises(UserError, match=r"several values of hardware \(a100, h100\)"):
        rows.one_series(frame, ("nodes", "gpus", "dp", "tp", "pp", "global_batch", "precision"), made.PAPER)


def test_reasons_are_given_once() -> None:
    frame = made.mini_data_parallel()
    assert rows.why_null(frame, "mfu") == made.CPU_REASONS["mfu"]
    assert rows.why_null(frame, "iteration_s") == ""


def test_a_gap_is_named_only_where_some_records_have_the_metric() -> None:
    lacking = made.paper_row(dp=8, iteration_s=1.0)
    lacking |= {"mfu": None, "null_reasons": '{"mfu": "unknown part"}'}
    frame = made.frame(lacking, made.paper_row(dp=16, iteration_s=1.0))
    assert rows.gaps(frame, ["mfu", "iteration_s"]) == ["Not everywhere mfu: unknown part."]
    assert rows.gaps(made.mini_data_parallel(), ["mfu"]) == []


def test_the_caption_says_where_numbers_come_from() -> None:
    assert rows.caption(made.mini_data_parallel(), made.MINI) == [
        "● Measured on AMD EPYC, 2 cores; oversubscribed at 4 ranks."
    ]
    assert rows.caption(made.paper_data_parallel(), made.PAPER) == [
        "● Measured on NVIDIA H100 80GB HBM3; of 6 runs 1 out of memory.",
        "○ Predicted by the performance model for NVIDIA H100 SXM 80 GB in a DGX H100.",
    ]


def test_rank_correlation_follows_order_not_size() -> None:
    exposed, seconds = (0.1, 0.2, 0.3, 0.9), (1.0, 1.1, 5.0, 6.0)
    degrees = ((4, 1), (2, 2), (1, 4), (2, 1))
    pairs = zip(degrees, exposed, seconds, strict=True)
    made_rows = [
        made.mini_row(dp=1, tp=tp, pp=pp, global_batch=8, iteration_s=s, exposed_communication_s=e)
        for (tp, pp), e, s in pairs
    ]
    assert rows.rank_correlations(made.frame(*made_rows)) == {"measured": pytest.approx(-1.0)}
    assert rows.rank_correlations(made.frame(*made_rows[:2])) == {}


def test_metadata_lists_every_run_in_order() -> None:
    frame = made.paper_data_parallel()
    found = rows.user_metadata(frame.reverse(), made.PAPER, ["b", "a"])
    assert (found["study"], found["figure"], found["claims"]) == ("paper", "hst-00", ["a", "b"])
    assert len(found["runs"]) == frame.height
    assert found["runs"] == sorted(found["runs"], key=lambda run: (run["run_id"], run["provenance"]))


def test_a_scale_stands_for_its_fastest_layout_or_for_how_it_ended() -> None:
    layouts = [made.mini_row(dp=2 // pp, pp=pp, global_batch=8, iteration_s=3.0 - pp) for pp in (1, 2)]
    ended = [made.mini_row(dp=4 // pp, pp=pp, global_batch=8, outcome="timeout", reason="too slow") for pp in (1, 2)]
    found = rows.chosen(made.frame(*layouts, *ended), rows.ACROSS_LAYOUTS)
    assert found.sort("gpus").select("gpus", "pp", "outcome").rows() == [(2, 2, "ok"), (4, 2, "timeout")]


def test_a_change_needs_both_ends() -> None:
    assert rows.change(pl.Series([2.0, 9.0, 1.0])) == "\N{MINUS SIGN}50%"
    assert rows.change(pl.Series([1.0, 1.0])) == "+0%"
    for unknown in ([], [1.0], [None, 1.0], [1.0, None], [0.0, 1.0]):
        assert rows.change(pl.Series(unknown, dtype=pl.Float64)) == ""


def test_whose_layouts_are_named_is_said_where_it_is_a_question() -> None:
    assert rows.preference(made.mini_data_parallel()) == ""
    assert rows.preference(made.paper_data_parallel()) == " (● where both stand)"


def test_parameters_come_from_the_catalogue() -> None:
    context = msgspec.structs.replace(made.MINI, parameters={"mini-6m": 6})
    frame = made.frame(made.mini_row(dp=1), made.mini_row(dp=2))
    assert rows.with_parameters(frame, context)["parameters"].to_list() == [6, 6]
    with pytest.raises(UserError, match="unknown model mini-6m"):
        rows.with_parameters(frame, made.MINI)
