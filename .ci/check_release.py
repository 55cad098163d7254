"""Whether dist/ can be uploaded: what a wheel and an sdist must hold, how large they are; then what to do with them."""

import re
import sys
import tarfile
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

LARGEST_WHEEL = 8_000_000  # bytes


def check(dist: Path, root: Path) -> Message:
    """Return the metadata, or end with what is wrong."""
    wheels, sources = sorted(dist.glob("*.whl")), sorted(dist.glob("*.tar.gz"))
    if len(wheels) != 1 or len(sources) != 1:
        sys.exit(f"{dist}: one wheel and one sdist are expected, found {[path.name for path in dist.iterdir()]}")
    if (size := wheels[0].stat().st_size) > LARGEST_WHEEL:
        sys.exit(f"{wheels[0].name} has {size} bytes, more than {LARGEST_WHEEL}")
    with zipfile.ZipFile(wheels[0]) as wheel:
        names = wheel.namelist()
        (metadata,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        fields = Parser().parsestr(wheel.read(metadata).decode())
    folder = metadata.split("/")[0]
    if foreign := [name for name in names if not name.startswith(("oni/", f"{folder}/"))]:
        sys.exit(f"{wheels[0].name} holds files that are not of the package: {foreign[:5]}")
    for needed in ("oni/py.typed", f"{folder}/licenses/LICENSE", f"{folder}/entry_points.txt"):
        if needed not in names:
            sys.exit(f"{wheels[0].name} lacks {needed}")
    with tarfile.open(sources[0]) as source:
        inside = {name.partition("/")[2] for name in source.getnames()}
    for needed in ("pyproject.toml", "README.md", "LICENSE", "oni/py.typed"):
        if needed not in inside:
            sys.exit(f"{sources[0].name} lacks {needed}")
    version = str(fields["Version"])
    heading = rf"^## \[{'Unreleased' if 'dev' in version else re.escape(version)}\]"
    if not re.search(heading, (root / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE):
        sys.exit(f"CHANGELOG.md has no section for version {version}")
    if "dev" not in version and f"\nversion: {version}\n" not in (root / "CITATION.cff").read_text("utf-8"):
        sys.exit(f"CITATION.cff is not of version {version}; set its version and date-released")
    print(f"{wheels[0].name}: {size / 1e6:.1f} MB, {len(names)} files; {sources[0].name}: {len(inside)} files")
    return fields


def list_steps(metadata: Message, root: Path) -> list[str]:
    """What is left for a person to do, in order."""
    name, version = metadata["Name"], metadata["Version"]
    unreleased = (root / "CHANGELOG.md").read_text("utf-8").partition("## [Unreleased]")[2].partition("\n## [")[0]
    steps = []
    if unreleased.strip():
        steps.append("CHANGELOG.md: move what is under [Unreleased] into a section with version and date")
    if f"pip install {name}" not in (root / "README.md").read_text("utf-8"):
        steps.append(f"README.md, which PyPI shows, and docs/: write pip install {name} instead of pip install .")
    if "dev" in version or unreleased.strip():
        steps.append(f"set the version ({version} now) in pyproject.toml and CITATION.cff, then run make release again")
    if "Project-URL" not in metadata:
        steps.append("pyproject.toml names no repository: add [project.urls], and repo_url to mkdocs.yml")
    return [
        *steps,
        ".ci/run, once, on a quiet machine: everything that must pass",
        f"git tag v{version} && git push origin v{version}",
        f"an account and a token of PyPI for {name}; then .venv/bin/python -m twine upload dist/*",
        f"try it in a new environment: pip install {name}",
        "publish site/, which make docs builds",
        "nothing here has run on a GPU: run make test and oni bench --device cuda on one, or say that none was used",
    ]


if __name__ == "__main__":
    root = Path(__file__).parents[1]
    metadata = check(Path(sys.argv[1]), root)
    print("\nLeft for you to do:")
    for number, step in enumerate(list_steps(metadata, root), 1):
        print(f"  {number}. {step}")
