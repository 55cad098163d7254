"""``oni bench images`` on a small network."""

import json
from functools import partial

import torch

from oni.bench import images
from oni.bench.training import classification
from oni.cli import main
from oni.recipes.networks.vgg import VGG

SMALL = images.ImageCase("resnet20-b8", "a small one", partial(VGG, 1, 1), converted=True, batch=4, quick=True)


def test_formats_and_augmentation_are_timed_and_held_against_targets(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(images, "IMAGE_CASES", (SMALL,))
    path = tmp_path / "bench.json"
    assert main(["bench", "images", "--quick", "--json", str(path), "--plain"]) == 0
    out = capsys.readouterr().out
    record = json.loads(path.read_text())
    (case,) = record["cases"]
    names = [contender["name"] for contender in case["contenders"]]
    assert names == [*images.FORMATS, "augment flip, crop", "augment flip-half, crop-together"]
    assert all(
        contender["rounds"] >= 3 and name in out for contender, name in zip(case["contenders"], names, strict=True)
    )
    assert case["contenders"][0]["times_contiguous"]["median"] == 1
    judged = [target for target in record["targets"] if target["case"] == SMALL.name]
    assert [target["at_most"] for target in judged] == [0.05, 0.05]
    assert all(target["measured"] > 0 for target in judged)


def test_every_format_computes_the_same_from_other_strides():
    losses = {name: images.make_step(SMALL, name, "cpu")() for name in images.FORMATS}
    # Convolutions sum in another order: float32, five layers.
    for loss in losses.values():
        torch.testing.assert_close(loss, losses[images.CONTIGUOUS], rtol=1e-5, atol=0)
    strides = []
    probe = torch.nn.Module()
    probe.forward = lambda x: strides.append(x.is_contiguous(memory_format=torch.channels_last)) or torch.zeros(2, 10)
    for last in (False, True):
        classification((3, 8, 8), 2, 10, "cpu", channels_last=last)(probe)
    assert strides == [False, True]
