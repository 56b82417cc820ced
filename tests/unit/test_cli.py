"""The command line: what a user gets wrong is one message and exit code 2, and light verbs start at once."""

import contextlib
import json
import os
import re
import subprocess
import sys
import time

import pytest

from scaling_study import __version__
from scaling_study.cli import cli, main
from scaling_study.processes import identity
from scaling_study.records import read_records, record_of, write_records
from scaling_study.spec import Config, Outcome, Provenance, expand, run_id
from scaling_study.submit import RunStore
from scaling_study.submit.slurm import ledger
from tests.unit.samples import CONFIG, PART, ROOT, TINY, run_result, training_run

RULES = [f"workflow/rules/{name}.smk" for name in ("measure", "predict", "present", "redraw")]
SMALL_DATA = "{title: t, source: synthetic, documents: 60, words: 1500, vocabulary: 500}"


@pytest.fixture
def run(capsys, monkeypatch):
    """Call the command line in the checkout; exit code, standard output, standard error."""
    monkeypatch.chdir(ROOT)

    def run(*arguments):
        with pytest.raises(SystemExit) as caught:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return caught.value.code, captured.out, captured.err

    return run


def one_message(result):
    """The message of a failed call: one line, nothing beside it."""
    code, printed, said = result
    assert code == 2, said
    assert printed == ""
    assert said.startswith("scaling-study: ")
    assert said.count("\n") == 1
    assert "Traceback" not in said
    return said.removeprefix("scaling-study: ").rstrip("\n")


def start(*arguments, cwd=ROOT, **options):
    """The command line in a process of its own."""
    command = [sys.executable, "-m", "scaling_study.cli", *map(str, arguments)]
    environment = {name: value for name, value in os.environ.items() if name != "SCALING_STUDY_OWNER_PID"}
    return subprocess.run(
        command, text=True, stderr=subprocess.PIPE, stdout=options.pop("stdout", subprocess.PIPE),
        cwd=cwd, env=environment, timeout=60, check=False, **options,
    )  # fmt: skip


def outcome(process):
    return process.returncode, process.stdout or "", process.stderr


@pytest.fixture
def config(tmp_path):
    """A folder of a small study that this machine could measure."""
    for name, content in {
        "studies/it": "{title: t, platform: here, base: {model: m, hardware: cpu, micro_batch: 1, local_batch: 1, "
        "protocol: {data: small}}, sweeps: {one: {title: s, product: {nodes: [1]}}}, "
        "figures: {hst-04: {sweep: one}}, tables: {layouts: {sweep: one}}}",
        "models/m": "{layers: 1, hidden: 8, heads: 2, kv_heads: 2, ffn: 8, vocabulary: 500, source: test}",
        "hardware/cpu": "{title: t, gpus_per_node: 1}",
        "hardware/gpu": "{title: t, gpus_per_node: 1}",
        "platforms/here": "{title: t, executor: local, hardware: cpu}",
        "platforms/cluster": "{title: t, executor: slurm, hardware: cpu}",
        "platforms/gpus": "{title: t, executor: local, hardware: gpu}",
        "data/small": SMALL_DATA,
        "data/public": "{title: t, source: planned}",
    }.items():
        path = tmp_path / "config" / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return tmp_path / "config"


def a_record_file(path, config=None):
    """A record file of the small study's run, or of a run of no study."""
    run = expand(Config(config).study("it"), "one", Config(config).catalogue)[0] if config else training_run()
    result = run_result(run, outcome=Outcome.OUT_OF_MEMORY) if config else run_result(run)
    record = record_of(result, TINY, PART, platform="here", provenance=Provenance.MEASURED)
    write_records(path, [record])
    return path


# -- listing --------------------------------------------------------------------------------------------------------


def test_the_list_for_machines_has_every_run_of_the_paper(run):
    code, printed, said = run("runs", "paper", "--json")
    listing = json.loads(printed)
    expected = {
        run_id(r)
        for sweep in CONFIG.study("paper").sweeps
        for r in expand(CONFIG.study("paper"), sweep, CONFIG.catalogue)
    }
    assert (code, said) == (0, "")
    assert {row["run_id"] for row in listing["runs"]} == expected
    assert listing["totals"]["runs"] == len(expected) == len(listing["runs"])
    assert all(row["sweeps"] for row in listing["runs"])


