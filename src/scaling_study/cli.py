"""The command line: thin verbs over the rooms. Heavy imports happen inside a verb, so that others start at once."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import click

from scaling_study.errors import UserError, explain_os_error
from scaling_study.spec import Config

EXIT_FAILED_RUNS = 1
EXIT_USER_ERROR = 2
EXIT_INTERRUPTED = 130


class FailedRunsError(Exception):
    """Some runs of a sweep ended without a result."""


class ReaderGoneError(Exception):
    """Nobody reads standard output any more."""


class _Verbs(click.Group):
    """The verbs; click would end with 1 where a reader leaves before the first line."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise ReaderGoneError from error


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="scaling-study")
@click.option(
    "--config", "config_folder", type=click.Path(path_type=Path), default=Path("config"), show_default=True,
    envvar="SCALING_STUDY_CONFIG", help="Folder of studies, platforms, models, hardware and data sets.",
)  # fmt: skip
@click.pass_context
def cli(context: click.Context, config_folder: Path) -> None:
    """Measure, gather and draw the hardware scaling study.

    Exit codes: 0 done, 1 some runs failed, 2 something you can mend, 130 interrupted.
    """
    from scaling_study.processes import follow_owner_of_environment

    context.obj = Config(config_folder)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    follow_owner_of_environment(at_once=context.invoked_subcommand != "measure")  # a driver ends its ranks first


_results = click.option(
    "--results", "results_folder", type=click.Path(path_type=Path), default=Path("results"), show_default=True,
    help="Folder of the run store, the prepared data and the gathered records.",
)  # fmt: skip
_records = click.argument(
    "record_files", metavar="RECORDS...", type=click.Path(path_type=Path), nargs=-1, required=True
)  # fmt: skip


@cli.command()
@click.argument("study_name", metavar="STUDY")
@click.option("--sweep", "sweep_name", help="Only this sweep.")
@click.option("--platform", "platform_name", help="Only runs that this platform measures.")
@click.option("--json", "as_json", is_flag=True, help="For machines.")
@click.pass_obj
def runs(config: Config, study_name: str, sweep_name: str | None, platform_name: str | None, as_json: bool) -> None:
    """List every run of STUDY with its layout and feasibility.

    Example: scaling-study runs paper --sweep data_parallel
    """
    from scaling_study.listing import list_runs, print_listing

    listing = list_runs(config, study_name, sweep_name, platform_name)
    if as_json:
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode(listing)))
    else:
        print_listing(listing)


@cli.command()
@click.argument("dataset_name", metavar="DATASET")
@_results
@click.pass_obj
def prepare(config: Config, dataset_name: str, results_folder: Path) -> None:
    """Make the token file of DATASET: corpus, vocabulary, tokens.

    Example: scaling-study prepare synthetic
    """
    from scaling_study.training.prepare import prepare as prepare_dataset

    manifest = prepare_dataset(
        config.dataset(dataset_name), results_folder / "data", lambda line: click.echo(line, err=True)
    )
    click.echo(f"{dataset_name}: {manifest.tokens:,} tokens of {manifest.dataset.vocabulary:,} kinds", err=True)


@cli.command()
@click.argument("study_name", metavar="STUDY")
@click.argument("sweep_name", metavar="SWEEP")
@click.option("--platform", "platform_name", required=True, help="Where to measure.")
@click.option("--output", type=click.Path(path_type=Path), required=True, help="Record file to write (parquet).")
@click.option("--log", type=click.Path(path_type=Path), help="File that gets a line an event.")
@click.option("--keep-failures", is_flag=True, help="Write failed runs as records instead of stopping.")
@_results
@click.pass_obj
def measure(
    config: Config, study_name: str, sweep_name: str, platform_name: str, output: Path, log: Path | None,
    keep_failures: bool, results_folder: Path,
) -> None:  # fmt: skip
    """Measure what is missing of SWEEP, wait, and write its records.

    Runs that have a result are not measured again. Interrupt at any moment; the next start goes on.

    Example: scaling-study measure mini data_parallel --platform local --output results/mini/local/data_parallel.parquet
    """
    from scaling_study.campaign import measure_sweep

    failed = measure_sweep(config, study_name, sweep_name, platform_name, output, log, keep_failures, results_folder)
    if failed:
        raise FailedRunsError("\n".join(failed))


