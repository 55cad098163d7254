"""Batches from memory and from a stream, shared by processes; augmentation."""

from dataclasses import dataclass, replace

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from oni.recipes.data.augment import PADDING, Share, augment, crop, crop_together, flip, flip_half, random_integers
from oni.recipes.data.datasets import DATASETS, RegisteredDataset
from oni.recipes.data.images import Images, Samples
from oni.recipes.run_files.config import Config
from oni.recipes.training.parts import split
from oni.recipes.training.run import train

CPU = torch.device("cpu")
CONFIG = Config(
    data="fashion-mnist-sample",
    network_options={"depth": 1, "width": 8, "inputs": 24},
    batch_size=16,
    epochs=1,
    drops=(),
    validation=7,
)


def make_images(count=100):
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (count, 2, 3, 4), dtype=torch.uint8, generator=generator)
    return pixels, pixels[:, 0, 0, 0] // 26


PIXELS, LABELS = make_images()


@dataclass(frozen=True)
class Streamed:
    """Reads its samples one by one when they are asked for."""

    start: int
    stop: int
    workers: int = 0
    mean = torch.tensor([0.5, 0.25])
    skips = False

    def __len__(self):
        return self.stop - self.start

    def read(self, indices, key=None):
        assert len(indices) > 0
        rows = [PIXELS[self.start + int(index)] for index in indices]
        return Samples(torch.stack(rows), torch.stack([LABELS[self.start + int(index)] for index in indices]))


@dataclass(frozen=True)
class StreamedDataset:
    workers: int = 0
    sha256 = "f" * 64

    @property
    def train(self):
        return Streamed(0, 80, self.workers)

    @property
    def test(self):
        return Streamed(80, 100, self.workers)


MEMORY = Images(PIXELS[:80], LABELS[:80], PIXELS[80:], LABELS[80:])


def centre(parts):
    """The same mean as the stream's, which does not compute its own."""
    mean = torch.tensor([0.5, 0.25], dtype=torch.float64).reshape(2, 1, 1)
    return replace(
        parts, **{name: replace(getattr(parts, name), mean=mean) for name in ("train", "validation", "test")}
    )


@pytest.mark.parametrize("workers", [0, 1])
def test_a_stream_gives_what_memory_gives(workers):
    config = replace(CONFIG, augment=("flip", "crop"))
    streamed = split(StreamedDataset(workers), config, CPU, torch.float64)
    memory = centre(split(MEMORY, config, CPU, torch.float64))
    before = torch.get_rng_state()
    order = torch.randperm(73, generator=torch.Generator().manual_seed(3))
    for part, size, epoch in (("train", 16, 2), ("validation", 5, None), ("test", 20, None)):
        first, second = getattr(streamed, part), getattr(memory, part)
        assert len(first) == len(second)
        indices = order if part == "train" else torch.arange(len(first))
        batches = list(first.batches(indices, size, epoch=epoch))
        expected = list(second.batches(indices, size, epoch=epoch))
        assert len(batches) == len(expected) > 0
        for (images, labels), (other_images, other_labels) in zip(batches, expected, strict=True):
            assert torch.equal(images, other_images)
            assert torch.equal(labels, other_labels)
    assert torch.equal(torch.get_rng_state(), before), "reading must not draw from training's generator"


@pytest.mark.parametrize("dataset", [MEMORY, StreamedDataset()], ids=["memory", "stream"])
def test_shares_of_processes(dataset):
    part = split(dataset, CONFIG, CPU, torch.float64).train
    order = torch.arange(len(part))
    whole = list(part.batches(order, 18))
    assert [len(labels) for _, labels in whole] == [18, 18, 18, 18, 1]
    shares = [list(part.batches(order, 18, rank=rank, world=2)) for rank in (0, 1)]
    # The last sample is the first process's, and the second has an empty batch of the right shape.
    assert shares[1][-1][0].shape == (0, 2, 3, 4)
    for (images, labels), *pieces in zip(whole, *shares, strict=True):
        assert torch.equal(torch.cat([piece[0] for piece in pieces]), images)
        assert torch.equal(torch.cat([piece[1] for piece in pieces]), labels)
    later = list(part.batches(order, 18, first=3))
    assert all(torch.equal(a[0], b[0]) for a, b in zip(later, whole[3:], strict=True))


def test_a_streamed_run(tmp_path, monkeypatch):
    monkeypatch.setitem(DATASETS, "streamed", RegisteredDataset(lambda folder: StreamedDataset()))
    config = replace(CONFIG, data="streamed", method="plain", method_options={}, precision="64-true")
    result = train(config, tmp_path, progress="none")
    assert result.metrics["status"] == "finished"
    assert result.metrics["steps"] == 4
    assert result.data == {"name": "streamed", "sha256": "f" * 64, "official": True}


