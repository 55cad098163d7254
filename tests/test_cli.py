import os
import re
import subprocess
import sys
from typing import NamedTuple

import pytest

import oni
from oni.cli import COMMANDS, main
from oni.recipes import demo


class Result(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def run(capsys):
    def run(*arguments: object) -> Result:
        code = main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        # typer colours its help where it finds itself in a CI service.
        return Result(code, re.sub(r"\x1b\[[\d;]*m", "", out), err)

    return run


def in_a_process(program: str, *arguments: object) -> Result:
    quiet = {key: value for key, value in os.environ.items() if key not in ("FORCE_COLOR", "TTY_COMPATIBLE")}
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        capture_output=True,
        encoding="utf-8",
        env={
            **quiet,
            "OMP_NUM_THREADS": "1",
            "PYTHONIOENCODING": "utf-8",
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        },
        timeout=180,
    )
    return Result(done.returncode, done.stdout, done.stderr)


def one_line(result: Result) -> str:
    """The complaint, if it is one line on standard error, exit code 2 and nothing else."""
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("oni: ")
    assert result.err.count("\n") == 1
    return result.err


def test_demo_where_nothing_is_a_terminal(tmp_path):
    program = "import sys; from oni.cli import main; sys.exit(main())"
    result = in_a_process(program, "demo", "--out", tmp_path / "new", "--preset", "smoke")
    assert result.code == 0
    assert "\x1b" not in result.out + result.err
    # One line for each epoch instead of bars.
    assert result.err.count("\nepoch ") == 8
    assert demo.NEXT.splitlines() == [line.strip() for line in result.out.splitlines()[-4:]]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["demo", "--out", "file"], "file"),
        (["demo", "--out", "file/below"], "below"),
        (["demo", "--seed", "-1"], "seed must be at least 0"),
        (["demo", "--seed", "one"], "--seed"),
        (["demo", "--sed", "1"], "--sed"),
        (["dmo"], "demo"),
        (["demo", "extra"], "extra"),
    ],
)
def test_what_a_user_can_mend_is_one_line(run, tmp_path, monkeypatch, arguments, complaint):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    assert complaint in one_line(run(*arguments))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission(run, tmp_path):
    tmp_path.chmod(0o500)
    assert str(tmp_path) in one_line(run("demo", "--out", tmp_path))
    assert str(tmp_path / "new") in one_line(run("demo", "--out", tmp_path / "new"))


def test_a_bug_is_not_hidden(run, tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "reproduce", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run("demo", "--out", tmp_path)


def test_ctrl_c(run, tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "reproduce", interrupted)
    assert run("demo", "--out", tmp_path) == (130, "", "oni: interrupted\n")


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_help_teaches(run, arguments):
    result = run(*arguments)
    assert (result.code, result.err) == (0, "")
    assert "as orthogonal as you ask for" in result.out
    for example in COMMANDS.values():
        assert example in result.out


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_each_command(run, command):
    result = run(command.__name__, "--help")
    assert result.code == 0
    assert f"Example: {COMMANDS[command]}" in result.out
    assert command.__doc__.split()[0] in result.out


def test_version(run, monkeypatch):
    monkeypatch.setattr(oni, "__version__", "1.2.3", raising=False)
    assert run("--version") == (0, "oni 1.2.3\n", "")


def test_without_typer():
    program = "import sys; sys.modules['typer'] = None; from oni.cli import main; sys.exit(main(['demo']))"
    assert 'this needs typer, which is not installed: pip install "oni-torch[recipes]"' in one_line(
        in_a_process(program)
    )


@pytest.mark.parametrize("package", ["rich", "matplotlib"])
def test_without_the_rest_of_the_extra(run, tmp_path, monkeypatch, package):
    for module in [name for name in sys.modules if name.startswith("oni.recipes.")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
    assert f"this needs {package}, which is not installed" in one_line(run("demo", "--out", tmp_path))