@cli.command()
@click.argument("study_name", metavar="STUDY")
@click.argument("figure_name", metavar="FIGURE")
@click.argument("files", metavar="[RECORDS...]", type=click.Path(path_type=Path), nargs=-1)
@click.option("--timeline", "timelines", type=click.Path(path_type=Path), multiple=True, help="A timeline it shows.")
@click.option("--output", type=click.Path(path_type=Path), required=True, help="Folder of the study's figures.")
@click.pass_obj
def figure(
    config: Config, study_name: str, figure_name: str, files: tuple[Path, ...], timelines: tuple[Path, ...],
    output: Path,
) -> None:  # fmt: skip
    """Draw FIGURE of STUDY as SVG, PNG and Vega-Lite JSON, from the records of its sweep.

    A figure of hardware needs no file, one of the performance model the table that `calibrate` or `sensitivity` wrote.

    Example: scaling-study figure mini hst-04 results/cached/mini/local/data_parallel.parquet
    --output figures/mini
    """
    from scaling_study.drawing import draw

    draw(config, config.study(study_name), figure_name, files, timelines, output)


@cli.command()
@click.argument("study_name", metavar="STUDY")
@click.argument("table_name", metavar="TABLE")
@click.argument("record_files", metavar="[RECORDS...]", type=click.Path(path_type=Path), nargs=-1)
@click.option("--output", type=click.Path(path_type=Path), required=True, help="Folder of the study's tables.")
@click.pass_obj
def table(config: Config, study_name: str, table_name: str, record_files: tuple[Path, ...], output: Path) -> None:
    """Write TABLE of STUDY as CSV; a table of definitions needs no records.

    Example: scaling-study table mini layouts results/cached/mini/local/model_parallel.parquet
    --output figures/mini
    """
    from scaling_study.drawing import tabulate

    tabulate(config, config.study(study_name), table_name, record_files, output)


@cli.command()
@click.argument("study_names", metavar="STUDY...", nargs=-1, required=True)
@click.option("--platform", "platform_name", help="Whose measured records  [default: as the study says]")
@click.option("--cores", type=click.IntRange(1), help="How many are drawn at once  [default: all cores]")
@click.option(
    "--output", type=click.Path(path_type=Path), default=Path("figures"), show_default=True,
    help="Gets a folder a study.",
)  # fmt: skip
@click.pass_obj
def redraw(
    config: Config, study_names: tuple[str, ...], platform_name: str | None, cores: int | None, output: Path
) -> None:
    """Draw every figure and table of each STUDY from the committed records, several at once.

    One that cannot be drawn is named, and the others are drawn. A table of claims is judged by the records of the
    studies that are given.

    Example: scaling-study redraw mini paper
    """
    from scaling_study.console import tracked
    from scaling_study.processes import available_cores
    from scaling_study.redrawing import redraw as draw_all
    from scaling_study.workflow import Plan

    chosen = {"platform": platform_name} if platform_name else {}
    plan = Plan({"source": "cached", "studies": ",".join(study_names), "config_folder": str(config.root), **chosen})
    wrong = draw_all(config.root, plan.drawings(), output, cores or available_cores(), tracked("figures and tables"))
    if wrong:
        raise UserError("\n".join(["these could not be drawn:", *(f"{name}: {why}" for name, why in wrong.items())]))


@cli.command()
@_records
@click.option("--table", "tables", type=click.Path(path_type=Path), multiple=True, help="A table of the model.")
@click.option("--figures", "figures_folder", type=click.Path(path_type=Path), required=True, help="Figures, by study.")
@click.option("--output", type=click.Path(path_type=Path), required=True, help="PDF file to write.")
@click.pass_obj
def paper(
    config: Config, record_files: tuple[Path, ...], tables: tuple[Path, ...], figures_folder: Path, output: Path
) -> None:  # fmt: skip
    """Build the paper from records, each file at <study>/<platform>/<sweep>.parquet.

    Example: scaling-study paper results/cached/mini/local/*.parquet results/cached/paper/predict/*.parquet
    --table results/cached/paper/model/validation.parquet --table results/cached/paper/model/sensitivity.parquet
    --figures figures --output paper/paper.pdf
    """
    from scaling_study.console import advancing
    from scaling_study.drawing import build

    with advancing("building the paper"):
        build(config, record_files, tables, figures_folder, output)


