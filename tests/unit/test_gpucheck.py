"""The whole of `gpu-check` on CPUs: real processes, training and files; GPUs replayed, packages not needed hidden."""

import gzip
import json
import os
import subprocess
import sys

import polars as pl
import pytest
import yaml

from scaling_study.campaign import promote_records, records_of_sweep
from scaling_study.errors import UserError
from scaling_study.gpucheck import MOST_BYTES, MOST_FILES, planned_runs, platform_of, stopped
from scaling_study.prediction import predict_sweep
from scaling_study.records import read_records
from scaling_study.spec import Config, Outcome, Precision, expand, hardware_of_device, run_id
from scaling_study.timeline import SCHEMA, read_trace
from tests.replay.nvml import GPUS
from tests.unit.samples import CONFIG, ROOT, run_result

MODEL = {"layers": 2, "hidden": 32, "heads": 4, "kv_heads": 4, "ffn": 64, "vocabulary": 512, "source": "test"}
SWEEP = {"part_of_node": True, "as_time_allows": True}
STUDY = {
    "title": "t",
    "platform": "predict",
    "base": {
        "hardware": "h100", "nodes": 1, "dp": 1, "micro_batch": 1, "global_batch": 2, "sequence_length": 16,
        "precision": "bf16", "attention": "sdpa",
        "protocol": {"iterations": 4, "discard": 1, "profiled_iterations": 1, "data": "random"},
    },
    "sweeps": {
        "model_size": {"title": "t", **SWEEP, "product": {"model": ["small", "large"]}},
        "variants": {
            "title": "t", **SWEEP,
            "base": {"model": "small"},
            "zip": {"attention": ["sdpa", "xformers", "sdpa"], "precision": ["bf16", "bf16", "fp16"]},
        },
        "layouts": {"title": "t", **SWEEP, "base": {"model": "small"}, "product": {"dp": [2, 8]},
                    "zip": {"global_batch": [8]}},
    },
}  # fmt: skip


@pytest.fixture
def config(tmp_path):
    """A study of very small models for H100s, the real hardware and calibration."""
    folder = tmp_path / "config"
    for name in ("hardware", "calibration", "platforms", "reported"):
        folder.mkdir(exist_ok=True)
        (folder / name).symlink_to(ROOT / "config" / name)
    contents = {
        "studies/gpu-check": STUDY,
        "models/small": MODEL,
        "models/large": {**MODEL, "layers": 3, "kv_heads": 2},
        "data/random": {"title": "t", "source": "random", "tokens": 4097, "vocabulary": 512},
    }
    for name, content in contents.items():
        path = folder / f"{name}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(yaml.safe_dump(content, sort_keys=False))
    return Config(folder)


def check(config, tmp_path, replay="h100,h100-second", minutes="9", **environment):
    command = [sys.executable, "-m", "tests.replay.gpu_check", "--config", str(config.root), "gpu-check"]
    command += ["--output", str(tmp_path / "results" / "gpu-check"), "--minutes", minutes]
    kept = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    environment = {**kept, "PYTHONPATH": path, "SCALING_STUDY_REPLAY": replay, "NO_COLOR": "1", **environment}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=500, env=environment, cwd=tmp_path, check=False
    )


