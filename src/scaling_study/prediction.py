"""From a study's sweep to its predicted records, and from a run to its predicted timeline. Nothing is run; no torch."""

from __future__ import annotations

import sys
from pathlib import Path

from scaling_study.console import tracked
from scaling_study.predict.forecasts import Forecast, forecast, timeline_of_run
from scaling_study.predict.library import Library
from scaling_study.records import invalid_records, predicted_record, write_records
from scaling_study.spec import PREDICT, Catalogue, Config, TrainingRun, expand, find_training_run, run_id
from scaling_study.timeline import write_timeline_file


def predict_sweep(config: Config, study_name: str, sweep_name: str, output: Path) -> None:
    """Predict every run of a sweep and write its record file.

    Raises:
        UserError: study or sweep are not valid, the model knows no such part, or the output cannot be written.
    """
    catalogue = config.catalogue
    runs = expand(config.study(study_name), sweep_name, catalogue)
    found = forecast(runs, catalogue, Library(config.root), track=tracked(f"predicting {sweep_name}"))
    records = [_record(one, catalogue) for one in found]
    for line in invalid_records(records):
        print(line, file=sys.stderr)
    write_records(output, records)


def _record(found: Forecast, catalogue: Catalogue) -> dict[str, object]:
    run = found.run
    return predicted_record(
        run,
        found.outcome,
        found.reason,
        found.metrics,
        catalogue.models[run.model] if isinstance(run, TrainingRun) else None,
        catalogue.hardware[run.hardware],
        extrapolated=found.extrapolated,
        platform=PREDICT,
    )


def write_timeline(config: Config, study_name: str, name: str, output: Path) -> None:
    """Write the predicted timeline of a run.

    Args:
        name: the run's id.
        output: `.parquet` for the span table, `.json` or `.json.gz` for a trace that Perfetto opens.

    Raises:
        UserError: there is no such run, the model knows no such part, or the output has another suffix or cannot be
            written.
    """
    run = find_training_run(config.study(study_name), name, config.catalogue)
    found = timeline_of_run(run, config.catalogue, Library(config.root))
    write_timeline_file(output, found.spans, title=f"{run_id(run)} (predicted)")
