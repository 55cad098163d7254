import ast
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

import oni
from oni import cli
from oni.cli import COMMANDS, main
from oni.errors import make_install_command
from oni.recipes import demo
from oni.recipes.experiments import listing

needs_dev_full = pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="no /dev/full here")


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


def environment(**changes: str) -> dict[str, str]:
    quiet = {key: value for key, value in os.environ.items() if key not in ("FORCE_COLOR", "TTY_COMPATIBLE")}
    path = os.pathsep.join(filter(None, sys.path))
    return {**quiet, "PYTHONIOENCODING": "utf-8", "PYTHONPATH": path, **changes}


def in_a_process(program: str, *arguments: object, **changes: str) -> Result:
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        capture_output=True,
        encoding="utf-8",
        env=environment(**changes),
        timeout=300,
    )
    return Result(done.returncode, done.stdout, done.stderr)


ONI = "import sys; from oni.__main__ import main; sys.exit(main())"


def one_line(result: Result, code: int = 2) -> str:
    """The complaint, if it is one line on standard error, the exit code and nothing else."""
    assert (result.code, result.out) == (code, "")
    assert result.err.startswith("oni: ")
    assert result.err.count("\n") == 1
    return result.err


def test_a_folder_that_can_t_be_made(run, tmp_path):
    (tmp_path / "file").touch()
    # The demo shows one weight before it writes anything.
    code, _, err = run("demo", "--out", tmp_path / "file" / "below")
    assert (code, err.count("\n")) == (74, 1)
    assert "below" in err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["demo", "--out", "file"], "file"),
        (["demo", "--seed", "-1"], "seed must be at least 0"),
        (["demo", "--seed", "one"], "--seed"),
        (["demo", "--sed", "1"], "--sed"),
        (["dmo"], "unknown command 'dmo'; did you mean 'demo'? Choose from demo, inspect"),
        (["nosuch"], "unknown command 'nosuch'; choose from demo, inspect, "),
        (["nosuch\x1b[2J"], r"unknown command 'nosuch\x1b[2J'; choose from"),
        (["demo", "--sed\x1b[2J", "1"], r"--sed\x1b[2J"),
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
    for path in (tmp_path, tmp_path / "new"):
        assert f"oni: {path}" in one_line(run("demo", "--out", path), 74)


def test_a_bug_is_not_hidden(run, tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "reproduce", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run("demo", "--out", tmp_path)


def test_ctrl_c(run, tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "reproduce", interrupted)
    code, _, err = run("demo", "--out", tmp_path)
    assert (code, err) == (130, "oni: interrupted\n")


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_help_teaches(run, arguments):
    result = run(*arguments)
    assert (result.code, result.err) == (0, "")
    assert "as orthogonal as you ask for" in result.out
    for example in COMMANDS.values():
        assert example in result.out


@pytest.mark.parametrize("flag", ["-h", "--help"])
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.__name__)
def test_help_of_each_command(run, command, flag):
    result = run(command.__name__, flag)
    assert result.code == 0
    assert f"Example: {COMMANDS[command]}" in result.out
    assert command.__doc__.split()[0] in result.out
    assert "bool" not in result.out  # a flag takes no value


def test_the_help_is_about_commands(run):
    assert run("-h") == run("--help") == run()
    assert "completion" not in run("-h").out.partition("Examples:")[0]
    assert "oni --install-completion" in run("-h").out
    assert "bool" not in run("-h").out


@pytest.mark.parametrize("flag", ["-V", "--version"])
def test_version(run, flag):
    assert run(flag) == (0, f"oni {oni.__version__}\n", "")


def test_as_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "oni", "-V"], capture_output=True, text=True, env=environment(), timeout=300
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, f"oni {oni.__version__}\n", "")


@pytest.mark.parametrize(("words", "completed"), [("oni in", "inspect"), ("oni inspect --js", "--json")])
def test_completion(words, completed):
    result = in_a_process(ONI, _ONI_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=str(len(words.split()) - 1))
    assert (result.code, result.out.split(), result.err) == (0, [completed], "")


