"""What ``make release`` says is left for a person to do."""

import importlib.util
from email.message import Message
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / ".ci" / "check_release.py"
spec = importlib.util.spec_from_file_location("check_release", SCRIPT)
check_release = importlib.util.module_from_spec(spec)
spec.loader.exec_module(check_release)


def steps(folder, changes="", readme="pip install .", **more):
    (folder / "CHANGELOG.md").write_text(
        f"# Changelog\n\n## [Unreleased]\n{changes}\n## [1.2.0] - 2027-01-01\n- All.\n"
    )
    (folder / "README.md").write_text(readme)
    metadata = Message()
    for key, value in {"Name": "oni-torch", "Version": "1.2.0", **more}.items():
        metadata[key] = value
    return check_release.list_steps(metadata, folder)


def test_what_must_be_done_before_building_again_comes_first(tmp_path):
    found = steps(tmp_path, "\n- New.\n")
    assert found[0].startswith("CHANGELOG.md: move what is under [Unreleased]")
    assert "write pip install oni-torch instead" in found[1]
    assert found[2].startswith("set the version (1.2.0 now)")
    assert "names no repository" in found[3]


def test_a_release_that_is_ready(tmp_path):
    urls = {"Project-URL": "Repository, https://example.org/oni"}
    first, *_, last = found = steps(tmp_path, readme="pip install oni-torch", **urls)
    assert first.startswith(".ci/run")
    assert "git tag v1.2.0 && git push origin v1.2.0" in found
    assert any("twine upload dist/*" in step for step in found)
    assert "GPU" in last


@pytest.mark.parametrize("version", ["1.3.0.dev0"])
def test_a_development_version_is_no_release(tmp_path, version):
    (tmp_path / "CHANGELOG.md").write_text("## [Unreleased]\n")
    metadata = Message()
    metadata["Name"], metadata["Version"] = "oni-torch", version
    (tmp_path / "README.md").write_text("pip install oni-torch")
    assert check_release.list_steps(metadata, tmp_path)[0].startswith(f"set the version ({version} now)")
