"""What the verbs of the performance model show: `validate`, `calibrate`, `plan`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
from rich.console import Console
from rich.table import Table

from scaling_study.console import advancing, printer, tracked
from scaling_study.predict.benchmarks import Comparison, call_ratios, compare
from scaling_study.predict.calibration import (
    NINETY,
    Left,
    Run,
    fit_runs,
    leave_each_out,
    memory_accuracy,
    parameter_sets,
    predicted,
    read_runs,
    validation_table,
    write_sets,
)
from scaling_study.predict.coordination import coordination_table, read_printed
from scaling_study.predict.fabric import read_fabric_model
from scaling_study.predict.fitting import Fit
from scaling_study.predict.forecasts import bases_of_runs
from scaling_study.predict.library import Library
from scaling_study.predict.parameters import KNOBS
from scaling_study.predict.planning import Plan
from scaling_study.predict.scores import choice_loss, score
from scaling_study.predict.sensitivity import sensitivity
from scaling_study.predict.validation import SourceReport, reports, validate
from scaling_study.records import write_parquet
from scaling_study.spec import Config, TrainingRun, expand

_CONSTANTS = 8  # that are printed, those that move a prediction most
_REASONS = 10  # that are printed, the most frequent first


def run_validate(path: Path, config_root: Path, output: Path | None) -> None:
    """Print errors per source; write the table if asked to.

    Raises:
        UserError: the table cannot be read or the output cannot be written.
    """
    validated, console = validate(path, Library(config_root)), printer()
    found = reports(validated)
    console.print(_reported(found))
    timed = [report.mape for report in found if report.rows]
    if timed:
        console.print(f"mean of the sources' MAPE: {np.mean(timed):.1f}%")
    counts = validated.filter(pl.col("reason").is_not_null()).group_by("reason").len().sort("len", descending=True)
    for reason, count in counts.head(_REASONS).iter_rows():
        console.print(f"{count} rows without a prediction: {reason}", markup=False, soft_wrap=True)
    if output is not None:
        write_parquet(output, validated)


def run_calibrate(
    library: Library, judged_path: Path | None, leave_one_out: bool, write: bool, output: Path | None
) -> None:
    """Print constants and errors; write the parameter sets, or the judged rows with their predictions, if asked to."""
    training, console = read_runs(library.folder / "runs.csv", library), printer()
    judged = read_runs(judged_path, library) if judged_path else training
    with advancing("fitting"):
        whole = fit_runs(training)
    console.print(_constants(whole))
    fitted_on = ", ".join(sorted({run.setup.part.family for run in training}))
    console.print(f"fitted on the rows of {fitted_on} in {library.folder / 'runs.csv'}", soft_wrap=True)
    console.print(_micro_benchmarks(compare(library, whole.constants)))
    if not (leave_one_out or write or output):
        console.print(_fitted(judged, whole))
        return
    left = leave_each_out(training, judged, whole, tracked("fitting without each source"))
    console.print(_left_out(left))
    _print_memory(judged, console)
    if output is not None:
        write_parquet(output, validation_table(judged, left))
    if write:
        small, large = (call_ratios(library, whole.constants, large=size) for size in (False, True))
        write_sets(parameter_sets(whole, left, small, large), library.folder)


def run_sensitivity(config: Config, study_name: str, output: Path | None) -> None:
    """Print for each printed change of a rate which constants move it most; write the table if asked to."""
    study, console = config.study(study_name), printer()
    found = sensitivity(study, config.catalogue, Library(config.root), tracked("moving constants"))
    for (sweep, metric), part in found.group_by("sweep", "metric", maintain_order=True):
        first = part.row(0, named=True)
        console.print(
            f"{sweep}, {metric} from {first['since']} to {first['where']}: predicted {first['predicted_change']:+.1%}, "
            f"reported {first['reported_change']:+.1%}",
            soft_wrap=True,
        )
        console.print(_moved(part.head(_CONSTANTS)))
    if output is not None:
        write_parquet(output, found)


def run_fabric(config: Config, study_name: str, sweep_name: str, output: Path | None) -> None:
    """Print what pacing is predicted to change on every fabric; write the table if asked to."""
    library = Library(config.root)
    runs = expand(config.study(study_name), sweep_name, config.catalogue)
    bases = bases_of_runs([run for run in runs if isinstance(run, TrainingRun)], config.catalogue, library)
    track = tracked("drawing by chance")
    found = coordination_table(bases, read_fabric_model(library.folder), read_printed(config.root), track)
    shown = _table("fabric", "placement", "nodes", "throughput", "CV off", "CV adaptive")
    for (fabric, placement, nodes), part in found.filter(kind="prediction").group_by(
        "fabric", "placement", "nodes", maintain_order=True
    ):
        cells = [
            f"{row['value']:{form}} ({row['low']:{form}} .. {row['high']:{form}})"
            for row, form in zip(part.iter_rows(named=True), ("+.1%", ".3f", ".3f"), strict=True)
        ]
        shown.add_row(str(fabric), str(placement), str(nodes), *cells)
    printer().print(shown)
    if output is not None:
        write_parquet(output, found)


def _moved(part: pl.DataFrame) -> Table:
    columns = ("constant", "value", "90% interval", "change at its ends", "needed", "meaning")
    table = _table(*columns, words=("constant", "meaning"))
    for row in part.iter_rows(named=True):
        interval = f"{row['low']:.4g} .. {row['high']:.4g}"
        changes = f"{row['change_at_low']:+.1%} .. {row['change_at_high']:+.1%}"
        table.add_row(
            row["constant"], f"{row['value']:.4g}", interval, changes, _shown(row["needed"], ".3g"), row["meaning"]
        )
    return table


def print_plans(plans: Sequence[Plan], count: int) -> None:
    """The first plans as a table, and how many there are."""
    columns = ("dp", "tp", "pp", "v", "mb", "checkpoint", "reshard", "tokens/s", "MFU %", "GiB", "W/GPU", "tokens/J")
    table = _table(*columns, "GPU-h/Gtoken", "fits", words=("checkpoint", "reshard", "fits"))
    for one in plans[:count]:
        table.add_row(
            *(str(number) for number in (one.dp, one.tp, one.pp, one.virtual_stages, one.micro_batch)),
            one.activation_checkpointing.value,
            _yes(one.reshard_after_forward),
            f"{one.tokens_per_second:,.0f}",
            f"{100 * one.mfu:.1f}",
            f"{one.memory_gib:.1f}",
            f"{one.power_w_per_gpu:.0f}",
            f"{one.tokens_per_joule:.3f}",
            f"{one.gpu_hours_per_billion_tokens:.2f}",
            _yes(one.fits),
        )
    console = printer()
    console.print(table)
    console.print(f"{len(plans)} layouts, {sum(one.fits for one in plans)} fit")


def _table(*columns: str, words: Sequence[str] = ()) -> Table:
    """A table without lines; numbers stand at the right, `words` at the left."""
    table = Table(box=None, pad_edge=False)
    for name in columns:
        table.add_column(name, justify="left" if name in words else "right", no_wrap=name not in words)
    return table


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _shown(value: float | None, form: str = ".3f") -> str:
    return "" if value is None else format(value, form)


def _reported(found: Sequence[SourceReport]) -> Table:
    table = _table("source", "rows", "MAPE %", "median %", "bias %", "rank", "memory", "no reply", words=("source",))
    for one in found:
        errors = (f"{one.mape:.1f}", f"{one.median:.1f}", f"{one.bias:+.1f}")
        table.add_row(one.source, str(one.rows), *errors, _shown(one.rank), _shown(one.memory), str(one.reasons))
    return table


def _constants(whole: Fit) -> Table:
    """Every constant with its interval, its prior, what it means and where the prior comes from."""
    last = "meaning [source of the prior]"
    table = _table("constant", "value", "90% interval", "prior", last, words=("constant", last))
    spreads = np.sqrt(np.diag(whole.covariance))
    for name, logarithm, spread in zip(whole.names, whole.logarithms, spreads, strict=True):
        base, _, family = name.partition("@")
        knob, value, reach = KNOBS[base], float(np.exp(logarithm)), float(np.exp(NINETY * spread))
        interval = f"{value / reach:.4g} .. {value * reach:.4g}"
        unit = f" ({knob.unit})" if knob.unit else ""
        meaning = f"{knob.meaning}{unit} \\[{knob.source}]"
        table.add_row(name, f"{value:.4g}", interval, f"{knob.by_family.get(family, knob.value):.4g}", meaning)
    return table


def _micro_benchmarks(found: Sequence[Comparison]) -> Table:
    first = "micro-benchmark (not fitted on)"
    table = _table(first, "rows", "predicted / measured", "spread %", words=(first,))
    for one in found:
        table.add_row(one.what, str(one.rows), f"{one.ratio:.2f}", f"{one.spread_percent:.1f}")
    return table


def _fitted(judged: Sequence[Run], whole: Fit) -> Table:
    table = _table("source", "rows", "fitted MAPE %", words=("source",))
    for source in sorted({run.source for run in judged if run.seconds is not None}):
        found = score(*predicted([run for run in judged if run.source == source], whole.constants))
        table.add_row(source, str(found.rows), f"{found.mape:.1f}")
    return table


def _left_out(left: Sequence[Left]) -> Table:
    """Errors per source, fitted and left out, and what choosing a layout by the prediction costs."""
    columns = ("source", "rows", "fitted MAPE %", "left-out MAPE %", "bias %", "rank", "choice loss %", "left out")
    table = _table(*columns, words=("source",))
    errors = []
    for part in left:
        fitted, unseen = score(part.fitted, part.measured), score(part.unseen, part.measured)
        errors.append((fitted.mape, unseen.mape))
        groups = [run.group for run in part.rows]
        losses = [choice_loss(groups, prediction, part.measured) for prediction in (part.fitted, part.unseen)]
        costs = ["" if loss is None else f"{100 * loss:.1f}" for loss in losses]
        numbers = (f"{fitted.mape:.1f}", f"{unseen.mape:.1f}", f"{unseen.bias:+.1f}", _shown(unseen.rank))
        table.add_row(part.source, str(fitted.rows), *numbers, *costs)
    table.add_row("mean over sources", "", *(f"{mean:.1f}" for mean in np.mean(errors, axis=0)))
    return table


def _print_memory(judged: Sequence[Run], console: Console) -> None:
    for source in sorted({run.source for run in judged}):
        accuracy = memory_accuracy([run for run in judged if run.source == source])
        if accuracy is not None:
            said = f"balanced accuracy of ok against out of memory {accuracy:.3f} (nothing fitted)"
            console.print(f"{source}: {said}", soft_wrap=True)