@cli.command()
@_records
@click.option("--table", "tables", type=click.Path(path_type=Path), multiple=True, help="A table of the model.")
@click.option("--timeline", "timelines", type=click.Path(path_type=Path), multiple=True, help="A timeline of a run.")
@click.option("--figures", "figures_folder", type=click.Path(path_type=Path), required=True, help="Figures, by study.")
@click.option("--output", type=click.Path(path_type=Path), required=True, help="HTML file to write.")
@click.pass_obj
def report(
    config: Config,
    record_files: tuple[Path, ...],
    tables: tuple[Path, ...],
    timelines: tuple[Path, ...],
    figures_folder: Path,
    output: Path,
) -> None:
    """Build the report, one HTML file with every figure, claim and run, from records as for the paper.

    Example: scaling-study report results/cached/mini/local/*.parquet results/cached/paper/predict/*.parquet
    --figures figures --output results/report.html
    """
    from scaling_study.console import advancing
    from scaling_study.drawing import report_of

    with advancing("building the report"):
        report_of(config, record_files, tables, timelines, figures_folder, output)


@cli.command()
@click.option("--platform", "platform_name", help="Look for what its measurements need as well, such as Slurm.")
@click.option("--json", "as_json", is_flag=True, help="For machines.")
@click.pass_obj
def doctor(config: Config, platform_name: str | None, as_json: bool) -> None:
    """What this machine has and lacks, and the command that mends it; exit code 2 where something must be mended.

    Example: scaling-study doctor --platform slurm-h100
    """
    from scaling_study.doctor import State, examine, print_findings

    platform = config.platform(platform_name) if platform_name else None
    findings = examine(config.root.resolve().parent, platform)
    if as_json:
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode(findings)))
    else:
        print_findings(findings)
    if any(one.state is State.WRONG for one in findings):
        click.get_current_context().exit(EXIT_USER_ERROR)


@cli.command()
@click.argument("study_name", metavar="STUDY")
@click.argument("sweep_name", metavar="SWEEP")
@click.option("--platform", "platform_name", required=True, help="Whose run store.")
@click.option("--output", type=click.Path(path_type=Path), required=True, help="The table, as parquet.")
@_results
@click.pass_obj
def observed(
    config: Config, study_name: str, sweep_name: str, platform_name: str, output: Path, results_folder: Path
) -> None:
    """What the ranks of a measured SWEEP observed of their synchronisations: skew, waiting, lost time by cause.

    Example: scaling-study observed mini coordination --platform local
    --output results/mini/local/observed/coordination.parquet
    """
    from scaling_study.observed import write_observed

    write_observed(config, study_name, sweep_name, platform_name, output, results_folder)


@cli.command()
@click.option("--platform", "platform_name", required=True, help="Whose run store.")
@click.option("--json", "as_json", is_flag=True, help="For machines.")
@_results
@click.pass_obj
def status(config: Config, platform_name: str, as_json: bool, results_folder: Path) -> None:
    """How many runs of a platform have a result, and which jobs go on.

    Example: scaling-study status --platform slurm-h100
    """
    from scaling_study.overview import print_status, status_of

    found = status_of(config.platform(platform_name), results_folder)
    if as_json:
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode(found)))
    else:
        print_status(found)


@cli.command()
@click.argument("run_ids", metavar="[RUN...]", nargs=-1)
@click.option("--platform", "platform_name", required=True, help="Whose jobs.")
@_results
@click.pass_obj
def cancel(config: Config, run_ids: tuple[str, ...], platform_name: str, results_folder: Path) -> None:
    """Ask Slurm to end the jobs of runs, or of all that go on; the next start submits them again.

    Example: scaling-study cancel --platform slurm-h100
    """
    from scaling_study.submit.slurm.overview import cancel as cancel_jobs

    platform = config.platform(platform_name)
    for one in cancel_jobs(results_folder / "store" / platform.name, run_ids):
        click.echo(f"{one.job_id or one.name}: {one.run_id}")


