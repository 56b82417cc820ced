"""What a person sees: on a terminal how far something has come and the time left, elsewhere nothing of it."""

import os
import pty
import re
import subprocess
import sys

from scaling_study.console import advancing, tracked

LOOP = """
import time
from scaling_study.console import {name}
{body}
"""
LINES = "for _ in tracked('counting')(range(5), 5): time.sleep(0.25)"
BYTES = "with advancing('reading', 100) as advance:\n    for _ in range(5): time.sleep(0.25); advance(20)"
UNKNOWN = "with advancing('working'): time.sleep(1.2)"


def on_a_terminal(name, body, **environment):
    """All that a script writes to a terminal of its own."""
    ours, theirs = pty.openpty()
    variables = {**os.environ, "TERM": "xterm", "COLUMNS": "100", **environment}
    command = [sys.executable, "-c", LOOP.format(name=name, body=body)]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=variables) as process:
        os.close(theirs)
        written = b""
        try:
            while part := os.read(ours, 65536):
                written += part
        except OSError:  # Linux says so of a terminal that nobody holds open any more
            pass
        os.close(ours)
    assert process.returncode == 0, written
    return written.decode()


def test_a_loop_shows_the_time_left_and_leaves_nothing_behind():
    written = on_a_terminal("tracked", LINES)
    assert re.search(r"counting.*left 0:00:0[1-3]", re.sub(r"\x1b\[[0-9;?]*m", "", written))
    assert written.rindex("\x1b[?25h") > written.rindex("\x1b[?25l")  # the cursor is back
    assert written.rstrip().endswith("\x1b[2K")  # and the line is gone


def test_bytes_advance_by_how_many_there_are():
    written = re.sub(r"\x1b\[[0-9;?]*m", "", on_a_terminal("advancing", BYTES))
    assert re.search(r"reading ━+.*left 0:00:00", written)


def test_without_a_total_the_time_taken_is_shown():
    written = re.sub(r"\x1b\[[0-9;?]*m", "", on_a_terminal("advancing", UNKNOWN))
    assert re.search(r"working.*0:00:01", written)
    assert "left" not in written


def test_no_color_is_respected():
    written = on_a_terminal("tracked", LINES, NO_COLOR="1")
    assert "counting" in written
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", written)


def test_without_a_terminal_nothing_is_shown(capfd):
    assert list(tracked("counting")(range(3), 3)) == [0, 1, 2]
    with advancing("reading", 10) as advance:
        advance(10)
    assert capfd.readouterr() == ("", "")
