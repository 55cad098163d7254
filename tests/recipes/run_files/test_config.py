"""Configurations: their hash, and changes to them by words."""

import json
from dataclasses import replace

import pytest

from oni.recipes.run_files.config import Config
from oni.recipes.run_files.overrides import apply_changes, read_changes
from oni.recipes.task_registry import TASKS, RegisteredTask

PLAIN = Config(
    data="fashion-mnist-sample", method="plain", network_options={"depth": 3}, learning_rate=0.5, drops=(1, 2), seed=7
)


def test_the_hash_does_not_change_by_accident():
    # If this fails, every run on every disk will be trained again: is that meant? Then raise config.FORMAT.
    assert PLAIN.hash == "ebc0fe2b4afe"
    assert PLAIN.name == f"mlp-plain-lr0.5-seed7-{PLAIN.hash}"
    # As they were before these networks had frozen biases, and scales could decay.
    residual = Config(network="resnet-cifar", network_options={"blocks": 3}, data="cifar10")
    assert residual.hash == "00f931479e8e"
    scaled = replace(residual, method_options={"start": "orthogonal"}, init_scale=True, weight_decay=1e-4)
    assert scaled.hash == "22404ef7f0c2"


def test_new_options_are_in_the_hash_when_they_are_used():
    batch = Config(network_options={"depth": 3, "norm": "batch"})
    assert batch.hash != Config(network_options={"depth": 3}).hash
    assert Config(network_options={"depth": 3, "norm": "none"}).hash == Config(network_options={"depth": 3}).hash
    trained, frozen = (
        Config(network="resnet-cifar", network_options={"blocks": 3, "frozen_bias": frozen}) for frozen in (False, True)
    )
    assert len({trained.hash, frozen.hash, replace(trained, decay_scales=True).hash}) == 3
    relu, sort = (Config(network_options={"depth": 3, "activation": name}) for name in ("relu", "groupsort"))
    assert relu.hash == Config(network_options={"depth": 3}).hash
    assert sort.hash not in (relu.hash, batch.hash)


def test_equal_configurations_are_one():
    same = Config(
        data="fashion-mnist-sample",
        method="plain",
        network_options={"width": 256, "depth": 3},
        learning_rate=0.5,
        drops=[1, 2],
        weight_decay=0,
        seed=7,
    )
    assert same == PLAIN
    assert same.hash == PLAIN.hash
    assert Config(method_options={"steps": 5}).hash == Config().hash


def test_every_field_is_in_the_hash(monkeypatch):
    monkeypatch.setitem(TASKS, "other", RegisteredTask("nowhere:Task", {"d_steps": 1}))
    others = {
        "data": "fashion-mnist", "network_options": {"depth": 4}, "method": "xavier", "change_output": True,
        "optimizer": "adam", "learning_rate": 0.25, "momentum": 0.5, "weight_decay": 0.1, "batch_size": 1, "epochs": 3,
        "drops": (), "drop_factor": 0.1, "seed": 1, "samples": 9, "validation": 9, "split_seed": 1,
        "precision": "64-true", "watch": ("a",), "task": "other", "augment": ("flip",),
        "normalise": "mean-std", "nesterov": True, "reset_momentum": True, "init_scale": True, "measure_every": 2,
        "accumulate": 2, "decay_scales": True, "small_branches": True,
    }  # fmt: skip
    needed = {
        "method": {"method_options": {}},
        "task": {"task_options": {}},
        "nesterov": {"momentum": 0.5},
        "small_branches": {"init_scale": True},
    }
    hashes = {replace(PLAIN, **{name: value, **needed.get(name, {})}).hash for name, value in others.items()}
    assert len(hashes | {PLAIN.hash}) == len(others) + 1
    vgg = replace(PLAIN, network="vgg", network_options={"g": 2, "k": 1})
    steps = Config(method_options={"steps": 4})
    other, option = Config(task="other"), Config(task="other", task_options={"d_steps": 2})
    assert len({vgg.hash, PLAIN.hash, steps.hash, Config().hash, other.hash, option.hash}) == 6
    folder, small = replace(PLAIN, data="imagenet"), replace(PLAIN, data="imagenet", data_options={"size": 64})
    assert folder.hash != small.hash
    assert set(others) | {"network", "method_options", "task_options", "data_options"} == set(PLAIN.as_dict())


def test_through_json(tmp_path):
    path = tmp_path / "config.json"
    for config in (PLAIN, Config(method="olm", watch=("a", "b"))):
        path.write_text(json.dumps(config.as_dict()))
        assert apply_changes(Config(), read_changes(path)) == config