@cli.command()
@click.option("--platform", "platform_name", required=True, help="Whose nodes.")
@click.option("--nodes", "node_count", type=click.IntRange(1), help="How many  [default: as many as a job may have]")
@_results
@click.pass_obj
def qualify(config: Config, platform_name: str, node_count: int | None, results_folder: Path) -> None:
    """Check a platform's nodes before a study: arithmetic, memory, collectives within and between nodes.

    One short job. Nodes that are slower than the others by far are named, and the platform's jobs avoid them.

    Example: scaling-study qualify --platform slurm-h100 --nodes 64
    """
    from scaling_study.overview import print_health
    from scaling_study.submit.qualify import qualify as check_nodes

    platform = config.platform(platform_name)
    hardware = config.catalogue.hardware[platform.hardware]
    report, path = check_nodes(platform, hardware, node_count, results_folder, lambda line: click.echo(line, err=True))
    print_health(report)
    click.echo(path)


@cli.command("gpu-check")
@click.option(
    "--output", type=click.Path(path_type=Path), default=Path("results/gpu-check"), show_default=True,
    help="Folder of the report and the records.",
)  # fmt: skip
@click.option("--minutes", type=click.FloatRange(min=0.1), default=7.5, show_default=True, help="Time for all of it.")
@click.pass_obj
def gpu_check(config: Config, output: Path, minutes: float) -> None:
    """Measure what this machine's GPUs do in minutes, beside what the performance model predicts.

    Attention against fp32, model sizes, context lengths, attention backends; layouts where there are several GPUs.
    Exit code 1 where a check fails.

    Example: scaling-study gpu-check --output results/gpu-check
    """
    from scaling_study.gpucheck import check_gpus
    from scaling_study.gpureport import print_report

    report = check_gpus(config, output, minutes * 60, lambda line: click.echo(line, err=True))
    print_report(report)
    click.echo(output)
    failed = [f"{check.name}: {check.detail}" for check in report.checks if not check.passed]
    if failed:
        raise FailedRunsError("\n".join(["checks that failed:", *failed]))


@cli.command()
@click.argument("study_name", metavar="STUDY")
@click.option("--platform", "platform_name", required=True, help="The platform that measured.")
@_results
@click.pass_obj
def promote(config: Config, study_name: str, platform_name: str, results_folder: Path) -> None:
    """Copy the records of STUDY into the cache, from which figures can be redrawn anywhere.

    Example: scaling-study promote mini --platform local
    """
    from scaling_study.campaign import promote_records

    for path in promote_records(config, config.study(study_name), platform_name, results_folder):
        click.echo(path)


@cli.command()
@click.argument("study_name", metavar="STUDY")
@click.argument("sweep_name", metavar="SWEEP")
@click.option("--output", type=click.Path(path_type=Path), required=True, help="Record file to write (parquet).")
@click.pass_obj
def predict(config: Config, study_name: str, sweep_name: str, output: Path) -> None:
    """Predict every run of SWEEP by the performance model and write its records.

    Example: scaling-study predict paper data_parallel --output results/paper/predict/data_parallel.parquet
    """
    from scaling_study.prediction import predict_sweep

    predict_sweep(config, study_name, sweep_name, output)


@cli.command()
@click.argument("run_name", metavar="RUN")
@click.option("--study", "study_name", default="paper", show_default=True, help="The study that RUN belongs to.")
@click.option("--output", type=click.Path(path_type=Path), required=True, help="File: .parquet, .json or .json.gz.")
@click.pass_obj
def timeline(config: Config, run_name: str, study_name: str, output: Path) -> None:
    """Write the predicted timeline of RUN: the span table, or a trace that Perfetto and Chrome open.

    Example: scaling-study timeline llama2-7b_h100_n256_dp2048-tp1-pp1_mb2-gb4096-s4096_bf16_fcc4f377cd
    --output results/timeline.json.gz
    """
    from scaling_study.prediction import write_timeline

    write_timeline(config, study_name, run_name, output)