def test_the_list_of_one_sweep(run):
    _, printed, _ = run("runs", "paper", "--sweep", "data_parallel", "--json")
    assert [row["gpus"] for row in json.loads(printed)["runs"]] == [8, 16, 32, 64, 128, 256, 512, 1024, 2048]


def test_the_list_of_one_platform(run):
    _, printed, _ = run("runs", "mini", "--platform", "local", "--json")
    assert {row["hardware"] for row in json.loads(printed)["runs"]} == {"cpu"}


def test_the_list_for_people(run):
    code, printed, _ = run("runs", "mini", "--sweep", "data_parallel")
    assert code == 0
    assert "runs of mini" in printed
    assert "Lower bounds" in printed


def test_listing_is_quick_and_needs_no_heavy_package(tmp_path):
    script = tmp_path / "listed.py"
    script.write_text(
        "import atexit, sys\n"
        "heavy = ('torch', 'polars', 'altair', 'snakemake', 'submitit', 'numpy', 'vl_convert', 'typst')\n"
        "atexit.register(lambda: print(sorted(set(heavy) & set(sys.modules)), file=sys.stderr))\n"
        "from scaling_study.cli import main\n"
        "main(['runs', 'paper', '--json'])\n"
    )
    took_s = []
    for _ in range(3):
        begin_s = time.monotonic()
        ended = subprocess.run([sys.executable, script], cwd=ROOT, capture_output=True, text=True, check=True)
        took_s.append(time.monotonic() - begin_s)
        assert ended.stderr == "[]\n"
        assert json.loads(ended.stdout)["totals"]["runs"] > 900
        if took_s[-1] < 2:
            break
    assert min(took_s) < 2, took_s


def test_help_shows_an_example_for_every_verb(run):
    code, printed, _ = run("--help")
    verbs = [line.split()[0] for line in printed.split("Commands:")[1].splitlines() if line.startswith("  ")]
    assert code == 0
    assert {"runs", "prepare", "measure", "figure", "table", "paper", "promote"} <= set(verbs)
    for verb in verbs:
        _, printed, _ = run(verb, "--help")
        assert f"Example: scaling-study {verb}" in printed


def test_version(run):
    assert run("--version") == (0, f"scaling-study, version {__version__}\n", "")


# -- names that are not there ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("runs", "papper"),
         "config/studies: there is no papper.yaml. Did you mean 'paper'? Known: gpu-check, mini, paper."),
        (("runs", "paper", "--sweep", "data-parallel"),
         "study paper: there is no sweep 'data-parallel'. Sweeps: collectives, data_parallel, "),
        (("runs", "mini", "--platform", "loacl"), "config/platforms: there is no loacl.yaml. Did you mean 'local'?"),
        (("prepare", "synthetik"), "config/data: there is no synthetik.yaml. Did you mean 'synthetic'?"),
        (("--config", "nowhere", "runs", "paper"),
         "nowhere/studies: there is no such folder. Start from the checkout, or give --config."),
        (("promote", "mini", "--platform", "nowhere"),
         "results/mini/nowhere: there are no records. Measure the study mini first."),
    ],
)  # fmt: skip
def test_an_unknown_name_is_one_message(arguments, message, run):
    assert one_message(run(*arguments)).startswith(message)


def test_a_platform_that_cannot_be_promoted_does_not_exist(run):
    """A platform is a name that a file can have."""
    assert "there are no records" in one_message(run("promote", "mini", "--platform", "../mini/nowhere"))


@pytest.mark.parametrize("arguments", [("figure", "mini", "hst-99"), ("table", "mini", "no-table")])
def test_an_unknown_figure_or_table_lists_those_that_there_are(arguments, run, tmp_path):
    path = a_record_file(tmp_path / "data_parallel.parquet")
    message = one_message(run(*arguments, *_record_option(arguments[0], path), "--output", tmp_path / "out"))
    assert message.startswith(
        f"study mini: there is no {arguments[0]} {arguments[2]!r}. {arguments[0].capitalize()}s: "
    )
    assert not (tmp_path / "out").exists()


def _record_option(verb, path):
    """Record files are arguments, or values of an option."""
    from scaling_study.cli import cli

    names = ("record_files", "files")
    arguments = [one.param_type_name for one in cli.commands[verb].params if one.name in names]
    return [path] if arguments == ["argument"] else ["--records", path]


