"""Every mistake in a configuration file is one sentence: which file, which key or line, what to do."""

import re

import pytest

from scaling_study.errors import UserError
from scaling_study.spec import (
    Config,
    DataSource,
    DocumentFormat,
    Executor,
    ReportedPoint,
    TextSource,
    TrainingRun,
    expand,
    steps_of,
)
from scaling_study.spec.load import read_yaml
from tests.unit.samples import CONFIG, ROOT

STUDY = """
title: a study
platform: here
base: {model: m}
sweeps:
  one:
    title: one sweep
    product: {nodes: [1, 2]}
"""

TEXT = """
title: t
source: text
sources:
  - {name: a, format: wikipedia, weight: 1.5, path: x/y, config: c, revision: r}
  - {name: b, format: stackexchange, weight: 2, files: [b]}
tokens: 9
vocabulary_documents: 3
"""
SYNTHETIC_WITH_SOURCES = TEXT.replace("source: text", "source: synthetic")


def _config(folder, kind, name, content):
    (folder / kind).mkdir(exist_ok=True)
    (folder / kind / f"{name}.yaml").write_bytes(content.encode() if isinstance(content, str) else content)
    return Config(folder)


def _complaint(folder, content, kind="studies"):
    read = {"studies": Config.study, "platforms": Config.platform, "data": Config.dataset}[kind]
    with pytest.raises(UserError) as caught:
        read(_config(folder, kind, "it", content), "it")
    message = str(caught.value)
    assert str(folder / kind / "it.yaml") in message
    assert caught.value.remedy
    assert "\n" not in message
    return message.replace(str(folder), "")


@pytest.mark.parametrize("name", ["paper", "mini"])
def test_the_studies_of_the_project_are_valid(name):
    study = CONFIG.study(name)
    assert study.name == name
    assert study.sweeps


@pytest.mark.parametrize("path", sorted((ROOT / "config" / "data").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_data_sets_of_the_project_are_valid(path):
    dataset = CONFIG.dataset(path.stem)
    assert dataset.name == path.stem
    assert dataset.source in DataSource


def test_the_sources_of_a_text_are_read(tmp_path):
    dataset = _config(tmp_path, "data", "it", TEXT).dataset("it")
    assert dataset.sources == (
        TextSource(name="a", format=DocumentFormat.WIKIPEDIA, weight=1.5, path="x/y", config="c", revision="r"),
        TextSource(name="b", format=DocumentFormat.STACKEXCHANGE, weight=2, files=("b",)),
    )
    assert (dataset.tokens, dataset.vocabulary_documents, dataset.vocabulary) == (9, 3, 32000)


def test_no_run_of_the_paper_study_reads_its_text_twice():
    dataset, study = CONFIG.dataset("wikipedia-stackexchange"), CONFIG.study("paper")
    needed = {
        steps_of(run) * run.global_batch * run.sequence_length + 1
        for sweep in study.sweeps
        for run in expand(study, sweep, CONFIG.catalogue)
        if isinstance(run, TrainingRun) and run.protocol.data == dataset.name
    }
    assert dataset.tokens == max(needed)
    assert all(source.revision for source in dataset.sources)


@pytest.mark.parametrize("path", sorted((ROOT / "config" / "platforms").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_platforms_of_the_project_are_valid(path):
    assert CONFIG.platform(path.stem).executor in Executor


POINTS = "sweep,metric,value,source,nodes,op\none,call_s,0.5,page 1,4,all_reduce\n"


def _with_points(tmp_path, content):
    config = _config(tmp_path, "studies", "it", STUDY + "reported_tables: [numbers]\n")
    (tmp_path / "reported").mkdir()
    (tmp_path / "reported" / "numbers.csv").write_text(content)
    return config


def test_reported_numbers_come_from_a_table(tmp_path):
    (point,) = _with_points(tmp_path, POINTS).study("it").reported
    assert point == ReportedPoint(
        sweep="one", metric="call_s", value=0.5, source="page 1", where={"nodes": 4, "op": "all_reduce"}
    )


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (POINTS.replace("0.5", "half"), r"numbers.csv, line 2, at value: expected `float \| null`, got `str`"),
        (POINTS.replace("metric", "metrics"), "numbers.csv, line 2, at metric: expected `str`, got `null`"),
        (None, "numbers.csv: no such file or folder"),
    ],
)
def test_a_bad_table_of_reported_numbers_is_named(tmp_path, content, said):
    config = _with_points(tmp_path, content or "")
    if content is None:
        (tmp_path / "reported" / "numbers.csv").unlink()
    with pytest.raises(UserError, match=said):
        config.study("it")


def test_a_name_is_that_of_the_file(tmp_path):
    assert _config(tmp_path, "studies", "it", STUDY).study("it").name == "it"


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (STUDY.replace("product", "prodcut"), "at sweeps.*: unknown key 'prodcut'. Did you mean 'product'?"),
        (STUDY.replace("platform", "plaform"), "unknown key 'plaform'. Did you mean 'platform'?"),
        (STUDY + "zzz: 1\n", "unknown key 'zzz'. Remove it."),
        (STUDY.replace("a study", "[a, study]"), "at title: expected `str`, got `array`"),
        (STUDY.replace("{nodes: [1, 2]}", "{nodes: 2}"), "at sweeps.*.product.*: expected `array`, got `int`"),
        (STUDY.replace("platform: here\n", ""), "missing required field `platform`"),
        (STUDY + "figures: {f: {sweep: two}}\n", "'f' draws the sweep 'two', which the study does not have"),
        (STUDY + "    kind: trainign\n", "at sweeps.*.kind: expected `str` matching regex"),
        (STUDY + "    status: done\n", "at sweeps.*.status: expected `str` matching regex"),
        (STUDY + "title: again\n", "line 9: not valid YAML: the key 'title' is given twice"),
        (STUDY + "    title: again\n", "line 9: not valid YAML: the key 'title' is given twice"),
        (STUDY + "    zip: {a: [1}\n", "line 9: not valid YAML: "),
        (STUDY + "\ttitle: tab\n", "line 9: not valid YAML: "),
        (STUDY + "[a, b]: c\n", "line 9: not valid YAML: found unhashable key"),
        (STUDY + "1: c\n", "expected `str`"),
        ("- a\n- b\n", "the file must hold a mapping of keys to values"),
        ("just text\n", "the file must hold a mapping of keys to values"),
        ("", "the file must hold a mapping of keys to values"),
        (b"title: \xff\xfe\n", "not valid YAML: "),
        ("title: a\0b\n", "not valid YAML: "),
        ("title: !!python/object/apply:os.getcwd []\n", "line 1: not valid YAML: could not determine a constructor"),
    ],
)
def test_a_mistake_in_a_study_is_named(content, what, tmp_path):
    assert what in _complaint(tmp_path, content)