@cli.command()
@click.argument("paths", metavar="[RECORDS...]", type=click.Path(path_type=Path), nargs=-1)
@click.option("--output", type=click.Path(path_type=Path), help="Table to write (CSV), a row a claim and place.")
@click.option("--acknowledge", is_flag=True, help="Write the verdicts of the cache as those that are known.")
@click.option("--json", "as_json", is_flag=True, help="For machines.")
@click.pass_obj
def claims(config: Config, paths: tuple[Path, ...], output: Path | None, acknowledge: bool, as_json: bool) -> None:
    """The verdict on every claim of the sources: measured on a cluster, on this machine, and predicted.

    RECORDS are record files or folders of them; without any, the committed ones. A verdict on those that is not the
    acknowledged one fails `make test`.

    Example: scaling-study claims results/paper results/mini
    """
    from scaling_study.claims import run_claims

    run_claims(config, paths, output, acknowledging=acknowledge, as_json=as_json)


@cli.command()
@click.argument("a", type=click.Path(path_type=Path))
@click.argument("b", type=click.Path(path_type=Path))
@click.option("--figure", "figure_file", type=click.Path(path_type=Path), help="Figure to write, without its suffix.")
@click.option("--json", "as_json", is_flag=True, help="For machines.")
@click.pass_obj
def compare(config: Config, a: Path, b: Path, figure_file: Path | None, as_json: bool) -> None:
    """What moved between two campaigns, A and B: files or folders of records of the same runs.

    A number moved where its ranges have nothing in common: 5th to 95th percentile of iterations over all repeats, of a
    prediction its last digits, beside a measurement the model's interval. Exit code 1: a number moved, a run ended
    differently or a claim changed; 0: none did.

    Example: scaling-study compare results/cached/mini/local ../other/results/cached/mini/local --figure results/moved
    """
    from scaling_study.differences import as_mapping, differences, print_differences

    found = differences(config, a, b)
    if figure_file is not None:
        from scaling_study.present.comparison import draw
        from scaling_study.present.render import render

        render(draw(found.found, found.names), figure_file.parent, figure_file.name)
    if as_json:
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode(as_mapping(found))))
    else:
        print_differences(found)
    if found.any:
        click.get_current_context().exit(EXIT_FAILED_RUNS)


