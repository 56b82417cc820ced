"""The commands of the README's guide for reviewers, as they stand there, in a copy of the checkout."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUIDE = re.search(r"^## For a reviewer$(.*?)^## ", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)[1]
COMMANDS = [line.strip() for line in GUIDE.splitlines() if line.startswith("    ")]


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """The checkout's files under git, with this environment as its `.venv`."""
    folder = tmp_path_factory.mktemp("reviewer") / "checkout"
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, files.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    (folder / ".venv").symlink_to(sys.prefix)
    identity = ["-c", "user.name=reviewer", "-c", "user.email=reviewer@example.org"]
    for command in (["init", "-q"], ["add", "-A"], [*identity, "commit", "-qm", "as it is"]):
        subprocess.run(["git", *command], cwd=folder, check=True)
    return folder


def test_the_guide_s_commands_do_what_it_says(copy):
    assert len(COMMANDS) == 6
    environment = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL")}
    offline = subprocess.run(["unshare", "-n", "true"], capture_output=True, check=False).returncode == 0
    cut_off = ["unshare", "-n"] if offline else []  # once set up, none of them needs a network
    environment |= {"PYTHONPATH": str(copy / "src"), "SCALING_STUDY_OWNER_PID": ""}
    for line in COMMANDS:
        command, _, comment = line.partition("#")
        command = command.replace("make ", "make -o .venv/.base ")  # it is set up
        done = subprocess.run(
            [*cut_off, "bash", "-c", command],
            cwd=copy,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        promised = re.search(r"(?:ends with: |\.\.\. )(.*)", comment)
        if promised:
            assert promised[1].strip() in done.stdout
        if command.startswith("git status"):
            assert done.stdout == ""
