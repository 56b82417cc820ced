"""Parameter counts and dimensions of Llama-2 as published."""

import pytest

from scaling_study.errors import UserError
from scaling_study.spec import Config, Model
from tests.unit.samples import CONFIG, TINY, TINY_PARAMETERS

MODELS = CONFIG.catalogue.models


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("llama2-7b", 6_738_415_616),
        ("llama2-13b", 13_015_864_320),
        ("llama2-70b", 68_976_648_192),
    ],
)
def test_published_totals(name, parameters):
    assert MODELS[name].parameters == parameters


@pytest.mark.parametrize(
    ("name", "dimensions"),
    [
        ("llama2-1b", (16, 2048, 16, 16, 5504)),
        ("llama2-7b", (32, 4096, 32, 32, 11008)),
        ("llama2-13b", (40, 5120, 40, 40, 13824)),
        ("llama2-70b", (80, 8192, 64, 8, 28672)),
    ],
)
def test_published_dimensions(name, dimensions):
    model = MODELS[name]
    assert (model.layers, model.hidden, model.heads, model.kv_heads, model.ffn) == dimensions
    assert model.vocabulary == 32000
    assert model.head_dim == 128


def test_our_1b_is_about_one_billion():
    assert (
        MODELS["llama2-1b"].parameters
        == 16 * (4 * 2048**2 + 3 * 2048 * 5504 + 2 * 2048) + 2 * 32000 * 2048 + 2048
        == 940_640_256
    )


def test_parameters_by_hand():
    assert TINY.parameters == TINY_PARAMETERS
    assert TINY.layer_parameters == 592
    assert TINY.embedding_parameters == 256
    assert TINY.head_dim == 4


def test_every_model_names_its_source():
    assert all(model.source for model in MODELS.values())


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"heads": 3}, r"hidden \(8\) must be divisible by heads \(3\)"),
        ({"heads": 8, "kv_heads": 8}, r"the head dimension \(1\) must be even for the rotary embedding"),
        ({"heads": 4, "kv_heads": 3}, r"heads \(4\) must be divisible by kv_heads \(3\)"),
    ],
)
def test_impossible_dimensions_are_refused(change, complaint):
    fields = {name: getattr(TINY, name) for name in TINY.__struct_fields__}
    with pytest.raises(ValueError, match=complaint):
        Model(**{**fields, **change})


def test_impossible_dimensions_in_a_file_name_the_file(tmp_path):
    (tmp_path / "models").mkdir()
    path = tmp_path / "models" / "odd.yaml"
    path.write_text("{layers: 1, hidden: 8, heads: 3, kv_heads: 1, ffn: 8, vocabulary: 8, source: test}")
    with pytest.raises(UserError, match=r"odd\.yaml.*hidden \(8\) must be divisible by heads \(3\)"):
        _ = Config(tmp_path).catalogue
