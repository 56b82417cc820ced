"""A seal fits its bytes and no others."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from scaling_study.recordfile import UNSEALED, has_seal, is_damaged, seal
from tests.unit.samples import bounded


@bounded
@given(st.binary(max_size=200), st.binary(max_size=200), st.data())
def test_any_changed_byte_is_seen(before, after, data):
    assume(not has_seal(before + after))
    content = seal(before + UNSEALED + after)
    assert has_seal(content)
    assert not is_damaged(content)
    place = data.draw(st.integers(0, len(content) - 1))
    assert is_damaged(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
    assert is_damaged(content[:-1])


def test_what_has_no_seal_is_damaged():
    assert is_damaged(b"PAR1 some table PAR1")
    assert not has_seal(b"PAR1 some table PAR1")


@pytest.mark.parametrize("content", [b"", UNSEALED * 2])
def test_there_is_one_place_for_a_seal(content):
    with pytest.raises(ValueError, match="one is needed"):
        seal(content)
