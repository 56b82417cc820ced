"""What the verb `gpu-check` does: this machine's GPUs, within minutes, beside what the performance model says of them.

Attention backends against fp32 first, then runs of the study `gpu-check` one after another, each in processes of its
own, until the time is nearly up; what is left out is named. Files are written anew after every run, so that what was
measured is there whenever it is stopped. Records lie as `promote` reads them: `<output>/<platform>/<sweep>.parquet`.
"""

from __future__ import annotations

import io
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import takewhile
from pathlib import Path

import msgspec
import polars as pl

from scaling_study.console import SweepMonitor
from scaling_study.errors import UserError, write_atomically
from scaling_study.gpureport import CheckedRun, GpuReportFile, LeftOut, checks_of, markdown
from scaling_study.predict.forecasts import Forecast, forecast
from scaling_study.predict.library import Library
from scaling_study.records import predicted_record, record_of, write_records
from scaling_study.spec import (
    PREDICT,
    AttentionCheck,
    AttentionReport,
    AttentionShape,
    Config,
    Executor,
    Hardware,
    MachineReport,
    Outcome,
    Platform,
    Precision,
    Provenance,
    RunFiles,
    RunResult,
    Study,
    TrainingRun,
    expand,
    hardware_of_device,
    run_id,
    steps_of,
)
from scaling_study.submit import Driver, RunStore, check_writable, node, prepared
from scaling_study.submit.local import ChildError, ask_fresh_process
from scaling_study.submit.verdict import utc_now
from scaling_study.timeline import read_timeline_file

STUDY = "gpu-check"
#: What a device machine takes back.
MOST_FILES, MOST_BYTES = 8, 16 * 2**20
#: Of a start before one was seen: CUDA, NCCL, weights; of all that follows the timed iterations; of the end.
_START_S, _PROFILE_S, _END_S = 30.0, 8.0, 10.0
#: Iterations may take longer than predicted by so much.
_MARGIN = 1.5
_LOOK_S, _ATTENTION_S = 90.0, 90.0
SHAPES = (
    AttentionShape(batch=2, tokens=1024, heads=16, kv_heads=16, head_dim=128),
    AttentionShape(batch=1, tokens=1000, heads=16, kv_heads=4, head_dim=128),
)

Say = Callable[[str], None]


def check_gpus(config: Config, output: Path, budget_s: float, say: Say) -> GpuReportFile:
    """Measure what the time allows and write all files.

    Args:
        config: with the study `gpu-check`.
        output: folder of the files; what an earlier check left in it is removed.
        budget_s: wall time for all of it.
        say: is told what goes on, a line at a time.

    Raises:
        UserError: there is no GPU, it is no known part, no platform measures it, or the output cannot be written.
    """
    began_s = time.monotonic()
    study, catalogue = config.study(STUDY), config.catalogue
    check_writable(output)
    machine = look(say)
    hardware = hardware_of_device(machine.gpus[0].name, catalogue.hardware)
    platform = platform_of(config, hardware)
    _clear(output, study, platform)
    alike = len(list(takewhile(lambda gpu: gpu.name in hardware.device_names, machine.gpus)))  # a rank's is its number
    say(f"{alike} x {machine.gpus[0].name}, torch {machine.torch}, driver {machine.driver or 'unknown'}")
    with tempfile.TemporaryDirectory(prefix="scaling-study-gpu-") as folder:
        session = _Session(config, study, platform, hardware, Path(folder), output, began_s + budget_s, say)
        report = GpuReportFile(
            started_at=utc_now(), hardware=hardware.name, platform=platform.name, machine=machine, budget_s=budget_s
        )
        report = msgspec.structs.replace(report, attention=session.attention())
        return session.measure(report, alike, began_s)


def look(say: Say) -> MachineReport:
    """The GPUs of this machine.

    Raises:
        UserError: there is none that can be used, with the reason.
    """
    say("looking for GPUs")
    try:
        with tempfile.TemporaryDirectory(prefix="scaling-study-gpu-") as folder:
            answer = ask_fresh_process(node.look_at_gpus, b"", _LOOK_S, Path(folder) / "log")
        found = msgspec.json.decode(answer, type=MachineReport)
    except ChildError as error:
        what = f"PyTorch and NVML could not be asked for GPUs: {error}"
        raise UserError(what, where="GPU", remedy="Try `python3 -c 'import torch; torch.cuda.init()'`.") from error
    if found.no_gpu is not None:
        raise UserError(found.no_gpu, where="GPU", remedy="Run this where `nvidia-smi` shows a GPU.")
    return found


