"""The layers of the package: each imports only from those before it, and the public surface is what the README says."""

import ast
import sys
from pathlib import Path
from types import ModuleType

import pytest

import oni

PACKAGE = Path(oni.__file__).parent
# A layer may import itself and those to its left. `oni` alone is the public surface, for what stands on it.
LAYERS = [
    "torch_internals",
    "newton",
    "diagnostics",
    "nn",
    "models",
    "baselines",
    "public",
    "names",
    "machine",
    "files",
    "timing",
    "terminal",
    "errors",
    "style",
    "checkpoints",
    "recipes",
    "bench",
    "cli_options",
    "cli",
    "__main__",
]
# The same inside the recipes, by folder or file.
RECIPES = [
    "own",
    "exact_maps",
    "attack",
    "methods",
    "data",
    "networks",
    "metrics",
    "task_registry",
    "run_files",
    "progress",
    "training",
    "sheets",
    "tasks",
    "generated",
    "grid",
    "charts",
    "experiments",
    "report",
    "reproduce",
    "train",
    "demo",
]
DRAWING = ("charts", "drawing")
"""How the names of those files of experiments end that draw."""
ON_TOP = {"style", "checkpoints", "recipes", "bench", "cli_options", "cli", "__main__"}


def modules():
    return sorted(path for path in PACKAGE.rglob("*.py") if path.name != "__init__.py" or path.parent != PACKAGE)


def layer(path):
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def imports_of(path, *, at_once=False):
    """What a file imports, or only what it imports as soon as it is imported itself."""
    tree = ast.parse(path.read_text())
    for node in tree.body if at_once else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute here"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_arrow_points_up(path):
    own = LAYERS.index(layer(path))
    for name in imports_of(path):
        parts = name.split(".")
        if parts[0] != "oni":
            continue
        if name == "oni" and layer(path) == "public":
            continue  # from oni import nn: the package, not its names
        if len(parts) == 1 or parts[1] not in LAYERS:
            assert layer(path) in ON_TOP, f"{path} imports the public surface, which stands on it"
        else:
            assert LAYERS.index(parts[1]) <= own, f"{path} imports {name}, a layer above it"


@pytest.mark.parametrize(
    "path", sorted((PACKAGE / "recipes").rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE))
)
def test_no_arrow_points_up_inside_the_recipes(path):
    if path.parent == PACKAGE / "recipes" and path.name == "__init__.py":
        return
    room = path.relative_to(PACKAGE / "recipes").with_suffix("").parts[0]
    for name in imports_of(path):
        parts = name.split(".")
        if parts[:2] == ["oni", "recipes"] and len(parts) > 2:
            assert RECIPES.index(parts[2]) <= RECIPES.index(room), f"{path} imports {name}, which stands on it"


def test_no_file_of_the_recipes_imports_itself_by_way_of_others():
    """Neither at once nor later, nor for its types: what a file needs can be read before the file."""
    files = sorted((PACKAGE / "recipes").rglob("*.py"))
    names = {".".join(("oni", *path.relative_to(PACKAGE).with_suffix("").parts)): path for path in files}
    imports = {name: {other for other in imports_of(path) if other in names} for name, path in names.items()}
    while free := {name for name, others in imports.items() if not others & imports.keys()}:
        imports = {name: others for name, others in imports.items() if name not in free}
    assert not imports, f"each of these imports another of them: {sorted(imports)}"


@pytest.mark.parametrize(
    "path", sorted((PACKAGE / "recipes/experiments").rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE))
)
def test_experiments_judge_without_charts(path):
    """Only the files that draw load the charts, and they are loaded to draw."""
    for name in imports_of(path, at_once=True):
        if not path.stem.endswith(DRAWING):
            assert not name.startswith("oni.recipes.charts"), name
            is_file = (PACKAGE.parent / name.replace(".", "/")).with_suffix(".py").exists()
            assert not (is_file and name.endswith(DRAWING)), name


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_the_core_needs_torch_alone(path):
    if layer(path) not in ON_TOP:
        for name in imports_of(path, at_once=True):
            assert name.split(".")[0] in {"oni", "torch", *sys.stdlib_module_names}, name


@pytest.mark.parametrize(
    "path", sorted((PACKAGE / "bench").rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE))
)
def test_of_the_recipes_the_bench_uses_networks_and_augmentation_alone(path):
    used = ("oni.recipes.networks", "oni.recipes.data.augment")
    for name in imports_of(path):
        assert not name.startswith("oni.recipes") or name.startswith(used), name


@pytest.mark.parametrize("subject", ["forms", "matrices", "models", "processes"])
def test_subjects_of_the_bench_do_not_import_each_other(subject):
    files = sorted((PACKAGE / "bench" / subject).rglob("*.py"))
    assert files
    for path in files:
        folders = {name.split(".")[2] for name in imports_of(path) if name.startswith("oni.bench.")}
        assert folders & {"forms", "matrices", "models", "processes"} <= {subject}, path


def test_every_folder_has_its_layer():
    assert {layer(path) for path in modules()} <= set(LAYERS)


FUNCTIONS = {
    "bake",
    "cached",
    "certified_range",
    "convert",
    "init_scale",
    "orthogonal",
    "orthogonality",
    "orthogonalize",
    "param_groups",
    "retune",
    "share",
    "spectrum",
    "steps_for",
    "summary",
}
MODULES = {"baselines", "diagnostics", "nn"}


def test_public_names():
    """The surface is frozen: a name more or less is a decision, not an accident."""
    assert oni.__all__ == sorted(FUNCTIONS | MODULES)
    assert all(callable(getattr(oni, name)) for name in FUNCTIONS)
    assert all(isinstance(getattr(oni, name), ModuleType) for name in MODULES)
    assert oni.__version__
    with pytest.raises(AttributeError, match="module 'oni' has no attribute 'bake_state_dict'"):
        _ = oni.bake_state_dict
    for name in oni.__all__:
        assert getattr(oni, name).__doc__, name
