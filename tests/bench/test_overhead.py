"""``oni bench overhead``: what is measured, and what is predicted from it."""

import json

import pytest

from oni.bench.overhead import (
    OVERHEAD_CASES,
    SMALL_ONI,
    SMALL_PLAIN,
    OverheadResult,
    OverheadTimes,
    describe_prediction,
)
from oni.cli import main
from oni.diagnostics import cost


def test_the_command(tmp_path, capsys):
    path = tmp_path / "overhead.json"
    assert main(["bench", "overhead", "--quick", "--json", str(path), "--plain"]) == 0
    assert "With 256 images: + " in capsys.readouterr().out
    (case,) = json.loads(path.read_text())["cases"]
    assert case["name"] == "resnet18-b8"
    assert len(case["contenders"]) == 4
    assert all(contender["rounds"] >= 3 for contender in case["contenders"])
    # By the cost model's own numbers: every convolution, but not the output layer, is orthogonalised.
    (quick,) = [case for case in OVERHEAD_CASES if case.quick]
    rows = cost(quick.build(), (3, 64, 64), batch_size=8, steps=2)
    assert case["multiply_adds"]["network_per_image"] * 8 == sum(3 * row.layer_itself for row in rows)
    assert case["multiply_adds"]["oni"] == sum(row.oni + row.oni_backward for row in rows if row.layer != "fc")
    assert case["predicted"]["8_devices_sharing"] == pytest.approx(case["predicted"]["one_device"])


def test_the_prediction_scales_with_the_batch():
    vgg = OVERHEAD_CASES[0]
    result = OverheadResult(vgg.name, vgg.about, vgg, network_products=2e9, oni_products=4e9)
    assert result.predict(128) is None
    assert describe_prediction(result).startswith("With 128 images:  predicted")
    result.entries = {
        SMALL_PLAIN: OverheadTimes({0: 1.0, 1: 2.0}),
        SMALL_ONI: OverheadTimes({0: 4.0, 1: 5.0}),
        "plain": OverheadTimes({0: 10.0, 1: 12.0}),
        "oni": OverheadTimes({0: 10.0, 1: 10.0}),  # noise hides it here
    }
    # 3 seconds, which are added to 11 for 32 images.
    assert result.added.median == 3
    assert result.predict(32) == pytest.approx(3 / 11)
    assert result.predict(128) == pytest.approx(3 / 44)
    assert result.predict(128, devices=8) == pytest.approx(8 * 3 / 44)
    assert result.predict(128, devices=8, shared=True) == pytest.approx(3 / 44)
    # A product of ONI takes 3 / 4e9 s, one of the network 11 / (32 * 2e9) s.
    assert result.slowness == pytest.approx(3 / 4e9 / (11 / 64e9))
    assert "With 128 images: + 6.82 % predicted; the paper measured + 7.2 %." in describe_prediction(result)
    assert [(case.steps, case.paper_batch, case.paper_percent) for case in OVERHEAD_CASES[:3]] == [
        (5, 128, 7.2),
        (2, 256, 12),
        (2, 256, 18),
    ]