# -- configuration files --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("studies/it", "sweeps:", "sweps:", "config/studies/it.yaml: unknown key 'sweps'. Did you mean 'sweeps'?"),
        ("studies/it", "product:", "prodct:", "config/studies/it.yaml, at sweeps.*: unknown key 'prodct'. Did you"),
        ("studies/it", "title: t,", "title: t, title: u,", "config/studies/it.yaml, line 1: not valid YAML: "),
        ("studies/it", "{title", "{{title", "config/studies/it.yaml, line 2: not valid YAML: "),
        ("studies/it", "[1]", "['1']", "study it, sweep one: nodes must be a whole number above 0, not '1'. "),
        ("studies/it", "model: m", "model: n", "study it, sweep one: unknown model 'n'. Known: m. Others go into"),
        ("models/m", "layers: 1", "layers: one", "config/models/m.yaml, at layers: expected `int`, got `str`. "),
        ("models/m", "layers: 1, ", "", "config/models/m.yaml: object missing required field `layers`. "),
        ("hardware/cpu", "title: t", "titel: t", "config/hardware/cpu.yaml: "),
    ],
)  # fmt: skip
def test_a_mistake_in_a_file_is_one_message(name, old, new, message, config, run):
    path = config / f"{name}.yaml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    said = one_message(run("--config", config, "runs", "it"))
    assert said.replace(f"{config.parent}/", "").startswith(message)


def test_the_configuration_may_be_named_by_the_environment(config, run, monkeypatch):
    monkeypatch.setenv("SCALING_STUDY_CONFIG", str(config))
    code, printed, _ = run("runs", "it", "--json")
    assert (code, json.loads(printed)["totals"]["runs"]) == (0, 1)


# -- usage ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("rnus", "paper"), ("No such command 'rnus'",)),
        (("runs",), ("Missing argument 'STUDY'",)),
        (("runs", "paper", "--swep", "x"), ("No such option", "--swep", "Did you mean", "--sweep")),
        (("measure", "mini", "data_parallel", "--output", "x"), ("Missing option '--platform'",)),
    ],
)
def test_wrong_usage_is_said_with_a_hint_and_exit_code_2(arguments, words, run):
    code, printed, said = run(*arguments)
    assert (code, printed) == (2, "")
    *usage, complaint = said.splitlines()
    assert usage[0].startswith("Usage: scaling-study")
    assert "--help' for help." in usage[1]
    assert complaint.startswith("Error: ")
    assert all(word in complaint for word in words)


# -- records --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such file or folder. Check the path."),
        (b"PAR1 no more", "not a parquet file, or damaged. Delete it;"),
    ],
)
@pytest.mark.parametrize("verb", ["figure", "table"])
def test_missing_and_damaged_records_are_one_message(verb, content, message, config, run, tmp_path):
    path, name = tmp_path / "one.parquet", {"figure": "hst-04", "table": "layouts"}[verb]
    if content is not None:
        path.write_bytes(content)
    arguments = ("--config", config, verb, "it", name, *_record_option(verb, path), "--output", tmp_path / "out")
    assert one_message(run(*arguments)).startswith(f"{path}: {message}")
    assert not (tmp_path / "out").exists()


def test_records_of_another_study_are_one_message(config, run, tmp_path):
    path = a_record_file(tmp_path / "one.parquet")
    arguments = (
        "--config",
        config,
        "table",
        "it",
        "layouts",
        *_record_option("table", path),
        "--output",
        tmp_path / "out",
    )
    assert one_message(run(*arguments)).startswith(
        f"{path}: the records are not those of the sweep: 1 of runs that the sweep does not have"
    )


def test_promote_copies_the_records_of_a_study(config, run, tmp_path):
    path = a_record_file(tmp_path / "results" / "it" / "here" / "one.parquet", config)
    copy = tmp_path / "results" / "cached" / "it" / "here" / "one.parquet"
    code, printed, _ = run("--config", config, "promote", "it", "--platform", "here", "--results", tmp_path / "results")
    assert (code, printed) == (0, f"{copy}\n")
    assert copy.read_bytes() == path.read_bytes()


