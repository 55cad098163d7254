"""Images of trained generators: drawn by the command, measured once, and named after what measured them."""

import io
import json
from dataclasses import replace

import pytest
import torch
from PIL import Image
from torch import nn

from oni.cli import main
from oni.recipes.data.images import Images
from oni.recipes.generated.classifier import load_classifier
from oni.recipes.generated.measure import FILE, Sampling, measure_run, read_measured
from oni.recipes.generated.samples import TrainedGenerator
from oni.recipes.metrics.extractors import Extractor
from oni.recipes.run_files.config import Config
from oni.recipes.tasks.gan import kept_updates
from oni.recipes.training.run import train

GENERATOR = torch.Generator().manual_seed(0)
PIXELS = torch.randint(0, 256, (60, 1, 28, 28), dtype=torch.uint8, generator=GENERATOR)
LABELS = torch.arange(60, dtype=torch.uint8) % 10
IMAGES = Images(PIXELS[:24], LABELS[:24], PIXELS[24:], LABELS[24:])
SAMPLING = Sampling(samples=30, real_samples=1000)


def gan_config(**changes):
    return Config(
        data="fashion-mnist-sample",
        task="gan",
        task_options={"n_dis": 1, "updates": 2, "distance_samples": 0, **changes},
        network="dcgan",
        network_options={"width": 2, "channels": 1},
        method="sn",
        optimizer="adam",
        learning_rate=0.002,
        batch_size=8,
        epochs=1,
        drops=(),
    )


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The folders of a GAN's and of a classifier's run."""
    out = tmp_path_factory.mktemp("runs")
    classifier = Config(
        data="fashion-mnist-sample",
        network_options={"depth": 1, "width": 24, "inputs": 784},
        batch_size=8,
        epochs=1,
        drops=(),
    )
    configs = {"gan": gan_config(), "average": gan_config(ema=0.9), "classifier": classifier}
    return {name: train(config, out, data=IMAGES, progress="none").folder for name, config in configs.items()}


class Counting(nn.Module):
    """Twelve pooled pixels as features; counts the images that it has seen."""

    def __init__(self):
        super().__init__()
        self.seen = 0

    def forward(self, images):
        self.seen += len(images)
        return nn.functional.adaptive_avg_pool2d(images.float(), (3, 4)).flatten(1)


def make_extractor(sha256="a" * 64):
    return Extractor("inception", "counted", sha256, "pooled", Counting())


def test_sample(runs, tmp_path, capsys):
    run = runs["gan"]
    assert main(["sample", str(run), "-o", str(tmp_path / "same.png")]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "same.png")
    # Without a seed it is the run's own sheet, pixel by pixel.
    assert (tmp_path / "same.png").read_bytes() == (run / "samples" / "update-0000002.png").read_bytes()
    options = ["-n", "7", "--columns", "4", "--seed", "3"]
    for name in ("one.png", "two.png"):
        assert main(["sample", str(run), "-o", str(tmp_path / name), *options]) == 0
    content = (tmp_path / "one.png").read_bytes()
    assert content == (tmp_path / "two.png").read_bytes()
    assert Image.open(io.BytesIO(content)).size == (4 * 34 - 2, 2 * 34 - 2)
    other = TrainedGenerator(run)
    assert torch.equal(other.images(7, 3), other.images(100, 3)[:7]), "whatever their number"
    assert not torch.equal(other.images(7, 3), other.images(7, 4))
    assert not torch.equal(other.images(7, 3), other.images(7, 3, "train"))
    capsys.readouterr()


def test_the_average_is_what_is_sampled(runs):
    averaged, last = TrainedGenerator(runs["average"]), TrainedGenerator(runs["average"])
    assert (runs["average"] / "samples" / "update-0000002.png").exists()
    last.generator.load_state_dict(last.run.models()["generator"])
    assert not torch.equal(averaged.images(3), last.images(3))


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (
            ["{classifier}", "-o", "x.png"],
            "a run of the task 'classification', which has no generator; pass a run of the task gan",
        ),
        (["{gan}", "-o", "x.jpg"], "--out x.jpg: a sheet is a PNG file; pass a name that ends in .png"),
        (["{gan}", "-o", "x.png", "-n", "0"], "--number must be from 1 to 10,000, got 0"),
        (["{gan}", "-o", "x.png", "--columns", "0"], "--columns must be at least 1, got 0"),
        (["{gan}", "-o", "x.png", "--mode", "evil"], "unknown generator mode 'evil'; did you mean 'eval'?"),
        (["{gan}/samples", "-o", "x.png"], "not a run folder: it has no config.json"),
    ],
)
def test_what_sample_refuses(runs, tmp_path, monkeypatch, capsys, arguments, complaint):
    monkeypatch.chdir(tmp_path)
    assert main(["sample", *(argument.format(**runs) for argument in arguments)]) == 2
    assert complaint in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_no_code_is_imported_because_a_folder_names_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.py").write_text("raise SystemExit('imported')")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text(json.dumps({"task": "gan", "network": "evil:Net"}))
    assert main(["sample", "run", "-o", "x.png"]) == 2
    assert "run/config.json: not the configuration of a run (unknown network 'evil:Net'" in capsys.readouterr().err


def test_measured_once(runs):
    run, extractor = runs["gan"], make_extractor()
    seen = []
    first = measure_run(run, IMAGES, extractor, SAMPLING, lambda *values: seen.append(values))
    # 36 test images and 30 generated ones.
    assert seen == [("real", 36, 36), ("generated", 30, 30)]
    assert extractor.module.seen == 66
    assert (first["samples"], first["real_samples"], first["mode"]) == (30, 36, "eval")
    assert first["weights"] == TrainedGenerator(run).sha256
    assert (first["extractor"], first["preparation"]) == ("counted", "pooled")
    assert first["fid"] > 0
    assert {"kid", "kid_error"} <= first.keys()
    assert not first["biased"]
    assert "inception_score" not in first
    assert measure_run(run, IMAGES, extractor, SAMPLING) == first
    assert extractor.module.seen == 66, "read, not measured again"
    assert read_measured(run, IMAGES, SAMPLING) == {"inception": first}
    # Another number of images is another measurement; the real ones are known.
    fewer = measure_run(run, IMAGES, extractor, Sampling(25, 1000))
    assert extractor.module.seen == 66 + 25
    assert fewer["fid"] != first["fid"]
    # So is another extractor, which has to see the real ones too.
    other = make_extractor("b" * 64)
    measure_run(run, IMAGES, other, SAMPLING)
    assert other.module.seen == 66
    assert len(json.loads((run / FILE).read_text())["measured"]) == 3
    assert read_measured(run, IMAGES, Sampling(99, 1000)) == {}


def test_generators_that_were_kept_on_the_way(tmp_path):
    config = replace(gan_config(keep_every=1), epochs=3)
    run = train(config, tmp_path, data=IMAGES, progress="none").folder
    assert kept_updates(config) == [2, 4]
    assert sorted(path.name for path in (run / "generators").iterdir()) == ["update-0000002.pt", "update-0000004.pt"]
    # A run of one epoch ends where the first was kept.
    short = train(gan_config(), tmp_path, data=IMAGES, progress="none").folder
    assert TrainedGenerator(run, 2).sha256 == TrainedGenerator(short).sha256
    assert len({TrainedGenerator(run, update).sha256 for update in (2, 4, None)}) == 3
    measured = {update: measure_run(run, IMAGES, make_extractor(), SAMPLING, update=update) for update in (2, None)}
    assert measured[2]["fid"] != measured[None]["fid"]
    for update, numbers in measured.items():
        assert read_measured(run, IMAGES, SAMPLING, update) == {"inception": numbers}
    assert read_measured(run, IMAGES, SAMPLING, 4) == {}
    with pytest.raises(
        ValueError, match=r"no generator was saved after 3 updates; train with task_options\.keep_every"
    ):
        TrainedGenerator(run, 3)


def test_too_few_samples_are_recorded(runs):
    class Wide(Counting):
        def forward(self, images):
            return super().forward(images).repeat(1, 4) + torch.arange(48)

    extractor = Extractor("inception", "wide", "c" * 64, "pooled", Wide())
    assert measure_run(runs["gan"], IMAGES, extractor, SAMPLING)["biased"]


def test_a_classifier_of_our_own(runs):
    extractor = load_classifier(runs["classifier"], IMAGES)
    assert extractor.kind == "classifier"
    assert extractor.label.startswith("mlp by oni, test error ")
    features, logits = extractor.extract(PIXELS[24:])
    assert features.shape == (36, 24)
    assert logits.shape == (36, 10)
    with pytest.raises(ValueError, match="was trained on other data than these images"):
        load_classifier(runs["classifier"], Images(PIXELS[:30], LABELS[:30], PIXELS[30:], LABELS[30:]))
    with pytest.raises(ValueError, match="a run of the task 'gan'; pass the folder of a classifier"):
        load_classifier(runs["gan"], IMAGES)
    # Generated images are 32 x 32, of which the classifier sees what is not black around them.
    padded = nn.functional.pad(PIXELS[24:], (2, 2, 2, 2))
    assert torch.equal(extractor.extract(padded)[1], logits)
    measured = measure_run(runs["gan"], IMAGES, extractor, SAMPLING)
    assert measured["preparation"] == "28 x 28 pixels"
    assert 1 <= measured["class_score"] <= 10


def test_its_numbers_have_names_of_their_own(runs):
    class Scores(Counting):
        def forward(self, images):
            pooled = super().forward(images)
            return pooled, pooled[:, :3] / 50

    classifier = Extractor("classifier", "ours", "d" * 64, "as it is", Scores())
    measured = measure_run(runs["gan"], IMAGES, classifier, SAMPLING)
    assert {"classifier_distance", "classifier_kernel_distance", "class_score"} <= measured.keys()
    assert not {"fid", "kid", "inception_score"} & measured.keys()
    assert 1 <= measured["class_score"] <= 3
    inception = Extractor("inception", "with scores", "e" * 64, "pooled", Scores())
    assert measure_run(runs["gan"], IMAGES, inception, SAMPLING)["inception_score"] == measured["class_score"]