def test_through_yaml(tmp_path):
    path = tmp_path / "changes.yaml"
    path.write_text(
        "# a comment\nlearning_rate: 1e-2\ndrops: [3, 5]\nchange_output: yes\n"
        "method_options:\n  steps: 3\n  scale: relu\n"
    )
    changed = apply_changes(Config(), read_changes(path))
    assert (changed.learning_rate, changed.drops, changed.change_output) == (0.01, (3, 5), True)
    assert (changed.method_options["steps"], changed.method_options["scale"]) == (3, "relu")


def test_changes_by_words():
    changed = apply_changes(
        Config(),
        ["learning_rate=1", "learning_rate=5e-1", "epochs = 3", "drops=", "change_output=yes", "watch=a,b",
         "network_options.depth=6", "method_options.scale=relu", "method_options.learn_scale=false"],
    )  # fmt: skip
    assert (changed.learning_rate, changed.epochs, changed.drops, changed.change_output) == (0.5, 3, (), True)
    assert changed.watch == ("a", "b")
    assert changed.network_options["depth"] == 6
    assert (changed.method_options["scale"], changed.method_options["learn_scale"]) == ("relu", False)
    # Another method forgets the options of the one before; the same one keeps them.
    assert apply_changes(changed, ["method=plain"]).method_options == {}
    assert apply_changes(changed, ["method=oni"]) == changed


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("learning_rat=1", "did you mean 'learning_rate'"),
        ("method_option.steps=1", "did you mean 'method_options'"),
        ("method_options.step=1", "unknown option 'step' for method oni; did you mean 'steps'"),
        ("network_options.dept=1", "unknown option 'dept' for network mlp; did you mean 'depth'"),
        ("method=onni", "unknown method 'onni'; did you mean 'oni'"),
        ("data=mnist", "unknown data 'mnist'; choose from fashion-mnist, "),
        ("epochs=1.5", "epochs=1.5: must be a whole number"),
        ("epochs=0", "epochs must be at least 1"),
        ("learning_rate=fast", "learning_rate=fast: must be a number"),
        ("change_output=perhaps", "must be true or false"),
        ("drops=1,x", "must be whole numbers"),
        ("epochs", "is not key=value"),
        ("network_options.width=wide", "network_options.width of 'mlp' must be of type int, got 'wide'"),
        ("network_options.bias=1", "network_options.bias of 'mlp' must be of type bool, got 1"),
        ("network=resnet-cifar", "network 'resnet-cifar' needs blocks: pass network_options.blocks="),
        ("normalise=std", "unknown normalise 'std'; choose from mean, mean-std"),
        ("nesterov=true", "nesterov=true needs optimizer=sgd and a momentum above 0"),
        (
            "small_branches=true",
            "small_branches=true only applies to scales initialised from data: pass init_scale=true as well",
        ),
        ("measure_every=0", "measure_every must be at least 1"),
        ("augment=flap", "unknown augmentation 'flap'; did you mean 'flip'"),
        ("task=gun", "unknown task 'gun'; did you mean 'gan'"),
        ("task_options.d_steps=2", "unknown option 'd_steps' for task classification; choose from temperature"),
        ("method_options=3", "write method_options.option=value"),
        ("seed.x=3", "write seed=value"),
    ],
)
def test_wrong_changes(change, message):
    with pytest.raises(ValueError, match=message):
        apply_changes(Config(), [change])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "changes.yaml: not YAML"),
        ("\x00", "changes.yaml: not YAML"),
        ("!!python/object/apply:os.getcwd []", "changes.yaml: not YAML"),
        ("[1]", "changes.yaml: must contain keys and values"),
        ("", "must contain keys and values"),
        ('{"sed": 1}', "did you mean 'seed'"),
        ("epochs: many", "epochs=many: must be a whole number"),
        ("drops: [1, x]", "must be whole numbers"),
        ("learning_rate: .nan", "learning_rate must be a finite number"),
        ("method_options: 3", "write method_options.option=value"),
        ("method_options: {step: 3}", "unknown option 'step' for method oni; did you mean 'steps'"),
        ("seed: true", "seed=true: must be a whole number"),
    ],
)
def test_wrong_files(content, message, tmp_path):
    path = tmp_path / "changes.yaml"
    path.write_text(content)
    with pytest.raises(ValueError, match=message):
        apply_changes(Config(), read_changes(path))
