import errno
import os
from pathlib import Path

import pytest

from oni.files import CannotWrite, check_writable, make_folder, read_json, replace_file, write_atomically

FULL = Path("/dev/full")
needs_dev_full = pytest.mark.skipif(not FULL.is_char_device(), reason="no /dev/full here")


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("content", ["text ü", b"bytes", memoryview(b"a view")])
def test_what_is_written_is_there_and_nothing_else(tmp_path, content):
    path = tmp_path / "new" / "file"
    assert write_atomically(path, content) == path
    assert path.read_bytes() == (content.encode() if isinstance(content, str) else bytes(content))
    assert names(path.parent) == ["file"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_an_interrupted_write_keeps_the_old_file(tmp_path, error):
    path = tmp_path / "file"
    path.write_text("old")

    def write_half(partial):
        partial.write_text("half")
        raise error

    with pytest.raises(error), replace_file(path) as partial:
        write_half(partial)
    assert path.read_text() == "old"
    assert names(tmp_path) == ["file"]


def test_a_failed_write_names_the_file_not_the_temporary_one(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(CannotWrite) as caught, replace_file(path):
        raise OSError(errno.ENOSPC, "No space left on device", ".file.123.part")
    assert (caught.value.exit_code, caught.value.errno, caught.value.filename) == (74, errno.ENOSPC, str(path))
    assert caught.value.strerror == "can't be written: No space left on device"
    assert path.read_text() == "old"
    assert names(tmp_path) == ["file"]


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    target, link = tmp_path / "elsewhere" / "file", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)
    write_atomically(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"


@needs_dev_full
def test_a_device_is_written_to_and_not_replaced(tmp_path):
    link = tmp_path / "link"
    link.symlink_to(FULL)
    check_writable(link)
    with pytest.raises(CannotWrite, match="No space left on device") as caught:
        write_atomically(link, "text")
    assert caught.value.filename == str(link)
    assert FULL.is_char_device()
    assert names(tmp_path) == ["link"]


def impossible(folder):
    (folder / "file").touch()
    yield folder / "file" / "below", "Not a directory|File exists"
    yield folder, "Is a directory"
    yield Path("/proc/nothing/file"), "No such file or directory|there is no folder /proc/nothing; create it first"
    yield folder / ("x" * 300), "File name too long"


@pytest.mark.parametrize(
    "attempt", [check_writable, lambda path: write_atomically(path, "text")], ids=["check", "write"]
)
def test_what_can_not_be_written(tmp_path, attempt):
    for path, reason in impossible(tmp_path):
        before = names(tmp_path)
        with pytest.raises(CannotWrite, match=f"can't be written: ({reason})") as caught:
            attempt(path)
        assert caught.value.filename == str(path)
        assert names(tmp_path) == before


def test_a_check_changes_nothing(tmp_path):
    path = tmp_path / "file"
    check_writable(path)
    assert names(tmp_path) == []
    path.write_text("old")
    os.utime(path, (1, 1))
    check_writable(path)
    assert (path.read_text(), path.stat().st_mtime) == ("old", 1)


def test_a_check_makes_no_folder(tmp_path):
    with pytest.raises(CannotWrite, match=r"can't be written: there is no folder \S+/typo; create it first"):
        check_writable(tmp_path / "typo" / "file")
    assert names(tmp_path) == []


def test_a_folder_below_a_file(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(CannotWrite) as caught:
        make_folder(tmp_path / "file" / "below")
    assert caught.value.filename == str(tmp_path / "file" / "below")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "Expecting property name"),
        ("NaN", "NaN is not a JSON number"),
        ("[" * 51 + "1" + "]" * 51, "nested more than 50 deep"),
        ('{"a":' * 900 + "1" + "}" * 900, "nested more than 50 deep"),
        ("[" * 100_000 + "]" * 100_000, "nested too deeply"),
        ("9" * 5000, "digits"),
        ("\udcff", "utf-8"),
    ],
)
def test_json_that_can_not_be_used(tmp_path, text, reason):
    path = tmp_path / "x.json"
    path.write_text(text, "utf-8", "surrogateescape")
    with pytest.raises(ValueError, match=rf"x.json: not JSON \(.*{reason}.*\); delete it"):
        read_json(path, remedy="delete it")


def test_json_that_can_be_used(tmp_path):
    path = tmp_path / "x.json"
    for innermost in ('{"a": []}', '{"a": [1]}'):
        path.write_text("[" * 48 + innermost + "]" * 48)
        assert read_json(path, remedy="")