@cli.command()
@click.argument("paths", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--step", "steps", multiple=True, help="Only this profiler step, by its number; may be repeated.")
@click.option("--from-ms", type=click.FloatRange(0), help="Only from here on: ms since the first device event.")
@click.option("--to-ms", type=click.FloatRange(0), help="Only up to here.")
@click.option("--output", type=click.Path(path_type=Path), help="Timeline to write: .parquet, .json or .json.gz.")
@click.option("--json", "as_json", is_flag=True, help="For machines.")
def trace(
    paths: tuple[Path, ...],
    steps: tuple[str, ...],
    from_ms: float | None,
    to_ms: float | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Compute, communication and exposed communication of Kineto traces, one FILE a rank, and a verdict on each.

    Example: scaling-study trace rank0.json.gz rank1.json.gz --step 4
    """
    from scaling_study.traces import Window, look_at, print_traces

    if steps and (from_ms is not None or to_ms is not None):
        raise UserError("--step and --from-ms or --to-ms exclude each other", where="trace", remedy="Give one of them.")
    found = look_at(paths, Window(steps=steps, from_ms=from_ms, to_ms=to_ms), output)
    if as_json:
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode(found)))
    else:
        print_traces(found)


@cli.command()
@click.argument("runs_file", metavar="RUNS.csv", type=click.Path(path_type=Path))
@click.option("--output", type=click.Path(path_type=Path), help="Table to write (parquet): rows and predictions.")
@click.pass_obj
def validate(config: Config, runs_file: Path, output: Path | None) -> None:
    """Predict each row of a table of foreign measured runs; errors per source.

    Example: scaling-study validate config/calibration/runs.csv --output results/validated.parquet
    """
    from scaling_study.forecast import run_validate

    run_validate(runs_file, config.root, output)


@cli.command()
@click.option("--leave-one-source-out", "leave_one_out", is_flag=True, help="Errors per source that was not fitted on.")
@click.option(
    "--runs", "runs_file", type=click.Path(path_type=Path), help="Rows to judge by, instead of those fitted on."
)
@click.option("--assumed-networks", is_flag=True, help="Keep networks that a table assumes where a paper states one.")
@click.option("--write", is_flag=True, help="Write the parameter sets into config/calibration.")
@click.option("--output", type=click.Path(path_type=Path), help="Table to write (parquet): every row judged.")
@click.pass_obj
def calibrate(
    config: Config, leave_one_out: bool, runs_file: Path | None, assumed_networks: bool, write: bool,
    output: Path | None,
) -> None:  # fmt: skip
    """Fit the constants of the performance model; print each with its interval and sources.

    Example: scaling-study calibrate --leave-one-source-out
    """
    from scaling_study.forecast import run_calibrate
    from scaling_study.predict.library import Library

    run_calibrate(Library(config.root, stated_networks=not assumed_networks), runs_file, leave_one_out, write, output)


@cli.command()
@click.argument("study_name", metavar="STUDY")
@click.option("--output", type=click.Path(path_type=Path), help="Table to write (parquet).")
@click.pass_obj
def sensitivity(config: Config, study_name: str, output: Path | None) -> None:
    """What the predicted changes hang on for which the source of STUDY prints a number.

    Each constant of the model is moved through its interval, and until the change is the printed one.

    Example: scaling-study sensitivity paper
    """
    from scaling_study.forecast import run_sensitivity

    run_sensitivity(config, study_name, output)


@cli.command()
@click.argument("study_name", metavar="STUDY")
@click.argument("sweep_name", metavar="SWEEP")
@click.option("--output", type=click.Path(path_type=Path), help="The table, as parquet.")
@click.pass_obj
def fabric(config: Config, study_name: str, sweep_name: str, output: Path | None) -> None:
    """What pacing is predicted to change in SWEEP of STUDY, on several fabrics, by Monte Carlo.

    Example: scaling-study fabric paper coordination
    """
    from scaling_study.forecast import run_fabric

    run_fabric(config, study_name, sweep_name, output)


@cli.command()
@click.option("--model", "model_name", required=True, help="A model of config/models.")
@click.option("--hardware", "hardware_name", required=True, help="A hardware of config/hardware.")
@click.option("--gpus", type=click.IntRange(min=1), required=True, help="GPUs in all.")
@click.option("--global-batch", type=click.IntRange(min=1), required=True, help="Sequences of an iteration.")
@click.option("--sequence-length", type=click.IntRange(min=1), default=4096, show_default=True, help="Tokens.")
@click.option("--top", type=click.IntRange(min=1), default=20, show_default=True, help="Layouts to print.")
@click.option("--json", "as_json", is_flag=True, help="For machines: every layout.")
@click.pass_obj
def plan(
    config: Config, model_name: str, hardware_name: str, gpus: int, global_batch: int, sequence_length: int, top: int,
    as_json: bool,
) -> None:  # fmt: skip
    """Rank layouts of a model by predicted throughput, with memory, energy and cost.

    Example: scaling-study plan --model llama2-7b --hardware h100 --gpus 256 --global-batch 512
    """
    from scaling_study.predict.planning import plan as make_plan

    plans = make_plan(config, model_name, hardware_name, gpus, global_batch, sequence_length)
    if as_json:
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode({"plans": plans})))
    else:
        from scaling_study.forecast import print_plans

        print_plans(plans, top)


@cli.command()
@click.argument("run_name", metavar="RUN")
@click.option("--study", "study_name", default="paper", show_default=True, help="The study that RUN belongs to.")
@click.option("--stage", type=int, default=0, show_default=True, help="Which pipeline stage's rank.")
@click.option("--json", "as_json", is_flag=True, help="For machines.")
@click.pass_obj
def extract(config: Config, run_name: str, study_name: str, stage: int, as_json: bool) -> None:
    """Compare the workload of RUN in closed form with what the training code does under fake tensors.

    Needs torch, but no GPU, at any number of ranks. Exit code 1 where the two differ.

    Example: scaling-study extract llama2-7b_h100_n256_dp2048-tp1-pp1_mb2-gb4096-s4096_bf16_fcc4f377cd
    """
    from scaling_study.extraction import compare, print_comparison

    comparison = compare(config, study_name, run_name, stage)
    if as_json:
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode(comparison)))
    else:
        print_comparison(comparison)
    if not comparison.agrees:
        click.get_current_context().exit(EXIT_FAILED_RUNS)


def _count(_: click.Context, option: click.Parameter, value: str | None) -> float | None:
    """A count such as 70e9, 70B or 1.1T.

    Raises:
        click.BadParameter: it is none.
    """
    if value is None:
        return None
    scale = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}.get(value[-1:].upper(), 1.0)
    try:
        return float(value[:-1] if scale > 1 else value) * scale
    except ValueError:
        raise click.BadParameter(f"{value!r} is no count; write 70e9 or 70B", param=option) from None


@cli.command()
@click.argument("run_name", metavar="[RUN]", required=False)
@click.option("--study", "study_name", default="paper", show_default=True, help="The study that RUN belongs to.")
@click.option("--model", help="In place of RUN: a model of config/models.")
@click.option("--hardware", help="A hardware of config/hardware.")
@click.option("--nodes", type=click.IntRange(1), default=1, show_default=True)
@click.option("--tp", type=click.IntRange(1), default=1, show_default=True, help="Tensor-parallel degree.")
@click.option("--pp", type=click.IntRange(1), default=1, show_default=True, help="Pipeline stages.")
@click.option("--micro-batch", type=click.IntRange(1), default=1, show_default=True, help="Sequences.")
@click.option(
    "--global-batch", type=click.IntRange(1), help="Sequences  [default: one micro-batch a replica and stage]"
)
@click.option("--sequence-length", type=click.IntRange(1), default=4096, show_default=True, help="Tokens.")
@click.option("--precision", type=click.Choice(["bf16", "fp16", "fp32"]), default="bf16", show_default=True)
@click.option(
    "--launch-interval-us",
    type=click.FloatRange(0, min_open=True),
    default=10.0,
    show_default=True,
    help="Between two launches of a kernel.",
)
@click.option("--json", "as_json", is_flag=True, help="For machines.")
@click.pass_obj
def roofline(
    config: Config, /, run_name: str | None, study_name: str, launch_interval_us: float, as_json: bool, **options: Any
) -> None:  # fmt: skip
    """Least times of a layer and of an iteration of RUN: compute, memory, communication, overhead.

    Example: scaling-study roofline --model llama2-70b --hardware h100 --nodes 4 --tp 8 --global-batch 64
    """
    from scaling_study.roofs import bounds_of_run, print_bounds, run_of_options
    from scaling_study.spec import Precision, find_training_run

    given = options["model"] is not None and options["hardware"] is not None
    if (run_name is not None) == given or (run_name and (options["model"] or options["hardware"])):
        raise UserError("a run is needed", where="roofline", remedy="Give RUN, or --model and --hardware.")
    if run_name is not None:
        run = find_training_run(config.study(study_name), run_name, config.catalogue)
    else:
        run = run_of_options({**options, "precision": Precision(options["precision"])}, config.catalogue)
    found = bounds_of_run(run, config.catalogue, launch_interval_us)
    if as_json:
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode(found)))
    else:
        print_bounds(found)


_positive = click.FloatRange(0, min_open=True)


@cli.command("check-claim")
@click.option("--model", help="A model of config/models.")
@click.option("--parameters", callback=_count, help="In its place: how many it has, such as 175B.")
@click.option("--active-parameters", callback=_count, help="Of a mixture of experts: how many a token meets.")
@click.option("--hardware", help="A hardware of config/hardware.")
@click.option("--peak-tflops", type=_positive, help="In its place: the dense peak of a part in this precision.")
@click.option("--memory-gb-per-s", type=_positive, help="Of that part: its memory's bandwidth, 1e9 bytes/s.")
@click.option("--memory-gib", type=_positive, help="Of that part: its memory.")
@click.option("--gpus", type=click.IntRange(1), help="GPUs in all.")
@click.option("--phase", type=click.Choice(["train", "prefill", "decode"]), default="train", show_default=True)
@click.option("--tokens-per-second", type=_positive, help="The claim, over all GPUs; or one of the next four.")
@click.option("--tokens-per-second-per-gpu", type=_positive)
@click.option("--step-time-ms", type=_positive, help="Of an iteration, a prompt, or a decoded token.")
@click.option("--mfu", type=_positive, help="A fraction of the peak: 0.4 is 40%.")
@click.option("--tflops-per-gpu", type=_positive, help="By the convention of MFU.")
@click.option(
    "--precision",
    "--dtype",
    type=click.Choice(["bf16", "fp16", "fp32", "fp8", "int8", "int4"]),
    default="bf16",
    show_default=True,
    help="Of weights and arithmetic.",
)
@click.option("--batch", type=click.IntRange(1), help="Sequences of a step over all GPUs  [default: decode 1]")
@click.option(
    "--context-length",
    "--sequence-length",
    type=click.IntRange(1),
    help="Tokens of a sequence, of a prompt, or before a decoded one  [default: attention left out]",
)
@click.option("--tp", type=click.IntRange(1), help="Tensor-parallel degree  [default: what suits the claim]")
@click.option("--tokens-per-pass", type=_positive, default=1.0, show_default=True, help="With speculative decoding.")
@click.option("--kernels", type=click.IntRange(1), help="Kernels that a pass launches one after another.")
@click.option("--launch-interval-us", type=_positive, help="Between two launches.")
@click.option("--table", "table_file", type=click.Path(path_type=Path), help="Judge the claims of a CSV file instead.")
@click.option("--json", "as_json", is_flag=True, help="For machines.")
@click.pass_obj
def check_claim(config: Config, /, table_file: Path | None, as_json: bool, **stated: Any) -> None:
    """Is a claimed rate possible? Every roof over it, with the arithmetic.

    Whatever is not said is taken as it suits the claim. The exit code is 0 whatever the verdict.

    Example: scaling-study check-claim --model llama2-70b --hardware h100 --gpus 1 --phase decode --precision int4
    --tokens-per-second 190
    """
    import msgspec

    from scaling_study.claimed import Stated, claim_of, judge_table, print_judgement, print_table
    from scaling_study.roofline import judge

    if table_file is not None:
        rows = judge_table(table_file, config.catalogue)
        click.echo(msgspec.json.format(msgspec.json.encode(rows))) if as_json else print_table(rows)
        return
    if stated["gpus"] is None:
        raise UserError("how many GPUs is not said", where="--gpus", remedy="Give it, or --table.")
    given = {name: value for name, value in stated.items() if value is not None}
    claim = claim_of(msgspec.convert(given, Stated, strict=False), config.catalogue)
    judged = judge(claim)
    click.echo(msgspec.json.format(msgspec.json.encode(judged))) if as_json else print_judgement(judged, claim)


@cli.command("diagnose")
@click.argument("names", metavar="RUN...", nargs=-1, required=True)
@click.option(
    "--records",
    "record_files",
    type=click.Path(path_type=Path),
    multiple=True,
    help="Record file, <study>/<platform>/<sweep>.parquet  [default: all of the results and the cache]",
)
@click.option("--json", "as_json", is_flag=True, help="For machines.")
@_results
@click.pass_obj
def diagnose_runs(
    config: Config, names: tuple[str, ...], record_files: tuple[Path, ...], as_json: bool, results_folder: Path
) -> None:  # fmt: skip
    """What limits each RUN (by its id, or Kineto traces of its ranks), the numbers behind it, what would help.

    Example: scaling-study diagnose llama2-7b_h100_n256_dp2048-tp1-pp1_mb2-gb4096-s4096_bf16_fcc4f377cd
    """
    from scaling_study.diagnoses import diagnose_all, print_diagnoses

    found = diagnose_all(config, names, record_files, results_folder)
    if as_json:
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode({"runs": found})))
    else:
        print_diagnoses(found)


def main(arguments: list[str] | None = None) -> None:
    """Run a verb; every error that a user can mend is one message and exit code 2."""
    try:
        code: Any = cli.main(arguments, prog_name="scaling-study", standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except click.ClickException as error:
        error.show()
        _exit(EXIT_USER_ERROR)
    except UserError as error:
        _fail(str(error), EXIT_USER_ERROR)
    except FailedRunsError as error:
        _fail(str(error), EXIT_FAILED_RUNS)
    except (KeyboardInterrupt, click.Abort):
        _fail("interrupted; what is measured is kept, and the next start goes on from there", EXIT_INTERRUPTED)
    except (BrokenPipeError, ReaderGoneError):
        _exit(0)
    except OSError as error:
        _fail(str(explain_os_error(error)), EXIT_USER_ERROR)


def _fail(message: str, code: int) -> None:
    click.echo(f"scaling-study: {message}", err=True)
    _exit(code)


def _exit(code: int) -> None:
    """Leave; standard output may be a pipe that nobody reads any more."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


if __name__ == "__main__":
    main()
