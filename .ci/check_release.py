"""Whether dist/ can be uploaded: what a wheel and an sdist must hold, how large they are; then what to do with them."""

import re
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

LARGEST_WHEEL = 8_000_000  # bytes


def check(dist: Path, root: Path) -> str:
    """Return the version, or end with what is wrong."""
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
    return version


if __name__ == "__main__":
    version = check(Path(sys.argv[1]), Path(__file__).parents[1])
    if "dev" in version:
        print(f"{version} is no release: set the version in pyproject.toml and date its section in CHANGELOG.md first")
    else:
        print(f"To release it: git tag v{version} && git push origin v{version} && python -m twine upload dist/*")