def test_two_replayed_gpus_are_measured_beside_predictions_and_promoted(config, tmp_path):
    done = check(config, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    output = tmp_path / "results" / "gpu-check"
    files = [path for path in output.rglob("*") if path.is_file()]
    assert sorted(str(path.relative_to(output)) for path in files) == [
        "gpu-check.json", "gpu-check.md", "local-h100/layouts.parquet", "local-h100/model_size.parquet",
        "local-h100/variants.parquet", "timelines.parquet", "trace.json.gz",
    ]  # fmt: skip
    assert len(files) <= MOST_FILES
    assert max(path.stat().st_size for path in files) <= MOST_BYTES
    report = json.loads((output / "gpu-check.json").read_bytes())

    assert [gpu["uuid"] for gpu in report["machine"]["gpus"]] == [GPUS[n]["uuid"] for n in ("h100", "h100-second")]
    assert (report["hardware"], report["platform"], report["machine"]["nccl"]) == ("h100", "local-h100", "2.27.3")
    compared = [one for one in report["attention"] if one["error"] is not None]
    assert {one["backend"] for one in compared} >= {"sdpa", "sdpa_math"}
    assert all(one["error"] <= one["allowed"] for one in compared)
    assert all(check["passed"] for check in report["checks"])

    runs = {one["label"]: one for one in report["runs"]}
    assert list(runs) == [
        "small s16 bf16 sdpa", "large s16 bf16 sdpa", "small s16 fp16 sdpa", "small s16 dp2 tp1 pp1 bf16 sdpa",
    ]  # fmt: skip
    reasons = {one["run_id"]: one["reason"] for one in report["left_out"]}
    assert sorted(reasons.values()) == [
        "it needs 8 GPUs, this machine has 2",
        "xformers does not run here: ImportError: attention: xformers is not installed here; install the extra `gpu`, "
        "or choose another backend",
    ]
    first = runs["small s16 bf16 sdpa"]
    assert first["sweeps"] == ["model_size", "variants"]
    ours, model = first["measured"], first["predicted"]
    assert first["relative_error"]["iteration_s"] == pytest.approx(model["iteration_s"] / ours["iteration_s"] - 1)
    assert first["power"][0]["source"] == "energy_counter"
    assert ours["power_w_per_gpu"] == pytest.approx(649, rel=0.1)
    assert first["power"][0]["sampling_share"] == 0.25
    assert first["clocks"][0]["throttled"] == {"sw_power_cap": 1.0}
    assert (first["loss_scale"], first["skipped_updates"]) == (None, None)
    half = runs["small s16 fp16 sdpa"]
    assert half["loss_scale"] == 2.0 ** (16 - half["skipped_updates"])
    both = runs["small s16 dp2 tp1 pp1 bf16 sdpa"]
    assert len(both["power"]) == 2
    assert both["measured"]["power_w_per_gpu"] == pytest.approx((649 + 641) / 2, rel=0.1)

    records = read_records(output / "local-h100" / "layouts.parquet")
    (row,) = records.to_dicts()
    assert (row["gpus"], row["dp"], row["device"], row["platform"]) == (2, 2, "NVIDIA H100 80GB HBM3", "local-h100")
    assert row["compute_s"] == pytest.approx(900e-6)  # of the replayed trace: 500 + 400 us
    assert row["exposed_communication_s"] == pytest.approx(100e-6)
    assert row["exposed_dp_s"] == pytest.approx(100e-6)
    assert row["data_source"] == "random"

    spans = pl.read_parquet(output / "timelines.parquet")
    assert set(spans.columns) == {*SCHEMA, "run_id"}
    assert set(spans["run_id"]) == {one["run_id"] for one in report["runs"]}
    assert read_trace(output / "trace.json.gz").verdict.sound
    assert json.loads(gzip.decompress((output / "trace.json.gz").read_bytes()))["traceEvents"]
    page = (output / "gpu-check.md").read_text()
    assert f"{len(report['checks'])} of {len(report['checks'])} passed." in page
    assert "## Left out" in page

    study = config.study("gpu-check")
    copies = promote_records(config, study, "local-h100", tmp_path / "results")
    assert sorted(path.stem for path in copies) == ["layouts", "model_size", "variants"]
    predicted = tmp_path / "results" / "cached" / "gpu-check" / "predict" / "layouts.parquet"
    predict_sweep(config, "gpu-check", "layouts", predicted)
    beside = records_of_sweep(
        config, study, "layouts", (predicted.parents[1] / "local-h100" / "layouts.parquet", predicted)
    )
    assert beside.group_by("provenance").len().sort("provenance").rows() == [("measured", 1), ("predicted", 2)]


def test_without_time_everything_is_left_out_and_named(config, tmp_path):
    done = check(config, tmp_path, minutes="0.6", replay="h100")
    report = json.loads((tmp_path / "results" / "gpu-check" / "gpu-check.json").read_bytes())
    assert report["runs"] == []
    assert len(report["left_out"]) == 6
    assert sum(" s were left" in one["reason"] for one in report["left_out"]) >= 3
    assert done.stdout.count("left out: ") == 6
    assert not (tmp_path / "results" / "gpu-check" / "local-h100").exists()


@pytest.mark.parametrize(
    ("replay", "environment", "message"),
    [
        (
            "",
            {},
            "PyTorch {torch} finds no usable GPU: Found no NVIDIA driver on your system (no NVIDIA driver on this"
            " machine (NVML: NVML Shared Library Not Found)). Run this where `nvidia-smi` shows a GPU.",
        ),
        (
            "h100",
            {"CUDA_VISIBLE_DEVICES": ""},
            "CUDA_VISIBLE_DEVICES is '': it hides every GPU of this machine; unset it, or name one of 0 to 0."
            " Run this where `nvidia-smi` shows a GPU.",
        ),
        (
            "h100-pcie",
            {},
            "the part 'NVIDIA H100 PCIe' is not known, so its peak is not. Known: NVIDIA A100-SXM4-80GB,",
        ),
    ],
)
def test_what_stands_in_the_way_is_one_sentence(replay, environment, message, config, tmp_path):
    import torch

    done = check(config, tmp_path, replay=replay, **environment)
    assert done.returncode == 2
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"scaling-study: GPU: {message.replace('{torch}', torch.__version__)}")
    assert "Traceback" not in done.stderr