# Augmentation.

INDICES = torch.arange(100)


def test_flip_against_one_by_one():
    out = flip(PIXELS, INDICES, 0, 1)
    mirrored = [torch.equal(new, old.flip(-1)) for new, old in zip(out, PIXELS, strict=True)]
    kept = [torch.equal(new, old) for new, old in zip(out, PIXELS, strict=True)]
    assert all(a != b for a, b in zip(mirrored, kept, strict=True))
    # A fair coin, 100 times: 5 standard deviations.
    assert 25 < sum(mirrored) < 75


def test_crop_against_one_by_one():
    images = torch.arange(1, 1 + 50 * 2 * 6 * 5).remainder(255).add(1).to(torch.uint8).reshape(50, 2, 6, 5)
    out = crop(images, INDICES[:50], 0, 1)
    numbers = random_integers(INDICES[:50], 0, 1, "crop")
    for image, new, number in zip(images, out, numbers.tolist(), strict=True):
        size = 2 * PADDING + 1
        top, left = number % size, number // size % size
        padded = torch.zeros(2, 6 + 2 * PADDING, 5 + 2 * PADDING, dtype=torch.uint8)
        padded[:, PADDING : PADDING + 6, PADDING : PADDING + 5] = image
        assert torch.equal(new, padded[:, top : top + 6, left : left + 5])


def test_offsets_are_uniform_and_depend_on_everything():
    many = torch.arange(90_000)
    numbers = random_integers(many, 0, 0, "crop")
    assert 0 <= int(numbers.min()) <= int(numbers.max()) < 2**32
    counts = (numbers % 9).bincount(minlength=9)
    # 10,000 each; a binomial's standard deviation is 94: five of them.
    assert int((counts - 10_000).abs().max()) < 471
    # Neighbours are independent: of 90,000 pairs of bits, half are equal; five standard deviations.
    assert abs(int(((numbers[1:] ^ numbers[:-1]) & 1).sum()) - 45_000) < 750
    for key in ((1, 0, "crop"), (0, 1, "crop"), (0, 0, "flip")):
        assert not torch.equal(random_integers(many[:100], *key), numbers[:100])


def test_augmentation_depends_on_the_sample_not_on_its_batch():
    names = ("flip", "crop")
    whole = augment(PIXELS, INDICES, names, 3, 4)
    chosen = torch.tensor([7, 3, 99])
    assert torch.equal(augment(PIXELS[chosen], chosen, names, 3, 4), whole[chosen])
    assert not torch.equal(augment(PIXELS, INDICES, names, 3, 5), whole)
    assert not torch.equal(augment(PIXELS, INDICES, names, 4, 4), whole)
    assert augment(PIXELS, INDICES, (), 3, 4) is PIXELS


# What treats a batch as one.

