"""Records that cannot be true are caught, each for its reason; those of the cache are not."""

from __future__ import annotations

import pytest

from scaling_study.records import SCHEMA, audited, invalid_records, objections, read_records
from scaling_study.records.schema import COLLECTIVE_METRICS, TRAINING_METRICS
from scaling_study.roofline import model_flops_per_token
from scaling_study.spec import Outcome, expand, run_id
from tests.unit.samples import CONFIG, ROOT

CATALOGUE = CONFIG.catalogue
CACHE = ROOT / "results" / "cached"
FILES = sorted(path for path in CACHE.glob("*/*/*.parquet") if path.parent.name != "model")


def genuine(path):
    """Every record of a file with the run that it is of."""
    study, _, sweep = path.relative_to(CACHE).with_suffix("").parts
    runs = {run_id(run): run for run in expand(CONFIG.study(study), sweep, CATALOGUE)}
    return [(row, runs[row["run_id"]]) for row in read_records(path).iter_rows(named=True)]


def found(record, run):
    return list(objections(record, run, CATALOGUE.models.get(record["model"]), CATALOGUE.hardware[run.hardware]))


@pytest.mark.parametrize("path", FILES, ids=lambda path: "-".join(path.relative_to(CACHE).with_suffix("").parts))
def test_no_genuine_record_is_objected_to(path):
    assert [(record["run_id"], said) for record, run in genuine(path) if (said := found(record, run))] == []


def test_the_whole_cache_was_looked_at():
    assert {path.parent.name for path in FILES} == {"local", "predict"}
    assert sum(len(genuine(path)) for path in FILES) > 1000


def pick(path, **columns):
    return next(
        (row, run)
        for row, run in genuine(CACHE / f"{path}.parquet")
        if row["outcome"] == Outcome.OK and all(row[name] == value for name, value in columns.items())
    )


H100 = pick("paper/predict/data_parallel", gpus=128)
LAYOUT = pick("paper/predict/model_parallel", hardware="a100", tp=4, pp=2)
CPU = pick("mini/local/model_parallel", tp=2, pp=2)
CALL = pick("paper/predict/collectives", op="all_gather", nodes=32, message_bytes=2**30)
CPU_CALL = pick("mini/local/collectives", op="all_reduce", nodes=4)


def told(genuine_one, iteration_s):
    """The record with another iteration and everything that follows from it, so that it agrees with itself."""
    record, run = genuine_one
    rate = run.tokens_per_iteration / iteration_s
    flops = model_flops_per_token(CATALOGUE.models[run.model], run.sequence_length)
    tflops = rate / run.ranks * flops / 1e12
    peak = CATALOGUE.hardware[run.hardware].peak_tflops.get(run.precision)
    scale = iteration_s / record["iteration_s"]
    return record | {
        "iteration_s": iteration_s,
        "iteration_s_low": iteration_s,
        "iteration_s_high": iteration_s,
        "words_per_second": rate,
        "words_per_second_per_gpu": rate / run.ranks,
        "tflops_per_gpu": tflops,
        "mfu": tflops / peak.value if peak else None,
        "exposed_fraction": record["exposed_communication_s"] * scale / iteration_s,
        "tokens_per_joule": rate / run.ranks / record["power_w_per_gpu"],
        **{name: record[name] * scale for name in TIMES if record[name] is not None},
    }


TIMES = [
    name
    for name in TRAINING_METRICS
    if name.startswith(("compute", "communication_", "exposed_")) and "fraction" not in name
]


def scaled(genuine_one, **factors):
    record, _ = genuine_one
    return record | {name: record[name] * factor for name, factor in factors.items()}


def put(genuine_one, **values):
    return genuine_one[0] | values


