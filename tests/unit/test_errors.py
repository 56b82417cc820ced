"""Messages that a person can act on, and files that are there complete or not at all."""

import errno
import os
import threading

import pytest

from scaling_study.errors import UserError, explain_os_error, write_atomically


@pytest.mark.parametrize(
    ("where", "remedy", "message"),
    [
        (None, None, "the key is wrong"),
        ("a.yaml", None, "a.yaml: the key is wrong"),
        (None, "Mend it.", "the key is wrong. Mend it."),
        ("a.yaml", "Mend it.", "a.yaml: the key is wrong. Mend it."),
    ],
)
def test_message_says_where_what_and_remedy(where, remedy, message):
    error = UserError("the key is wrong", where=where, remedy=remedy)
    assert str(error) == message
    assert (error.what, error.where, error.remedy) == ("the key is wrong", where, remedy)


@pytest.mark.parametrize(
    ("number", "what", "advice"),
    [
        (errno.ENOSPC, "no space left on the device", "Free some space"),
        (errno.EDQUOT, "the disk quota is used up", "Free some space"),
        (errno.EROFS, "the file system is read-only", "Choose an output"),
        (errno.EACCES, "permission denied", "Check who owns it"),
        (errno.ENOENT, "no such file or folder", "Check the path."),
        (errno.ENOTDIR, "a part of the path is not a folder", "Check the path."),
        (errno.EISDIR, "it is a folder, a file is needed", "Check the path."),
        (errno.EIO, os.strerror(errno.EIO), "Check the path and the disk."),
    ],
)
def test_os_errors_are_explained(number, what, advice):
    explained = explain_os_error(OSError(number, os.strerror(number), "some/file"))
    assert (explained.what, explained.where) == (what, "some/file")
    assert explained.remedy.startswith(advice)
    assert explain_os_error(OSError(number, ""), where="elsewhere").where == "elsewhere"
    assert explain_os_error(OSError(number, "")).where == "file system"


def test_an_os_error_without_number_keeps_its_words():
    assert explain_os_error(OSError("the cable is out")).what == "the cable is out"


def test_writes_content_into_new_folders_with_the_mode_of_the_umask(tmp_path):
    path, before = tmp_path / "a" / "b" / "file", os.umask(0o027)
    try:
        write_atomically(path, b"content")
    finally:
        os.umask(before)
    assert path.read_bytes() == b"content"
    assert path.stat().st_mode & 0o777 == 0o640
    assert [found.name for found in path.parent.iterdir()] == ["file"]


def test_replaces_a_whole_file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"a much longer content")
    write_atomically(path, b"short", durable=False)
    assert path.read_bytes() == b"short"


def test_a_reader_sees_one_version_or_the_other(tmp_path):
    path, versions, seen = tmp_path / "file", [bytes([n]) * 200_000 for n in (1, 2)], set()
    write_atomically(path, versions[0], durable=False)
    stop = threading.Event()

    def read():
        while not stop.is_set():
            seen.add(path.read_bytes())

    reader = threading.Thread(target=read)
    reader.start()
    for turn in range(40):
        write_atomically(path, versions[turn % 2], durable=False)
    stop.set()
    reader.join()
    assert seen <= set(versions)


def _full(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_leaves_the_old_content_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    monkeypatch.setattr(os, "fsync", _full)
    with pytest.raises(UserError, match=r"file: no space left on the device\. Free some space") as caught:
        write_atomically(path, b"new")
    assert caught.value.where == str(path)
    assert {found.name: found.read_bytes() for found in tmp_path.iterdir()} == {"file": b"old"}


def test_an_interrupt_leaves_nothing_behind(tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "file", b"new")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_the_way_is_said_and_nothing_is_left(tmp_path):
    (tmp_path / "file").mkdir()
    with pytest.raises(UserError, match="it is a folder, a file is needed"):
        write_atomically(tmp_path / "file", b"")
    assert [found.name for found in tmp_path.iterdir()] == ["file"]


def test_a_file_in_the_way_of_a_folder_is_said(tmp_path):
    (tmp_path / "a").write_bytes(b"")
    with pytest.raises(UserError, match=r"a file is in the way of a folder|a part of the path is not a folder"):
        write_atomically(tmp_path / "a" / "b", b"")