@pytest.fixture
def checkpoint(tmp_path):
    torch.save(oni.nn.Linear(8, 4).state_dict(), tmp_path / "x.pt")
    return tmp_path / "x.pt"


def commands_that_write(checkpoint):
    """Each with what it takes as the last argument: a path of some suffix."""
    yield ["bench", "--quick", "--cases", "36*/gaussian", "--json"], ".json"
    yield ["inspect", checkpoint, "--json"], ".json"
    yield ["inspect", checkpoint, "--plot"], ".png"
    yield ["inspect", checkpoint, "--plot"], ".svg"
    yield ["bake", checkpoint, "--out"], ".pt"
    yield ["bake", checkpoint, "--out"], ".safetensors"


def test_a_file_that_can_not_be_written(run, checkpoint):
    folder = checkpoint.parent
    for arguments, suffix in commands_that_write(checkpoint):
        for path in (checkpoint / f"below{suffix}", Path(f"/proc/nothing/file{suffix}")):
            assert f"oni: {path}: can't be written: " in one_line(run(*arguments, path), 74)
    assert list(folder.iterdir()) == [checkpoint]


def test_a_folder_that_is_mistyped_is_not_made(run, checkpoint):
    folder = checkpoint.parent
    for arguments, suffix in commands_that_write(checkpoint):
        assert f"there is no folder {folder / 'typo'}; create it first" in one_line(
            run(*arguments, folder / "typo" / f"file{suffix}"), 74
        )
    assert list(folder.iterdir()) == [checkpoint]


@needs_dev_full
def test_a_disk_that_is_full(run, checkpoint):
    for arguments, suffix in commands_that_write(checkpoint):
        path = checkpoint.with_name(f"full{suffix}")
        path.symlink_to("/dev/full")
        result = run(*arguments, path)
        assert result.code == 74
        assert result.err.splitlines()[-1] == f"oni: {path}: can't be written: No space left on device"
        assert sorted(file.name for file in path.parent.iterdir()) == [path.name, checkpoint.name]
        path.unlink()


@needs_dev_full
@pytest.mark.parametrize("arguments", [["-V"], ["list"], ["-h"]], ids=" ".join)
def test_output_that_can_not_be_written(arguments):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", ONI, *arguments], stdout=full, stderr=-1, text=True, env=environment(), timeout=300
        )
    assert (done.returncode, done.stderr) == (74, "oni: standard output: No space left on device\n")


def test_output_that_nobody_reads():
    process = subprocess.Popen(
        [sys.executable, "-c", f"import time; time.sleep(0.2); {ONI}", "-V"], stdout=-1, stderr=-1, env=environment()
    )
    process.stdout.close()
    assert (process.stderr.read(), process.wait(300)) == (b"", 1)
    process.stderr.close()


TELL_THE_START = """
import sys
from oni.__main__ import main

class Begun:
    def find_spec(self, name, path=None, target=None):
        if name == "oni.cli":
            print("begun", flush=True)

sys.meta_path.insert(0, Begun())
sys.exit(main())
"""


@pytest.mark.parametrize("delay", [0.0, 0.1, 0.3, 0.6, 1.0, 1.5, 2.0])
def test_ctrl_c_while_libraries_are_loaded(tmp_path, delay):
    arguments = ["bench", "--quick", "--plain"]
    with subprocess.Popen(
        [sys.executable, "-c", TELL_THE_START, *arguments], stdout=-1, stderr=-1, text=True, env=environment()
    ) as process:
        assert process.stdout.readline() == "begun\n"
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=300)
    assert process.returncode == 130
    assert err.splitlines()[-1] == "oni: interrupted"
    assert "Traceback" not in err


@pytest.mark.parametrize("arguments", [["--help"], ["-V"], ["nosuch"], ["list"]], ids=" ".join)
def test_quick_commands_load_no_large_library(tmp_path, arguments):
    program = (
        "import sys; from oni.__main__ import main; main(); "
        "print(*{'torch', 'matplotlib', 'plotly', 'lightning_fabric'} & sys.modules.keys())"
    )
    result = in_a_process(program, *arguments)
    assert result.out.splitlines()[-1] == ""


