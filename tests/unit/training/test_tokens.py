"""No two replicas see the same sequence, and a token file is what its manifest says."""

import hashlib

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling_study.errors import UserError
from scaling_study.spec import Dataset, DataSource, TokenManifest
from scaling_study.training.tokens import TokenFile, sequence_indices
from tests.unit.samples import bounded, training_run


def _run(dp=1, micro_batch=1, microbatches=1, length=4):
    batch = dp * micro_batch * microbatches
    return training_run(dp=dp, nodes=1, micro_batch=micro_batch, global_batch=batch, sequence_length=length)


small = st.integers(1, 5)


@bounded
@given(small, small, small, st.integers(0, 40), st.integers(0, 30))
def test_replicas_never_overlap_within_an_iteration(dp, micro_batch, microbatches, spare, iteration):
    run = _run(dp, micro_batch, microbatches)
    available = run.global_batch + spare
    read = [index for replica in range(dp) for index in sequence_indices(run, iteration, replica, available)]
    assert len(read) == len(set(read)) == run.global_batch
    assert 0 <= min(read) <= max(read) < available


@bounded
@given(small, small, small, st.integers(0, 60))
def test_no_sequence_comes_twice_in_an_epoch(dp, micro_batch, microbatches, spare):
    run = _run(dp, micro_batch, microbatches)
    available = run.global_batch + spare
    epoch = available // run.global_batch
    read = [
        index
        for iteration in range(epoch)
        for replica in range(dp)
        for index in sequence_indices(run, iteration, replica, available)
    ]
    assert sorted(read) == list(range(epoch * run.global_batch))
    again = [sequence_indices(run, epoch, replica, available) for replica in range(dp)]
    assert again == [sequence_indices(run, 0, replica, available) for replica in range(dp)]


@bounded
@given(st.sampled_from([1, 2, 4]), small, st.integers(0, 9))
def test_an_iteration_reads_the_same_sequences_in_every_layout(dp, micro_batch, iteration):
    run, whole = _run(dp, micro_batch, 4 // dp), _run(1, micro_batch, 4)
    split = [index for replica in range(dp) for index in sequence_indices(run, iteration, replica, 50)]
    assert split == sequence_indices(whole, iteration, 0, 50)


def _write(folder, tokens, name="words", **fields):
    content = np.asarray(tokens, dtype=np.uint16).tobytes()
    manifest = TokenManifest(
        **{
            "dataset": Dataset(name=name, title="test", source=DataSource.SYNTHETIC, vocabulary=60000),
            "tokens": len(tokens),
            "sha256": hashlib.sha256(content).hexdigest(),
            **fields,
        }
    )
    (folder / f"{name}.bin").write_bytes(content)
    (folder / f"{name}.json").write_bytes(msgspec.json.encode(manifest))
    return folder


def test_targets_are_the_tokens_that_follow(tmp_path):
    data = TokenFile(_write(tmp_path, list(range(100, 113))), "words")
    assert data.manifest.sequences(4) == 3
    tokens, target = data.batch(_run(dp=1, micro_batch=2), 0, 0)
    assert tokens.tolist() == [[100, 101, 102, 103], [104, 105, 106, 107]]
    assert target.tolist() == [[101, 102, 103, 104], [105, 106, 107, 108]]
    assert tokens.dtype == target.dtype
    assert str(tokens.dtype) == "torch.int64"
    assert tokens.is_contiguous()
    assert target.is_contiguous()


def test_large_tokens_are_not_negative(tmp_path):
    tokens, _ = TokenFile(_write(tmp_path, [65535, 40000, 32768, 1, 2]), "words").batch(_run(), 0, 0)
    assert tokens.tolist() == [[65535, 40000, 32768, 1]]


@pytest.mark.parametrize(("count", "sequences"), [(1, 0), (4, 0), (5, 1), (8, 1), (9, 2), (13, 3)])
def test_a_sequence_needs_the_token_after_it(count, sequences, tmp_path):
    assert TokenFile(_write(tmp_path, range(count)), "words").manifest.sequences(4) == sequences


def test_a_file_smaller_than_one_iteration_is_refused(tmp_path):
    data = TokenFile(_write(tmp_path, range(13)), "words")
    data.batch(_run(dp=3), 0, 2)
    with pytest.raises(UserError) as caught:
        data.batch(_run(dp=4), 0, 0)
    assert str(caught.value) == (
        "data set words: it holds 3 sequences of 4 tokens, one iteration needs 4. "
        "Use a larger data set or a smaller global batch."
    )


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (lambda c: c[:-2], "it holds 12 tokens, its manifest says 13"),
        (lambda c: c + b"\0\0", "it holds 14 tokens, its manifest says 13"),
        (lambda c: c[:-1], "the token file is damaged"),
        (lambda c: b"", "the token file is damaged"),
    ],
)
def test_a_file_of_another_size_is_refused(damage, what, tmp_path):
    path = _write(tmp_path, range(13)) / "words.bin"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(UserError, match=what) as caught:
        TokenFile(tmp_path, "words")
    assert caught.value.where == str(path)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"dataset": "words"}', b"\xff\xfe"])
def test_a_damaged_manifest_is_refused(content, tmp_path):
    path = _write(tmp_path, range(13)) / "words.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match="the token file is damaged"):
        TokenFile(tmp_path, "words")


@pytest.mark.parametrize("missing", ["words.bin", "words.json"])
def test_a_missing_file_is_named(missing, tmp_path):
    (_write(tmp_path, range(13)) / missing).unlink()
    with pytest.raises(UserError, match="no such file or folder") as caught:
        TokenFile(tmp_path, "words")
    assert caught.value.where == str(tmp_path / missing)
