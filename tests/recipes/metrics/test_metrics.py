"""Distances and scores against direct computations in float64, and the files that features come from."""

import hashlib
import math

import pytest
import torch
from torch import nn

from oni.recipes.metrics.extractors import load_inception, resize_as_tensorflow
from oni.recipes.metrics.features import RandomFeatures, extract
from oni.recipes.metrics.frechet import TooFewSamples, frechet_distance
from oni.recipes.metrics.inception_score import class_score
from oni.recipes.metrics.kernel import kernel_distance


def features(seed, count=120, size=8):
    """Of a normal distribution of its own for every seed."""
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(size, size, dtype=torch.float64, generator=generator)
    return torch.randn(count, size, dtype=torch.float64, generator=generator) @ mixing + seed


def root(matrix):
    """The square root of a positive matrix; checked, so that no library has to be trusted."""
    values, vectors = torch.linalg.eigh(matrix)
    result = vectors * values.clamp(min=0).sqrt() @ vectors.T
    torch.testing.assert_close(result @ result, matrix)
    return result


def test_frechet_distance():
    real, generated = features(0), features(1, 150)
    first, second = torch.cov(real.T), torch.cov(generated.T)
    half = root(first)
    cross = root(half @ second @ half).trace()
    expected = (real.mean(0) - generated.mean(0)).square().sum() + first.trace() + second.trace() - 2 * cross
    assert frechet_distance(real, generated) == pytest.approx(float(expected), rel=1e-6)
    # A difference of numbers near 100, each rounded.
    assert frechet_distance(real, real) == pytest.approx(0, abs=1e-6)
    assert frechet_distance(real.float(), generated.float()) == pytest.approx(float(expected), rel=1e-3)


def test_kernel_distance():
    real, generated = features(0, 30), features(1, 40)
    x, y = real, generated[:30]

    def kernel(a, b):
        return (a @ b.T / a.shape[1] + 1) ** 3

    off = ~torch.eye(30, dtype=torch.bool)
    expected = kernel(x, x)[off].mean() + kernel(y, y)[off].mean() - 2 * kernel(x, y).mean()
    distance, error = kernel_distance(real, generated)
    assert distance == pytest.approx(float(expected), rel=1e-9)
    assert error > 0
    # No bias: of one distribution, above and below 0 in equal parts, and within a few errors of it.
    generator = torch.Generator().manual_seed(3)
    same = [kernel_distance(*torch.randn(2, 60, 8, dtype=torch.float64, generator=generator))[0] for _ in range(40)]
    mean, spread = torch.tensor(same).mean(), torch.tensor(same).std()
    assert abs(mean) < 4 * spread / math.sqrt(len(same))
    assert min(same) < 0 < max(same)


def test_class_score():
    logits = 3 * torch.randn(100, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    # torchmetrics shuffles, so ten equal parts make the splits known.
    logits = logits[:10].repeat(10, 1)
    mean, deviation = class_score(logits)
    assert 1 < mean < 5
    assert deviation < 1
    assert class_score(torch.zeros(100, 5)) == pytest.approx((1.0, 0.0))
    # Sure of each, and all classes alike often in 500 samples: nearly the number of classes.
    sure = 50 * nn.functional.one_hot(torch.arange(500) % 5).double()
    # 50 samples in a split: the counts of the classes vary by a few.
    assert class_score(sure)[0] == pytest.approx(5, rel=0.1)
    assert class_score(logits) == class_score(logits), "the same whenever"


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: frechet_distance(torch.ones(5, 2), torch.full((5, 2), math.nan)), "generated: the features of 5 of 5"),
        (lambda: frechet_distance(torch.ones(5, 2), torch.ones(5, 3)), "real has 2 features and generated 3"),
        (lambda: frechet_distance(torch.ones(5), torch.ones(5, 3)), r"real must be features \(samples, features\)"),
        (
            lambda: kernel_distance(torch.ones(19, 2), torch.ones(50, 2)),
            "at least 20 real and generated samples, got 19",
        ),
        (lambda: class_score(torch.ones(9, 2)), "of at least 10 samples"),
        (lambda: class_score(torch.full((20, 2), math.inf)), "logits contain NaN or infinity"),
        (lambda: extract(RandomFeatures(), torch.ones(2, 3, 4, 4)), "images must be bytes"),
    ],
)
def test_what_is_refused(call, complaint):
    with pytest.raises(ValueError, match=complaint):
        call()


def test_too_few_samples_warn():
    with pytest.warns(TooFewSamples, match="9 real and 150 generated samples for 9 features: the covariances are sing"):
        frechet_distance(features(0, 9, 9), features(1, 150, 9))


def test_random_features():
    images = torch.randint(0, 256, (3, 1, 32, 32), dtype=torch.uint8)
    first, again = (extract(RandomFeatures(1), images) for _ in range(2))
    assert first.shape == (3, RandomFeatures.num_features)
    assert torch.equal(first, again), "no seed has a say"
    assert torch.allclose(extract(RandomFeatures(1), images, batch=2), first)


def test_resizing_as_tensorflow():
    images = torch.rand(2, 3, 5, 7, dtype=torch.float64)
    resized = resize_as_tensorflow(images, 9)
    for row, column in ((0, 0), (4, 3), (8, 8), (7, 5)):
        y, x = row * 5 / 9, column * 7 / 9
        top, left = int(y), int(x)
        bottom, right = min(top + 1, 4), min(left + 1, 6)
        dy, dx = y - top, x - left
        expected = (1 - dy) * ((1 - dx) * images[..., top, left] + dx * images[..., top, right])
        expected = expected + dy * ((1 - dx) * images[..., bottom, left] + dx * images[..., bottom, right])
        torch.testing.assert_close(resized[..., row, column], expected)


class Features(nn.Module):
    def forward(self, x):
        return x.mean((2, 3))


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_the_inception_file(tmp_path, monkeypatch):
    path = tmp_path / "inception.pt"
    torch.jit.script(Features()).save(path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setattr(torch.jit, "load", lambda *_, **__: pytest.fail("a program was run that nobody vouched for"))
    with pytest.raises(ValueError, match=f"unknown Inception weights.*pass --inception-sha256 {digest}"):
        load_inception(path)
    with pytest.raises(ValueError, match=f"has the sha256 {digest}, but --inception-sha256 is 00; nothing was"):
        load_inception(path, "00")
    with pytest.raises(IsADirectoryError):
        load_inception(tmp_path)
    monkeypatch.undo()
    extractor = load_inception(path, digest.upper())
    assert (extractor.kind, extractor.sha256, extractor.label) == ("inception", digest, f"weights {digest[:8]}")
    images = torch.stack([torch.zeros(1, 4, 4), torch.full((1, 4, 4), 255)]).to(torch.uint8)
    values, logits = extractor.extract(images)
    assert logits is None
    # Pixels less 128, divided by 128, in three equal channels.
    torch.testing.assert_close(values, torch.tensor([[-1.0], [127 / 128]]).expand(2, 3))
