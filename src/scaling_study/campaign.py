"""From a study's sweep to its record file: expand, measure, gather; and from records to the cache."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from scaling_study.console import SweepMonitor
from scaling_study.errors import UserError, read_bytes, write_atomically
from scaling_study.records import invalid_records, read_records, record_of, require_runs, write_records
from scaling_study.spec import (
    MODEL_TABLES,
    PREDICT,
    Catalogue,
    Config,
    Executor,
    Platform,
    Provenance,
    Run,
    RunResult,
    Study,
    TokenManifest,
    TrainingRun,
    can_measure,
    expand,
    run_id,
)
from scaling_study.submit import Driver, RunStore, SlurmDriver, check_writable, prepared
from scaling_study.submit.expected import expected_seconds
from scaling_study.submit.verdict import with_evidence


def measure_sweep(
    config: Config,
    study_name: str,
    sweep_name: str,
    platform_name: str,
    output: Path,
    log: Path | None,
    keep_failures: bool,
    results_folder: Path,
) -> list[str]:
    """Measure what is missing of a sweep and write its record file.

    Returns:
        A sentence for each run that failed, and no file; an empty list where the file is written.

    Raises:
        UserError: study, sweep, platform or data are not as they must be, or the output cannot be written.
    """
    study, platform, catalogue = config.study(study_name), config.platform(platform_name), config.catalogue
    runs = [run for run in expand(study, sweep_name, catalogue) if run.hardware == platform.hardware]
    if not runs:
        raise UserError(
            f"no run of {sweep_name} is of {platform.hardware}",
            where=f"platform {platform.name}",
            remedy="Choose the platform that has the sweep's hardware.",
        )
    data_folder = results_folder / "data"
    check_writable(output.parent)
    store = RunStore(results_folder / "store" / platform.name)
    with SweepMonitor(runs, f"{study.name} {sweep_name}", log) as monitor:
        driver = _driver(config, platform, runs, store, data_folder, monitor)
        driver.check(runs)
        driver.manifests = _manifests(config, runs, catalogue, data_folder)
        results = driver.measure(runs)
        records = [_record(result, catalogue, platform.name) for result in results]
        for line in invalid_records(records):
            monitor.note(line)
    failed = [result for result in results if not result.outcome.is_result]
    if failed and not keep_failures:
        return [_failure(result, store) for result in failed]
    write_records(output, records)
    return []


def _driver(
    config: Config, platform: Platform, runs: list[Run], store: RunStore, data_folder: Path, monitor: SweepMonitor
) -> Driver | SlurmDriver:
    """Who measures on a platform."""
    if platform.executor is Executor.LOCAL:
        return Driver(platform, config.catalogue, store, data_folder, monitor)
    expected_s = expected_seconds(runs, config.catalogue, config.root)
    return SlurmDriver(platform, config.catalogue, store, data_folder, monitor, expected_s)


def _manifests(config: Config, runs: list[Run], catalogue: Catalogue, data_folder: Path) -> dict[str, TokenManifest]:
    """The prepared data of the runs, checked before any rank starts."""
    training = [run for run in runs if isinstance(run, TrainingRun)]
    by_name = {
        name: [run for run in training if run.protocol.data == name] for name in {r.protocol.data for r in training}
    }
    return {name: prepared(config.dataset(name), data_folder, by_name[name], catalogue) for name in sorted(by_name)}


def _record(result: RunResult, catalogue: Catalogue, platform_name: str) -> dict[str, object]:
    run = result.run
    model = catalogue.models[run.model] if isinstance(run, TrainingRun) else None
    hardware = catalogue.hardware[run.hardware]
    return record_of(result, model, hardware, platform=platform_name, provenance=Provenance.MEASURED)


def _failure(result: RunResult, store: RunStore) -> str:
    log = store.files(result.run).attempt(result.attempt).log
    return f"{run_id(result.run)}: {result.outcome}: {with_evidence(result)}\n    log: {log}"


def promote_records(config: Config, study: Study, platform_name: str, results_folder: Path) -> list[Path]:
    """Copy every record file of a study and platform into the cache, after reading it through the checks.

    Raises:
        UserError: there is none, one is damaged or not of the study's runs, or the cache cannot be written.
    """
    source = results_folder / study.name / platform_name
    paths = sorted(source.glob("*.parquet"))
    if not paths:
        raise UserError("there are no records", where=str(source), remedy=f"Measure the study {study.name} first.")
    missing = _measurable(config, study, platform_name) - {path.stem for path in paths}
    if missing:
        raise UserError(
            f"records of {', '.join(sorted(missing))} are missing",
            where=str(source),
            remedy=f"Measure the whole study {study.name} first; the cache holds one study, not parts of several.",
        )
    target = results_folder / "cached" / study.name / platform_name
    for path in paths:  # all are checked before the first is copied
        _require_runs(config, study, path.stem, path)
    others = _other_inputs(study, results_folder) if platform_name == PREDICT else _observed(study, source)
    copies = {path: target / path.name for path in paths}
    copies |= {path: results_folder / "cached" / path.relative_to(results_folder) for path in others}
    for path, copy in copies.items():
        write_atomically(copy, read_bytes(path))
    return list(copies.values())


def _measurable(config: Config, study: Study, platform_name: str) -> set[str]:
    """The sweeps of a study that a platform must have records of: those with runs of its hardware.

    One that is measured as time allows may be left out.
    """
    hardware = None if platform_name == PREDICT else config.catalogue.hardware[config.platform(platform_name).hardware]
    return {
        name
        for name, sweep in study.sweeps.items()
        if sweep.status == "ready"
        and not (sweep.as_time_allows and hardware)
        and any(hardware is None or can_measure(run, hardware) for run in expand(study, name, config.catalogue))
    }


def _other_inputs(study: Study, results_folder: Path) -> list[Path]:
    """What else figures of predictions are drawn from: timelines, and tables of the model."""
    requests = study.figures.values()
    runs = dict.fromkeys(run for request in requests for run in request.timelines)
    found = [results_folder / study.name / PREDICT / "timelines" / f"{run}.parquet" for run in runs]
    asked = {request.of for request in requests}
    tables = [results_folder / study.name / "model" / f"{name}.parquet" for name in MODEL_TABLES if name in asked]
    return [*found, *tables]


def _observed(study: Study, source: Path) -> list[Path]:
    """What figures of synchronisations are drawn from."""
    asked = any(request.of == "synchronisation" for request in study.figures.values())
    return [source / "observed" / "coordination.parquet"] if asked else []


def records_of_sweep(config: Config, study: Study, sweep: str, paths: tuple[Path, ...]) -> pl.DataFrame:
    """The records of a sweep from its files, one a platform.

    Raises:
        UserError: a file is damaged, or its records are not of the sweep's runs.
    """
    return pl.concat([_require_runs(config, study, sweep, path) for path in paths])


def _require_runs(config: Config, study: Study, sweep: str, path: Path) -> pl.DataFrame:
    """The records of a file, if they are of the sweep's runs."""
    records = read_records(path)  # a damaged file is named before a sweep that is not there
    run_ids = {run_id(run): run.hardware for run in expand(study, sweep, config.catalogue)}
    return require_runs(records, run_ids, str(path), partly=study.sweeps[sweep].as_time_allows)