def test_damaged_records_are_not_promoted(config, run, tmp_path):
    folder = tmp_path / "results" / "it" / "here"
    a_record_file(folder / "one.parquet", config)
    (folder / "two.parquet").write_bytes(b"damaged")
    said = one_message(
        run("--config", config, "promote", "it", "--platform", "here", "--results", tmp_path / "results")
    )
    assert "two.parquet: not a parquet file, or damaged" in said
    assert not (tmp_path / "results" / "cached").exists()


# -- measuring ------------------------------------------------------------------------------------------------------


def _measure(config, results, platform="here", sweep="one", output=None):
    output = output or results / "it" / "one.parquet"
    return start(
        "--config", config, "measure", "it", sweep, "--platform", platform, "--output", output, "--results", results
    )


@pytest.mark.parametrize(
    ("platform", "sweep", "message"),
    [
        ("here", "two", "study it: there is no sweep 'two'. Sweeps: one."),
        (
            "nowhere",
            "one",
            "{config}/platforms: there is no nowhere.yaml. Did you mean 'here'? Known: cluster, gpus, here.",
        ),
        ("cluster", "one", "{config}/platforms/cluster.yaml: a platform has `slurm` settings if and only if its"),
        ("gpus", "one", "platform gpus: no run of one is of gpu. Choose the platform that has the sweep's hardware."),
        (
            "here",
            "one",
            "{results}/data: the data set 'small' is not prepared. Delete {results}/data/small.json and run `make",
        ),
    ],
)
def test_what_cannot_be_measured_is_one_message_before_anything_starts(platform, sweep, message, config, tmp_path):
    results = tmp_path / "results"
    said = one_message(outcome(_measure(config, results, platform, sweep)))
    assert said.startswith(message.format(config=config, results=results))
    assert list(results.rglob("*.parquet")) == []
    assert list(results.rglob("claim.json")) == []


