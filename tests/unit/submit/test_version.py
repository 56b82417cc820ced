"""The code's version names the commit, and says when the checkout differs from it."""

import re
import subprocess

import pytest

from scaling_study import __version__
from scaling_study.submit import version

code_version = version.code_version.__wrapped__


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    source = tmp_path / "src" / "package" / "room" / "module.py"
    source.parent.mkdir(parents=True)
    source.write_text("one\n")
    monkeypatch.setattr(version, "__file__", str(source))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    return tmp_path


def _git(folder, *arguments):
    command = ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@example.org", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _commit(folder):
    _git(folder, "init", "-q")
    _git(folder, "add", ".")
    _git(folder, "commit", "-q", "-m", "first")
    return _git(folder, "rev-parse", "HEAD")


def test_a_clean_checkout_is_its_commit(checkout):
    commit = _commit(checkout)
    assert code_version() == f"{__version__}+{commit[:12]}"


def test_a_tag_does_not_change_the_name(checkout):
    commit = _commit(checkout)
    _git(checkout, "tag", "v9")
    assert code_version() == f"{__version__}+{commit[:12]}"


def test_an_edited_file_of_the_package_is_dirty_another_one_is_not(checkout):
    (checkout / "figure.svg").write_text("drawn")
    commit = _commit(checkout)
    (checkout / "figure.svg").write_text("drawn again")
    (checkout / "notes.txt").write_text("untracked")
    assert code_version() == f"{__version__}+{commit[:12]}"
    (checkout / "src" / "package" / "room" / "module.py").write_text("two\n")
    assert code_version() == f"{__version__}+{commit[:12]}-dirty"


def test_outside_a_checkout_the_version_stands_alone(checkout):
    assert code_version() == __version__


def test_without_git_the_version_stands_alone(checkout, monkeypatch):
    _commit(checkout)
    monkeypatch.setenv("PATH", str(checkout))
    assert code_version() == __version__


def test_the_digest_is_of_names_and_contents_of_modules(checkout):
    code_digest = version.code_digest.__wrapped__
    package = checkout / "src" / "package"
    first = code_digest()
    (package / "data.csv").write_text("no module")
    assert code_digest() == first
    (package / "room" / "module.py").rename(package / "room" / "other.py")
    renamed = code_digest()
    (package / "room" / "other.py").write_text("two\n")
    assert len({first, renamed, code_digest()}) == 3
    (package / "room" / "other.py").write_text("one\n")
    (package / "room" / "other.py").rename(package / "room" / "module.py")
    assert code_digest() == first


def test_this_code_has_a_version():
    assert re.fullmatch(r"\d+\.\d+\.\d+(\+[0-9a-f]{12}(-dirty)?)?", version.code_version())
    assert version.code_version() is version.code_version()