def test_a_run_that_the_time_stopped_is_left_out_and_one_that_stalled_is_not():
    late = run_result(outcome=Outcome.TIMEOUT, reason="the run took longer than 9 s (run_limit_s)")
    assert stopped(late, -0.2) == "it was stopped when the time was up: the run took longer than 9 s (run_limit_s)"
    assert stopped(late, 60.0) is None
    assert stopped(run_result(), -0.2) is None


# -- the real study --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", sorted({name for one in CONFIG.catalogue.hardware.values() for name in one.device_names})
)
def test_every_known_part_has_a_platform_and_runs_of_a_precision_that_it_has(name):
    hardware = hardware_of_device(name, CONFIG.catalogue.hardware)
    assert platform_of(CONFIG, hardware).name == f"local-{hardware.name}"
    study = CONFIG.study("gpu-check")
    planned = planned_runs(study, CONFIG, hardware)
    alone = [run for run, _ in planned.values() if run.ranks == 1]
    assert len(alone) in (12, 15)  # V100 has neither FlashAttention-2 nor cuDNN's, and bf16 nowhere
    assert {run.ranks for run, _ in planned.values()} == {1, 2, 4, 8}
    assert all(run.precision in hardware.peak_tflops for run, _ in planned.values())
    assert {run.model for run in alone} >= {"llama2-1b", "llama2-7b-4l", "llama2-70b-1l"}
    assert {run.precision for run in alone} <= {Precision.BF16, Precision.FP16}


@pytest.mark.parametrize(
    "name",
    ["NVIDIA H100 PCIe", "NVIDIA H100 NVL", "NVIDIA H200 NVL", "NVIDIA A100 80GB PCIe", "Tesla V100-PCIE-32GB",
     "NVIDIA GH200 480GB", "NVIDIA H100", "nvidia h200", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", ""],
)  # fmt: skip
def test_other_parts_are_refused_with_what_is_known(name):
    with pytest.raises(
        UserError, match=r"the part '.*' is not known, so its peak is not\. Known: .*NVIDIA H200.*Others go"
    ):
        hardware_of_device(name, CONFIG.catalogue.hardware)


def test_hardware_without_a_platform_is_refused():
    with pytest.raises(UserError, match="no platform measures h100-ib100 on this machine"):
        platform_of(CONFIG, CONFIG.catalogue.hardware["h100-ib100"])


def test_runs_are_the_same_whatever_is_left_out():
    study = CONFIG.study("gpu-check")
    h200 = planned_runs(study, CONFIG, CONFIG.catalogue.hardware["h200"])
    listed = {run_id(run) for sweep in study.sweeps for run in expand(study, sweep, CONFIG.catalogue)}
    assert set(h200) <= listed
    assert next(iter(h200)) == "llama2-7b-4l_h200_n1_dp1-tp1-pp1_mb1-gb4-s4096_bf16_" + next(iter(h200))[-10:]