def test_keys_may_be_merged_from_an_anchor(tmp_path):
    path = tmp_path / "it.yaml"
    path.write_text("a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\n")
    assert read_yaml(path) == {"a": {"x": 1, "y": 2}, "b": {"x": 1, "y": 3}}


@pytest.mark.parametrize(
    ("kind", "content", "what"),
    [
        ("platforms", "{title: t, executor: remote, hardware: cpu}", "at executor: invalid enum value 'remote'"),
        ("platforms", "{title: t, executor: local, hardware: cpu, run_limit_s: 0}", "at run_limit_s: expected `float`"),
        ("platforms", "{title: t, executor: local, hardware: cpu, runlimit_s: 1}", "Did you mean 'run_limit_s'?"),
        ("platforms", "{title: t, executor: local, hardware: q100}", "unknown hardware 'q100'. Known: "),
        ("data", "{title: t, source: found}", "at source: invalid enum value 'found'"),
        ("data", "{title: t, source: synthetic, vocabulary: 100}", "at vocabulary: expected `int`"),
        ("data", "{title: t, source: synthetic, vocabulary: 70000}", "at vocabulary: expected `int`"),
        ("data", "{title: t, source: synthetic, documents: many}", "at documents: expected `int`, got `str`"),
        ("data", "{title: t, source: synthetic, documents: '5'}", "at documents: expected `int`, got `str`"),
        ("data", "{title: t, source: synthetic, seed: -1}", "at seed: expected `int` >= 0"),
        ("data", "{title: t, source: synthetic, tokens: 9}", "a data set of source 'synthetic' has no `tokens`"),
        ("data", SYNTHETIC_WITH_SOURCES, "a data set of source 'synthetic' has no `sources`"),
        ("data", "{title: t, source: text}", "a data set of source 'text' needs `sources`"),
        ("data", TEXT.replace("tokens: 9", "seed: 9"), "a data set of source 'text' needs `tokens`"),
        ("data", TEXT.replace("vocabulary_documents: 3", "seed: 3"), "'text' needs `vocabulary_documents`"),
        ("data", TEXT + "words: 5\n", "a data set of source 'text' has no `words`"),
        ("data", TEXT.replace("tokens: 9", "tokens: 0"), "at tokens: expected `int` >= 1"),
        ("data", TEXT.replace("weight: 2", "weight: 0"), "at sources[1].weight: expected `float` > 0.0"),
        ("data", TEXT.replace("weight: 2", "weight: .inf"), "at sources[1].weight: expected `float` <= 1000000.0"),
        ("data", TEXT.replace("weight: 2", "wieght: 2"), "at sources[1]: unknown key 'wieght'. Did you mean 'weight'?"),
        ("data", TEXT.replace("stackexchange", "stackoverflow"), "at sources[1].format: invalid enum value 'stackov"),
        ("data", TEXT.replace("name: b", "name: a"), "two sources are called 'a'"),
        ("data", TEXT.replace("name: b", "name: B/"), "at sources[1].name: expected `str` matching regex"),
        ("data", TEXT.replace(", path: x/y", ""), "at sources[0]: the source 'a' needs either `path` (on the hub) or"),
        (
            "data",
            TEXT.replace("files: [b]", "files: [b], path: x/y"),
            "the source 'b' needs either `path` (on the hub)",
        ),
        ("data", TEXT.replace("files: [b]", "files: [b], config: c"), "`config`, `split` and `revision` belong to `pa"),
        ("data", TEXT.replace("files: [b]", "files: b"), "at sources[1].files: expected `array`, got `str`"),
    ],
)
def test_a_mistake_in_a_platform_or_a_data_set_is_named(kind, content, what, tmp_path):
    assert what in _complaint(tmp_path, content, kind)