def platform_of(config: Config, hardware: Hardware) -> Platform:
    """The platform that measures a hardware on this machine.

    Raises:
        UserError: there is none.
    """
    names = sorted(path.stem for path in (config.root / "platforms").glob("*.yaml"))
    for platform in (config.platform(name) for name in names):
        if platform.executor is Executor.LOCAL and platform.hardware == hardware.name:
            return platform
    raise UserError(
        f"no platform measures {hardware.name} on this machine",
        where=str(config.root / "platforms"),
        remedy=f"Add one with `executor: local` and `hardware: {hardware.name}`.",
    )


def planned_runs(study: Study, config: Config, hardware: Hardware) -> dict[str, tuple[TrainingRun, list[str]]]:
    """The runs of a hardware with the sweeps that each is in, in the order in which they are measured."""
    planned: dict[str, tuple[TrainingRun, list[str]]] = {}
    for sweep in study.sweeps:
        for run in expand(study, sweep, config.catalogue):
            if isinstance(run, TrainingRun) and run.hardware == hardware.name:
                planned.setdefault(run_id(run), (run, []))[1].append(sweep)
    return planned


def stopped(result: RunResult, left_s: float) -> str | None:
    """That a run was stopped because the time was up, which says nothing of the GPU; None of any other end."""
    if result.outcome is Outcome.TIMEOUT and left_s <= 0:
        return f"it was stopped when the time was up: {result.reason}"
    return None