SQUARES = torch.randint(0, 256, (73, 2, 8, 7), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
TOGETHER = ("flip-half", "crop-together")


def test_exactly_half_of_a_batch_is_flipped():
    chosen = []
    for batch in range(20):
        out = flip_half(SQUARES[:16], Share(batch, 16), 0, 1)
        mirrored = (out != SQUARES[:16]).flatten(1).any(1)
        assert torch.equal(out[mirrored], SQUARES[:16][mirrored].flip(-1))
        assert int(mirrored.sum()) == 8
        chosen.append(tuple(mirrored.tolist()))
    # Of 12,870 halves, 20 draws hardly ever have the same two twice.
    assert len(set(chosen)) >= 18
    assert int((flip_half(SQUARES[:5], Share(0, 5), 0, 1) != SQUARES[:5]).flatten(1).any(1).sum()) == 2


def test_one_offset_for_a_batch_from_reflected_images():
    size = 2 * PADDING + 1
    offsets = set()
    for batch in range(40):
        out = crop_together(SQUARES[:6], Share(batch, 6), 0, 1)
        padded = F.pad(SQUARES[:6].float(), (PADDING,) * 4, mode="reflect").to(torch.uint8)
        fits = [
            (top, left)
            for top in range(size)
            for left in range(size)
            if torch.equal(padded[:, :, top : top + 8, left : left + 7], out)
        ]
        assert len(fits) == 1
        offsets.add(fits[0])
    # 40 draws of 81: an average of 31.6 different ones, and fewer than 20 in far less than one of a million.
    assert len(offsets) >= 20
    with pytest.raises(ValueError, match="crop-together needs images larger than 4 x 4, got 3 x 4"):
        crop_together(PIXELS, Share(0, 100), 0, 1)


def test_batches_that_are_changed_as_one_are_so_in_shares_and_after_an_interruption():
    dataset = Images(SQUARES, LABELS[:73], SQUARES[:9], LABELS[:9])
    config = replace(CONFIG, augment=TOGETHER, validation=0)
    part = split(dataset, config, CPU, torch.float64).train
    order = torch.randperm(73, generator=torch.Generator().manual_seed(3))
    whole = list(part.batches(order, 18, epoch=2))
    shares = [list(part.batches(order, 18, rank=rank, world=3, epoch=2)) for rank in range(3)]
    for (images, _), *pieces in zip(whole, *shares, strict=True):
        assert torch.equal(torch.cat([piece[0] for piece in pieces]), images)
    later = list(part.batches(order, 18, first=2, epoch=2))
    assert all(torch.equal(a[0], b[0]) for a, b in zip(later, whole[2:], strict=True))
    for other in (part.batches(order, 18, epoch=3), replace(part, seed=1).batches(order, 18, epoch=2)):
        assert not torch.equal(next(other)[0], whole[0][0])


# How bytes become numbers.


def test_mean_and_standard_deviation_of_the_samples_trained_on():
    parts = split(MEMORY, replace(CONFIG, normalise="mean-std"), CPU, torch.float64)
    images, _ = parts.train.batch(torch.arange(len(parts.train)))
    # float64 of a few hundred numbers.
    torch.testing.assert_close(images.mean((0, 2, 3)), torch.zeros(2, dtype=torch.float64), atol=1e-12, rtol=0)
    deviation = images.std((0, 2, 3), correction=0)
    torch.testing.assert_close(deviation, torch.ones(2, dtype=torch.float64), atol=1e-12, rtol=0)
    plain = split(MEMORY, CONFIG, CPU, torch.float64)
    scale = parts.train.deviation
    for part in ("validation", "test"):
        ours, theirs = (getattr(some, part).batch(torch.arange(5))[0] for some in (parts, plain))
        torch.testing.assert_close(ours, theirs / scale)
    black = Images(torch.zeros_like(PIXELS), LABELS, PIXELS, LABELS)
    part = split(black, replace(CONFIG, normalise="mean-std"), CPU, torch.float64).train
    assert not part.batch(torch.arange(3))[0].any(), "a channel that does not vary is left as it is"


def test_a_stream_says_its_standard_deviation():
    config = replace(CONFIG, normalise="mean-std")
    with pytest.raises(ValueError, match="has no standard deviation of its pixels; pass normalise=mean"):
        split(StreamedDataset(), config, CPU, torch.float64)


def test_only_training_is_augmented(tmp_path):
    parts = split(MEMORY, replace(CONFIG, augment=("flip",)), CPU, torch.float64)
    plain = split(MEMORY, CONFIG, CPU, torch.float64)
    assert torch.equal(
        next(parts.test.batches(torch.arange(20), 20, epoch=0))[0], plain.test.batch(torch.arange(20))[0]
    )
    order = torch.arange(73)
    assert not torch.equal(next(parts.train.batches(order, 73, epoch=0))[0], plain.train.batch(order)[0])
    assert torch.equal(parts.train.batch(order)[0], plain.train.batch(order)[0])


class NoWaiting(TorchDispatchMode):
    """Fails where the CPU needs a value from the device: on a GPU it would wait there."""

    WAITS = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "unique")

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        assert function.overloadpacket.__name__ not in self.WAITS, f"{function} waits for the device"
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("method", "augment"), [("plain", ("flip", "crop")), ("oni", ("flip", "crop")), ("wn", ("flip-half",))]
)
def test_nothing_in_a_step_waits_for_the_device(method, augment, monkeypatch):
    from oni.recipes.tasks.classification import Classification
    from oni.recipes.training.devices import Hardware, launch_fabric

    config = replace(CONFIG, method=method, method_options={}, augment=augment, momentum=0.9)
    task = Classification(config, launch_fabric(Hardware("cpu"), "32-true"), MEMORY)
    task.start_epoch(0, 0)
    task.train_step()

    def wait(*_):
        raise AssertionError("this waits for the device")

    for name in ("tolist", "numpy", "cpu"):  # which the mode does not see
        monkeypatch.setattr(torch.Tensor, name, wait)
    with NoWaiting():
        task.train_step()
        with pytest.raises(AssertionError, match="waits"):
            task.running()
        with pytest.raises(AssertionError, match="waits"):
            float(task.totals.sums["loss"])