#: A genuine record, what was done to it, and words of the objection that must be among those raised.
DOCTORED = {
    "a rate above the peak": (H100, told(H100, H100[0]["iteration_s"] / 3), "TFLOP/s a GPU are above the peak, 989.4"),
    "an iteration under the least work": (H100, told(H100, H100[0]["iteration_s"] / 4), "shorter than compute allows"),
    "an iteration under the bytes of its memory": (
        H100,
        told(H100, H100[0]["iteration_s"] / 200),
        "shorter than memory allows",
    ),
    "an iteration under the bytes of its links": (
        LAYOUT,
        told(LAYOUT, LAYOUT[0]["iteration_s"] / 50),
        "shorter than communication allows",
    ),
    "computed in no time": (H100, scaled(H100, compute_s=0.1), "compute_s of"),
    "communicated in no time": (
        H100,
        put(H100, **{name: 1e-6 for name in TIMES if name.startswith(("communication", "exposed"))}),
        "communication_s of 1e-06 s is shorter than communication allows",
    ),
    "an MFU above 1": (H100, scaled(H100, mfu=3), "an MFU of 1"),
    "an MFU over another peak": (H100, scaled(H100, mfu=0.5), "mfu is"),
    "the rate of all GPUs for one": (
        H100,
        put(H100, words_per_second_per_gpu=H100[0]["words_per_second"]),
        "words_per_second_per_gpu is",
    ),
    "a rate that does not follow": (H100, scaled(H100, words_per_second=1.01), "words_per_second is"),
    "FLOPs with recomputation": (H100, scaled(H100, tflops_per_gpu=4 / 3), "tflops_per_gpu is"),
    "exposed above all of it": (H100, scaled(H100, exposed_communication_s=50), "is above communication_s ("),
    "exposed above all of it, measured": (
        CPU,
        put(CPU, exposed_communication_s=CPU[0]["communication_s"] * 1.01),
        "exposed_communication_s (",
    ),
    "exposed above all of an axis": (
        LAYOUT,
        put(LAYOUT, exposed_tp_s=LAYOUT[0]["communication_tp_s"] * 1.1),
        "is above communication_tp_s",
    ),
    "an axis above all of it": (
        LAYOUT,
        put(LAYOUT, communication_dp_s=LAYOUT[0]["communication_s"] * 1.1),
        "communication_dp_s (",
    ),
    "a share of another iteration": (H100, put(H100, exposed_fraction=0.9), "exposed_fraction is 0.9"),
    "busier than it lasts": (CPU, put(CPU, compute_s=CPU[0]["profiled_iteration_s"] * 1.5), "compute and exposed"),
    "communicating longer than it lasts": (
        H100,
        put(H100, communication_s=H100[0]["iteration_s"] * 1.5),
        "communication_s (",
    ),
    "power below idle": (H100, put(H100, power_w_per_gpu=30.0, tokens_per_joule=None), "says 30 W a GPU, an idle"),
    "energy below idle": (
        H100,
        put(H100, power_w_per_gpu=None, tokens_per_joule=H100[0]["tokens_per_joule"] * 20),
        "tokens_per_joule says",
    ),
    "power in milliwatts": (
        H100,
        put(H100, power_w_per_gpu=H100[0]["power_w_per_gpu"] * 1e3),
        "the limit of NVIDIA H100",
    ),
    "energy of another power": (H100, scaled(H100, tokens_per_joule=1.2), "tokens_per_joule is"),
    "more memory than there is": (H100, put(H100, peak_memory_gib=95.0), "above the 80 GiB"),
    "memory below nothing": (H100, put(H100, peak_memory_gib=-1.0), "peak_memory_gib is -1"),
    "a time that is no number": (CPU, put(CPU, compute_s=float("nan")), "compute_s is nan"),
    "no iteration": (H100, put(H100, iteration_s=None), "no iteration_s"),
    "percentiles out of order": (CPU, put(CPU, iteration_s_p05=CPU[0]["iteration_s_p95"] * 2), "does not hold"),
    "an interval beside its middle": (H100, scaled(H100, iteration_s_low=2), "iteration_s_low <= iteration_s"),
    "a rate faster than measured": (
        CPU,
        scaled(CPU, words_per_second=2, words_per_second_per_gpu=2),
        "words_per_second is",
    ),
    "a call faster than its links": (
        CALL,
        scaled(
            CALL,
            call_s=0.1,
            call_s_low=0.1,
            call_s_high=0.1,
            algorithm_bandwidth_gb_per_s=10,
            bus_bandwidth_gb_per_s=10,
        ),
        "shorter than its bytes allow",
    ),
    "a bandwidth that does not follow": (CALL, scaled(CALL, bus_bandwidth_gb_per_s=2), "bus_bandwidth_gb_per_s is"),
    "the bus for the algorithm": (
        CPU_CALL,
        put(CPU_CALL, algorithm_bandwidth_gb_per_s=CPU_CALL[0]["bus_bandwidth_gb_per_s"]),
        "algorithm_bandwidth_gb_per_s is",
    ),
    "a call of no time": (CALL, put(CALL, call_s=0.0), "no call_s"),
}


@pytest.mark.parametrize("name", DOCTORED)
def test_a_doctored_record_is_caught_for_its_reason(name):
    (_, run), record, words = DOCTORED[name]
    said = found(record, run)
    assert [one for one in said if words in one], said


@pytest.mark.parametrize(
    ("name", "count"),
    [("power below idle", 1), ("exposed above all of an axis", 2), ("a share of another iteration", 1),
     ("an MFU over another peak", 1), ("more memory than there is", 1), ("a rate that does not follow", 1),
     ("an interval beside its middle", 1), ("a call faster than its links", 1)],
)  # fmt: skip
def test_a_single_lie_raises_no_other_objection(name, count):
    (_, run), record, _ = DOCTORED[name]
    assert len(found(record, run)) <= count


def test_an_invalid_record_says_why_and_has_no_number():
    (_, run), record, _ = DOCTORED["power below idle"]
    invalid = audited(record, run, CATALOGUE.models[run.model], CATALOGUE.hardware[run.hardware])
    assert set(invalid) == set(SCHEMA)
    assert invalid["outcome"] == Outcome.INVALID
    assert not Outcome.INVALID.is_result
    assert invalid["reason"] == "power_w_per_gpu says 30 W a GPU, an idle NVIDIA H100 80GB HBM3 draws 69 W"
    assert [name for name in (*TRAINING_METRICS, *COLLECTIVE_METRICS) if invalid[name] is not None] == []
    assert invalid["run_id"] == record["run_id"]
    assert invalid_records([record, invalid]) == [
        f"{record['run_id']}: predicted, but it cannot be true: {invalid['reason']}"
    ]


def test_a_meter_may_err_a_little():
    idle = CATALOGUE.hardware["h100"].idle_w.value
    assert found(put(H100, power_w_per_gpu=idle * 0.96, tokens_per_joule=None), H100[1]) == []


def test_a_genuine_record_and_one_without_numbers_stay_as_they_are():
    record, run = H100
    args = (run, CATALOGUE.models[run.model], CATALOGUE.hardware[run.hardware])
    assert audited(record, *args) == record
    ended = record | {"outcome": "out_of_memory", "mfu": 7.0}
    assert audited(ended, *args) == ended