def test_an_output_in_the_place_of_a_file_is_one_message(config, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    said = one_message(outcome(_measure(config, tmp_path / "results", output=tmp_path / "file" / "one.parquet")))
    assert said.startswith(str(tmp_path / "file"))


# -- the jobs of a cluster ------------------------------------------------------------------------------------------

CLUSTER = (
    "{title: t, executor: slurm, hardware: cpu, slurm: {partition: p, nodes: 1, nodes_at_once: 1, most_minutes: 60}}"
)


@pytest.fixture
def submitted(config, tmp_path, monkeypatch):
    """A job that goes on, on a machine where every command of Slurm prints what it is told."""
    (config / "platforms" / "cluster.yaml").write_text(CLUSTER)
    one = training_run()
    store = RunStore(tmp_path / "results" / "store" / "cluster")
    number = store.claim(one, identity())
    entry = ledger.Entry(
        name="a", index=0, job_id="7", submitted_at="2030-01-31T12:00:00", minutes=15, nodes=1
    )  # fmt: skip
    ledger.write(store.files(one).attempt(number).folder, entry)
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def make(**commands):
        for name, body in commands.items():
            (folder / name).write_text(f"#!/bin/bash\n{body}\n")
            (folder / name).chmod(0o755)
        return run_id(one)

    return make


@pytest.mark.parametrize("verb", ["status", "cancel"])
def test_the_jobs_of_an_unknown_platform_are_one_message(verb, config, run):
    said = one_message(run("--config", config, verb, "--platform", "clutser"))
    assert said.endswith("there is no clutser.yaml. Did you mean 'cluster'? Known: cluster, gpus, here.")


@pytest.mark.parametrize("verb", ["status", "cancel"])
def test_the_jobs_of_a_platform_whose_file_is_wrong_are_one_message(verb, config, run):
    said = one_message(run("--config", config, verb, "--platform", "cluster"))
    assert said.startswith(f"{config}/platforms/cluster.yaml: a platform has `slurm` settings if and only if its")


@pytest.mark.parametrize("verb", ["status", "cancel"])
def test_jobs_are_of_a_platform(verb, run):
    code, printed, said = run(verb)
    assert (code, printed) == (2, "")
    assert said.splitlines()[-1] == "Error: Missing option '--platform'."


def test_the_status_of_a_store_for_machines_and_people(config, run, submitted, tmp_path):
    name = submitted(squeue="echo 'a|7|RUNNING|None|n1'")
    arguments = ("--config", config, "status", "--platform", "cluster", "--results", tmp_path / "results")
    code, printed, said = run(*arguments, "--json")
    found = json.loads(printed)
    assert (code, said, found["platform"], found["results"]) == (0, "", "cluster", {})
    assert [(one["run_id"], one["job_id"], one["state"]) for one in found["going_on"]] == [(name, "7", "RUNNING")]
    code, printed, _ = run(*arguments)
    assert code == 0
    assert name in printed


def test_a_status_needs_no_slurm(config, run, submitted, tmp_path):
    submitted()
    arguments = ("--config", config, "status", "--platform", "cluster", "--results", tmp_path / "results", "--json")
    code, printed, said = run(*arguments)
    assert (code, said) == (0, "")
    assert [one["state"] for one in json.loads(printed)["going_on"]] == ["unknown"]


def test_an_empty_store_has_a_status_and_nothing_to_cancel(config, run, tmp_path):
    arguments = ("--platform", "here", "--results", tmp_path / "none")
    assert run("--config", config, "status", *arguments) == (0, "here: results: none yet\nno job goes on\n", "")
    assert run("--config", config, "cancel", *arguments) == (0, "", "")


def test_what_is_cancelled_is_printed(config, run, submitted, tmp_path):
    name = submitted(squeue="exit 1", scancel=f"echo $@ > {tmp_path}/cancelled")
    arguments = ("--platform", "cluster", "--results", tmp_path / "results")
    assert run("--config", config, "cancel", name, *arguments) == (0, f"7: {name}\n", "")
    assert (tmp_path / "cancelled").read_text() == "7\n"


def test_a_run_that_has_no_job_is_one_message(config, run, submitted, tmp_path):
    submitted(scancel=f"echo > {tmp_path}/cancelled")
    said = one_message(
        run("--config", config, "cancel", "../no", "--platform", "cluster", "--results", tmp_path / "results")
    )
    assert said == (
        f"{tmp_path}/results/store/cluster: no job of ../no goes on. `scaling-study status` lists those that do."
    )
    assert not (tmp_path / "cancelled").exists()


@pytest.mark.parametrize("commands", [{}, {"scancel": "echo 'scancel: error: no' >&2; exit 1"}])
def test_a_cancel_that_slurm_does_not_take_is_one_message(commands, config, run, submitted, tmp_path):
    submitted(**commands)
    said = one_message(run("--config", config, "cancel", "--platform", "cluster", "--results", tmp_path / "results"))
    assert said == "7: scancel failed. Try again, or cancel them by hand."


# -- disks ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def mounted(tmp_path):
    """Mount a small memory disk, remount it read-only; what is mounted is unmounted."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def mount(options):
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            pytest.skip(f"no disk can be mounted: {error}")
        if done.returncode:
            pytest.skip(f"no disk can be mounted: {done.stderr.strip()}")
        return folder

    yield mount
    with contextlib.suppress(OSError):
        subprocess.run(["umount", "-l", str(folder)], capture_output=True, check=False)


def _read_only(folder):
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)


def _content(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("size", ["4k", "64k", "80k"])  # no file fits; one, the tokenizer; two, the tokens as well
def test_a_full_disk_stops_a_preparation_with_one_message(size, config, mounted, run):
    folder = mounted(f"size={size}")
    code, printed, said = run("--config", config, "prepare", "small", "--results", folder)
    *progress, last = said.splitlines()
    assert (code, printed) == (2, "")
    assert progress == ["writing 60 documents", "training a vocabulary of 500 tokens", "encoding"]
    assert last.startswith(f"scaling-study: {folder}/data/small.")
    assert last.endswith(": no space left on the device. Free some space, or put the folder on another disk.")
    left = _content(folder)
    assert "data/small.json" not in left  # the manifest comes last: without it nothing is prepared
    assert all(name in ("data/small.tokenizer.json", "data/small.bin") for name in left)
    assert all(content for content in left.values())


def test_a_full_disk_stops_a_measurement_before_it_starts(config, mounted):
    folder = mounted("size=1m")
    said = one_message(outcome(_measure(config, folder)))
    assert "1.0 MiB are free, 64 MiB are needed. Free some space, or put the folder on another disk." in said
    assert _content(folder) == {}


def test_a_full_disk_stops_promotion_and_keeps_what_was_there(config, mounted, run):
    folder = mounted("size=256k")
    path = a_record_file(folder / "it" / "here" / "one.parquet", config)
    old = folder / "cached" / "it" / "here" / "one.parquet"
    old.parent.mkdir(parents=True)
    old.write_bytes(b"what was there")
    with contextlib.suppress(OSError), (folder / "ballast").open("wb", buffering=0) as ballast:
        while True:
            ballast.write(bytes(4096))
    said = one_message(run("--config", config, "promote", "it", "--platform", "here", "--results", folder))
    assert said == f"{old}: no space left on the device. Free some space, or put the folder on another disk."
    (folder / "ballast").unlink()
    assert _content(folder) == {
        "it/here/one.parquet": path.read_bytes(),
        "cached/it/here/one.parquet": b"what was there",
    }


def test_a_read_only_output_stops_every_verb_that_writes(config, mounted, run):
    folder = mounted("size=1m")
    a_record_file(folder / "it" / "here" / "one.parquet", config)
    before = _content(folder)
    _read_only(folder)
    advice = "the file system is read-only. Choose an output on a file system that can be written."
    assert one_message(run("--config", config, "promote", "it", "--platform", "here", "--results", folder)).endswith(
        advice
    )
    assert one_message(outcome(_measure(config, folder))).endswith(advice)
    code, _, said = run("--config", config, "prepare", "small", "--results", folder)
    assert code == 2
    assert said.splitlines()[-1].endswith(advice)
    assert _content(folder) == before


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")  # noqa: PTH110
@pytest.mark.parametrize("arguments", [("runs", "paper", "--json"), ("runs", "paper"), ("--help",)])
def test_an_output_that_takes_nothing_is_one_message(arguments):
    with open("/dev/full", "w") as full:  # noqa: PTH123
        ended = start(*arguments, stdout=full)
    assert "no space left on the device" in one_message((ended.returncode, "", ended.stderr))


@pytest.mark.parametrize("read_bytes", [0, 10])
def test_a_reader_that_leaves_early_is_no_error(read_bytes):
    command = [sys.executable, "-m", "scaling_study.cli", "runs", "paper", "--json"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.read(read_bytes)
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(20) == 0


def test_claims_and_compare(run, tmp_path):
    code, printed, _ = run("claims", "results/cached/paper/predict/data_parallel.parquet", "--json")
    assert code == 0
    found = {(one["id"], one["provenance"]): one["verdict"] for one in json.loads(printed)}
    assert found["dp-power-drop", "predicted"] == "holds"
    assert found["fixed-batch-mfu", "predicted"] == "not testable here"
    records = "results/cached/mini/local"
    code, printed, _ = run("compare", records, records, "--figure", tmp_path / "moved", "--json")
    assert (code, json.loads(printed)["moved"]) == (0, [])
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".png", ".svg"]
    slower = [
        {name: value * 9 if name.startswith("iteration_s") and value else value for name, value in row.items()}
        for row in read_records(ROOT / records / "data_parallel.parquet").to_dicts()
    ]
    write_records(tmp_path / "data_parallel.parquet", slower)
    code, printed, _ = run("compare", records, tmp_path / "data_parallel.parquet")
    assert code == 1
    assert "+800.00%" in printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("claims", "nowhere"), "nowhere: there is no such file or folder"),
        (("claims", "README.md"), "README.md: not a parquet file"),
        (("claims", "results/cached", "--acknowledge"), "only verdicts on the committed records are acknowledged"),
        (("compare", "nowhere", "results/cached"), "nowhere: there is no such file or folder"),
        (("compare", "results/cached/mini", "results/cached/paper"), "they have no run in common"),
    ],
)
def test_what_claims_and_compare_refuse(run, arguments, message):
    assert message in one_message(run(*arguments))


@pytest.mark.parametrize("path", ["README.md", "CONTRIBUTING.md", *RULES])
def test_every_verb_that_documents_and_rules_call_is_there(path):
    called = re.findall(r"(?:\"|bin/)scaling-study ([a-z][a-z-]+)", (ROOT / path).read_text(encoding="utf-8"))
    assert set(called) <= set(cli.commands)
    assert called or path == "CONTRIBUTING.md"