class _Session:
    """One check: where it is at, what it has found, and how much time is left."""

    def __init__(
        self,
        config: Config,
        study: Study,
        platform: Platform,
        hardware: Hardware,
        folder: Path,
        output: Path,
        deadline_s: float,
        say: Say,
    ) -> None:
        self.config, self.study, self.platform, self.hardware = config, study, platform, hardware
        self.folder, self.output, self.deadline_s, self.say = folder, output, deadline_s, say
        self.store = RunStore(folder / "store")
        self._start_s = _START_S
        self._started = False
        self.records: dict[str, dict[str, object]] = {}
        self.spans: list[pl.DataFrame] = []

    def attention(self) -> list[AttentionReport]:
        """Every backend against fp32; an empty list where the process that compares them breaks."""
        self.say("comparing attention backends with fp32")
        precisions = tuple(one for one in (Precision.BF16, Precision.FP16) if one in self.hardware.peak_tflops)
        asked = AttentionCheck(gpu=self.hardware, shapes=SHAPES, precisions=(*precisions, Precision.FP32))
        limit_s = max(0.0, min(_ATTENTION_S, self._left_s()))
        try:
            log = self.folder / "attention.log"
            found = ask_fresh_process(node.check_attention, msgspec.json.encode(asked), limit_s, log)
        except ChildError as error:
            self.say(f"attention could not be compared: {error}")
            return []
        return msgspec.json.decode(found, type=list[AttentionReport])

    def measure(self, report: GpuReportFile, gpus: int, began_s: float) -> GpuReportFile:
        """Run after run, as long as there is time for the next; files after each."""
        planned = planned_runs(self.study, self.config, self.hardware)
        forecasts = self._forecasts([run for run, _ in planned.values()])
        runs = [run for run, _ in planned.values()]
        with SweepMonitor(runs, STUDY, None) as monitor:
            driver = self._driver(runs, monitor)
            driver.keep_traces_of = frozenset(list(planned)[:1])
            for name, (run, sweeps) in planned.items():
                why = self._why_not(run, forecasts[name], gpus, report.attention)
                if why is None:
                    result = self._run(driver, run)
                    why = stopped(result, self._left_s())
                if why is None:
                    report = self._with(report, run, sweeps, result, forecasts[name])
                    report = self._written(report, began_s)
                else:
                    left_out = LeftOut(run_id=name, sweeps=sweeps, reason=why)
                    report = msgspec.structs.replace(report, left_out=[*report.left_out, left_out])
        return self._written(report, began_s)

    def _forecasts(self, runs: Sequence[TrainingRun]) -> dict[str, Forecast]:
        found = forecast(runs, self.config.catalogue, Library(self.config.root))
        return {run_id(one.run): one for one in found}

    def _driver(self, runs: Sequence[TrainingRun], monitor: SweepMonitor) -> Driver:
        from scaling_study.training.prepare import prepare

        data = self.folder / "data"
        once = msgspec.structs.replace(self.platform, attempts=1)
        driver = Driver(once, self.config.catalogue, self.store, data, monitor)
        driver.check(runs)
        datasets = {name: self.config.dataset(name) for name in sorted({run.protocol.data for run in runs})}
        for dataset in datasets.values():
            prepare(dataset, data)
        driver.manifests = {
            name: prepared(dataset, data, [run for run in runs if run.protocol.data == name], self.config.catalogue)
            for name, dataset in datasets.items()
        }
        return driver

    def _why_not(
        self, run: TrainingRun, found: Forecast, gpus: int, attention: Sequence[AttentionReport]
    ) -> str | None:
        """Why a run is not measured, None if it is."""
        if run.ranks > gpus:
            return f"it needs {run.ranks} GPUs, this machine has {gpus}"
        tried = [one for one in attention if (one.backend, one.precision) == (run.attention, run.precision)]
        if tried and all(one.error is None for one in tried):
            return f"{run.attention} does not run here: {tried[0].reason}"
        needed_s, left_s = self._needed_s(run, found), self._left_s()
        if needed_s > left_s:
            return f"it takes about {needed_s:.0f} s, {max(left_s, 0):.0f} s were left"
        return None

    def _needed_s(self, run: TrainingRun, found: Forecast) -> float:
        iterations_s = steps_of(run) * found.metrics.get("iteration_s", 0.0) * _MARGIN
        return self._start_s + iterations_s + _PROFILE_S

    def _left_s(self) -> float:
        return self.deadline_s - time.monotonic() - _END_S

    def _run(self, driver: Driver, run: TrainingRun) -> RunResult:
        driver.platform = msgspec.structs.replace(driver.platform, run_limit_s=max(1.0, self._left_s()))
        before_s = time.monotonic()
        (result,) = driver.measure([run])
        if result.outcome is Outcome.OK:
            seconds = sum(map(sum, (rank.iteration_ns + rank.profiled_ns for rank in result.ranks[:1]))) / 1e9
            took_s = time.monotonic() - before_s - seconds
            self._start_s = max(self._start_s, took_s) if self._started else took_s
            self._started = True
        return result

    def _with(
        self, report: GpuReportFile, run: TrainingRun, sweeps: list[str], result: RunResult, found: Forecast
    ) -> GpuReportFile:
        """The report with one more run."""
        catalogue, name = self.config.catalogue, run_id(run)
        model = catalogue.models[run.model]
        measured = record_of(result, model, self.hardware, platform=self.platform.name, provenance=Provenance.MEASURED)
        predicted = predicted_record(
            run, found.outcome, found.reason, found.metrics, model, self.hardware,
            extrapolated=found.extrapolated, platform=PREDICT,
        )  # fmt: skip
        if result.outcome.is_result:
            self.records[name] = measured
        files = RunFiles(self.store.files(run).folder)
        if result.outcome is Outcome.OK:
            self.spans.append(read_timeline_file(files.timeline(0)).with_columns(run_id=pl.lit(name)))
        if files.trace.exists():
            report = self._keep_trace(report, files.trace)
        checked = CheckedRun.of(run, sweeps, result, measured, predicted)
        return msgspec.structs.replace(report, runs=[*report.runs, checked])

    def _keep_trace(self, report: GpuReportFile, trace: Path) -> GpuReportFile:
        size = trace.stat().st_size
        if size > MOST_BYTES:
            note = f"the raw trace is left out: it has {size / 2**20:.0f} MiB, a file may have {MOST_BYTES >> 20}"
            return msgspec.structs.replace(report, notes=[*report.notes, note])
        shutil.copyfile(trace, self.output / "trace.json.gz")
        return report

    def _written(self, report: GpuReportFile, began_s: float) -> GpuReportFile:
        """Write every file."""
        for sweep in self.study.sweeps:
            names = [one.run_id for one in report.runs if sweep in one.sweeps]
            of_sweep = [self.records[name] for name in names if name in self.records]
            if of_sweep:
                write_records(self.output / self.platform.name / f"{sweep}.parquet", of_sweep)
        if self.spans:
            _write_spans(self.output / "timelines.parquet", self.spans)
        report = msgspec.structs.replace(report, seconds=time.monotonic() - began_s, checks=checks_of(report))
        write_atomically(self.output / "gpu-check.md", markdown(report).encode())
        write_atomically(self.output / "gpu-check.json", msgspec.json.format(msgspec.json.encode(report)))
        return report


def _write_spans(path: Path, spans: Sequence[pl.DataFrame]) -> None:
    """The span tables of every run's first rank, with a column `run_id`; the longest go where all are too large."""
    kept = sorted(spans, key=lambda one: one.height)
    while kept:
        buffer = io.BytesIO()
        pl.concat(kept).sort("run_id", "start_ns").write_parquet(buffer, compression="zstd")
        if buffer.tell() <= MOST_BYTES:
            write_atomically(path, buffer.getvalue())
            return
        kept.pop()


def _clear(output: Path, study: Study, platform: Platform) -> None:
    """Remove what an earlier check left."""
    ours = [output / name for name in ("gpu-check.json", "gpu-check.md", "trace.json.gz", "timelines.parquet")]
    for path in [*ours, *(output / platform.name / f"{sweep}.parquet" for sweep in study.sweeps)]:
        path.unlink(missing_ok=True)