@pytest.mark.parametrize(
    ("read", "name", "message"),
    [
        (
            Config.study,
            "papr",
            r"config/studies: there is no papr\.yaml\. Did you mean 'paper'\? Known: .*mini, paper\.",
        ),
        (
            Config.platform,
            "locl",
            r"config/platforms: there is no locl\.yaml\. Did you mean 'local'\? Known: .*local.*\.",
        ),
        (
            Config.dataset,
            "x",
            r"config/data: there is no x\.yaml\. Known: random, synthetic, wikipedia-stackexchange\.",
        ),
        (Config.study, "../studies/paper", r"there is no paper\.yaml\. .*Known: .*mini, paper\."),
    ],
)
def test_an_unknown_name_lists_what_there_is(read, name, message):
    with pytest.raises(UserError) as caught:
        read(CONFIG, name)
    assert re.search(message, str(caught.value))


def test_a_missing_folder_has_nothing(tmp_path):
    with pytest.raises(UserError, match=r"studies: there is no such folder. Start from the checkout"):
        Config(tmp_path / "nowhere").study("paper")


def test_a_missing_file_and_a_folder_in_its_place_are_said(tmp_path):
    with pytest.raises(UserError, match=r"gone\.yaml: no such file or folder"):
        read_yaml(tmp_path / "gone.yaml")
    (tmp_path / "it.yaml").mkdir()
    with pytest.raises(UserError, match=r"it\.yaml: it is a folder, a file is needed"):
        read_yaml(tmp_path / "it.yaml")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("off", "off"),
        ("yes", "yes"),
        ("true", True),
        ("False", False),
        ("3e-4", 3e-4),
        ("1E3", 1000.0),
        ("-.5", -0.5),
        ("2.", 2.0),
        ("12", 12),
        ("0x10", 16),
        ("1f1b", "1f1b"),
        ("1.2.3", "1.2.3"),
        ("~", None),
        ("2024", 2024),
    ],
)
def test_scalars_are_read_as_yaml_1_2_reads_them(tmp_path, text, value):
    path = tmp_path / "file.yaml"
    path.write_text(f"key: {text}\n")
    read = read_yaml(path)["key"]
    assert read == value
    assert type(read) is type(value)


def test_a_key_in_the_wrong_place_is_not_offered_as_its_own_correction(tmp_path):
    message = _complaint(tmp_path, STUDY + "iterations: 3\n")
    assert "unknown key 'iterations'" in message
    assert "belongs elsewhere in the file" in message
