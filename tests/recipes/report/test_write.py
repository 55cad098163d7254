import os
import subprocess
import sys
import webbrowser
from pathlib import Path

import pytest

from oni.cli import main
from oni.files import CannotWrite
from oni.recipes.report.write import write_report


def test_a_report_is_whole_or_not_there(write_run, tmp_path, monkeypatch):
    folder = write_run(tmp_path / "run")
    to = tmp_path / "deep" / "er" / "report.html"
    assert write_report([folder], to) == to
    before = to.read_bytes()
    write_run(folder, error=0.2)

    def fail(*paths):
        raise OSError(28, "No space left on device", "something else")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(CannotWrite, match="No space") as error:
        write_report([folder], to)
    assert error.value.filename == str(to)
    assert to.read_bytes() == before
    assert list(to.parent.iterdir()) == [to]
    with pytest.raises(ValueError, match="is a folder"):
        write_report([folder], to.parent)


@pytest.mark.skipif(sys.platform == "win32", reason="needs a limit on the size of files")
def test_a_full_disk_is_exit_code_74(write_run, tmp_path):
    """In a process that may write only small files, which fails in the same place as a full disk."""
    folder = write_run(tmp_path / "run")
    to = tmp_path / "report.html"
    program = """if True:
        import resource, signal, sys
        from oni.cli import main
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        sys.exit(main(sys.argv[1:]))
    """
    done = subprocess.run(
        [sys.executable, "-c", program, "report", str(folder), "--out", str(to)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONDONTWRITEBYTECODE": "1"},
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (74, "")
    assert done.stderr.startswith(f"oni: {to}: ")
    assert done.stderr.endswith("File too large\n")
    assert done.stderr.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="there is no /proc")
def test_a_folder_that_can_not_be_written_is_exit_code_74(write_run, tmp_path, capsys):
    assert main(["report", str(write_run(tmp_path / "run")), "--out", "/proc/report.html"]) == 74
    assert capsys.readouterr().err.startswith("oni: /proc/report.html: ")


def test_a_name_in_an_error_can_not_steer_the_terminal(write_run, tmp_path, capsys):
    folder = write_run(tmp_path / "run\x1b[2J")
    (folder / "config.json").write_text('{"\x1b')
    for source in (folder, tmp_path / "missing\x1b[2J"):
        assert main(["report", str(source), "--out", str(tmp_path / "report.html")]) == 2
        message = capsys.readouterr().err
        assert "\x1b" not in message
        assert source.name.replace("\x1b", r"\x1b") in message


def test_open_shows_the_file_in_the_browser(write_run, tmp_path, monkeypatch, capsys):
    opened = []
    monkeypatch.setattr(webbrowser, "open", lambda address: opened.append(address) or True)
    to = tmp_path / "a report.html"
    arguments = ["report", str(write_run(tmp_path / "run")), "--out", str(to)]
    assert main(arguments) == 0
    assert opened == []
    assert main([*arguments, "--open"]) == 0
    assert opened == [to.as_uri()]
    monkeypatch.setattr(webbrowser, "open", lambda address: False)
    assert main([*arguments, "--open"]) == 2
    assert f"no browser found to open {to}" in capsys.readouterr().err
    assert to.exists()