def test_using_the_library_does_not_load_the_compiler():
    """That takes as long as torch itself."""
    program = (
        "import sys, torch, oni; model = oni.convert(torch.nn.Linear(4, 3)); model(torch.ones(2, 4)).sum().backward();"
        "print(*{'torch._dynamo', 'torch._inductor', 'sympy'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout == "\n"


def test_the_list_is_what_the_experiments_say():
    expected = listing.format_catalogue()
    written = Path(listing.__file__).with_name("catalogue.py").read_text("utf-8")
    assert written == expected, "experiments have changed: run python -m oni.recipes.experiments.listing"


def test_without_typer():
    program = "import sys; sys.modules['typer'] = None; from oni.cli import main; sys.exit(main(['demo']))"
    assert f"this needs typer, which is not installed: {make_install_command('recipes')}" in one_line(
        in_a_process(program)
    )


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, 'pip install "oni-torch[recipes]"'),
        ("not JSON", 'pip install "oni-torch[recipes]"'),
        ("[1]", 'pip install "oni-torch[recipes]"'),
        ({"url": "file:///home/a%20b/oni", "dir_info": {}}, 'pip install "/home/a b/oni[recipes]"'),
        ({"url": "file:///oni", "dir_info": {"editable": True}}, 'pip install -e "/oni[recipes]"'),
        (
            {
                "url": "https://example.org/oni.git",
                "vcs_info": {"vcs": "git", "commit_id": "0", "requested_revision": "v1"},
                "subdirectory": "python",
            },
            'pip install "oni-torch[recipes] @ git+https://example.org/oni.git@v1#subdirectory=python"',
        ),
        (
            {"url": "https://example.org/oni.git", "vcs_info": {"vcs": "git", "commit_id": "0"}},
            'pip install "oni-torch[recipes] @ git+https://example.org/oni.git"',
        ),
        (
            {"url": "https://example.org/oni.whl", "archive_info": {}},
            'pip install "oni-torch[recipes] @ https://example.org/oni.whl"',
        ),
    ],
)
def test_what_to_install_is_where_the_package_came_from(monkeypatch, tmp_path, origin, command):
    folder = tmp_path / "oni_torch-0.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Name: oni-torch\nVersion: 0.0\n")
    if origin is not None:
        (folder / "direct_url.json").write_text(origin if isinstance(origin, str) else json.dumps(origin))
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert make_install_command("recipes") == command


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["reproduce"], "oni list shows them. (try: oni reproduce --help)"),
        (["bake", "x.pt"], "(try: oni bake --help)"),
        (["train", "x.yaml", "--learning-rate", "1"], "set configuration keys as learning_rate=VALUE; try: oni train"),
        (
            ["list", "--plan"],
            "No such option: --plan (Possible options: --plain) (try: oni list --help)",
        ),
        (["train", "x.yaml", "--resum"], ") (try: oni train --help)"),
        (["train", "x.yaml", "--out"], "Option '--out' requires an argument. (try: oni"),
        (["reproduce", "fig5", "--json=1"], "(try: oni"),
        (["--nosuch"], "(try: oni --help)"),
    ],
)
def test_wrong_usage_names_the_help_that_helps(run, arguments, hint):
    assert hint in one_line(run(*arguments))


@pytest.mark.parametrize(
    ("package", "arguments"),
    [
        ("rich", ["list"]),
        ("rich", ["inspect", "x.pt"]),
        ("matplotlib", ["inspect", "x.pt", "--plot", "y.png"]),
        ("safetensors", ["bake", "x.pt", "--out", "y.safetensors"]),
    ],
)
def test_without_the_rest_of_the_extra(checkpoint, package, arguments):
    program = f"import os, sys; os.chdir({str(checkpoint.parent)!r}); sys.modules[{package!r}] = None; {ONI}"
    assert f"this needs {package}, which is not installed" in one_line(in_a_process(program, *arguments))


def test_arguments_are_passed_by_name():
    """Ten in a row can be swapped unnoticed."""
    calls = [node for node in ast.walk(ast.parse(Path(cli.__file__).read_text())) if isinstance(node, ast.Call)]
    assert len(calls) > 50
    assert max(len(call.args) for call in calls) <= 4
