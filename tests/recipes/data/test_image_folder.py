"""Folders of images: the search and its cache, decoding, crops, images that can't be read, batches and runs."""

import hashlib
import io
import os
import struct
import time
import zlib
from dataclasses import replace
from pathlib import Path

import numpy
import pytest
import torch
from PIL import Image

from oni.recipes.data import folder_index
from oni.recipes.data.batches import Unreadable
from oni.recipes.data.datasets import load_dataset
from oni.recipes.data.decode import CannotDecode, centre_box, decode, random_box
from oni.recipes.data.folder_index import Files, Index, load_index
from oni.recipes.data.image_folder import load
from oni.recipes.data.tiny_folder import write_folder
from oni.recipes.run_files.config import Config
from oni.recipes.training.parts import split

CPU = torch.device("cpu")
GENERATOR = numpy.random.default_rng(0)
PHOTO = Image.fromarray(GENERATOR.integers(0, 256, (6, 8, 3), dtype=numpy.uint8)).resize((400, 300))


def as_file(image, kind, **options):
    content = io.BytesIO()
    image.save(content, kind, **options)
    return content.getvalue()


def make_old(folder):
    """As if the last change were long ago, so that the cache may rely on it."""
    for place in [folder, *folder.rglob("*")]:
        if place.is_dir():
            os.utime(place, (1e9, 1e9))


@pytest.fixture
def folder(tmp_path):
    write_folder(tmp_path / "images")
    make_old(tmp_path / "images")
    return tmp_path / "images"


# The search.


def test_the_index(folder, tmp_path):
    nested = folder / "train" / "class-3" / "images"
    nested.mkdir()
    (nested / "deep.JPEG").write_bytes(as_file(PHOTO, "JPEG"))
    (folder / "train" / ".hidden").mkdir()
    (folder / "train" / "class-0" / "notes.txt").write_text("no image")
    index, sha256 = load_index(folder, tmp_path / "cache")
    assert index.classes == tuple(f"class-{number}" for number in range(8))
    assert (len(index.train), len(index.val)) == (81, 32)
    paths = [index.train.path(number) for number in range(81)]
    assert paths == sorted(paths)
    assert "train/class-3/images/deep.JPEG" in paths
    assert index.train.labels.tolist() == [int(path.split("/")[1].removeprefix("class-")) for path in paths]
    assert index.train.sizes.tolist() == [(folder / path).stat().st_size for path in paths]
    assert sha256 == index.sha256


def test_the_cache_is_used_until_the_folder_changes(folder, tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    first, sha256 = load_index(folder, cache)
    searched = []
    build = folder_index.build_index
    monkeypatch.setattr(folder_index, "build_index", lambda *given: searched.append(given) or build(*given))
    again, same = load_index(folder, cache)
    assert not searched
    assert (again.classes, same) == (first.classes, sha256)
    assert [again.val.path(number) for number in range(32)] == [first.val.path(number) for number in range(32)]
    # A file more, and then the same time as before within the granularity of the clock.
    (folder / "val" / "class-2" / "9.png").write_bytes(as_file(PHOTO, "PNG"))
    index, changed = load_index(folder, cache)
    assert (len(searched), len(index.val), changed != sha256) == (1, 33, True)
    load_index(folder, cache)
    assert len(searched) == 2, "changed a moment ago: another change might not show"
    make_old(folder)
    load_index(folder, cache)
    load_index(folder, cache)
    assert len(searched) == 3
    # A damaged cache is made again, and one that can't be written is not needed.
    (file,) = cache.iterdir()
    content = bytearray(file.read_bytes())
    content[-3] ^= 1
    file.write_bytes(content)
    assert load_index(folder, cache)[1] == changed
    assert len(searched) == 4
    file.write_bytes(b"\x93NUMPY\x01\x00")
    assert load_index(folder, cache)[1] == changed
    assert load_index(folder, folder / "train" / "class-0" / "0.png")[1] == changed
    # The same images elsewhere are the same data.
    folder.rename(tmp_path / "moved")
    assert load_index(tmp_path / "moved", cache)[1] == changed


def test_the_index_of_imagenet_loads_in_two_seconds(tmp_path):
    count = 1_281_167
    root = tmp_path / "images"
    (root / "train").mkdir(parents=True)
    numbers = numpy.arange(count)
    names = numpy.frombuffer(b"train/n01440764/n01440764_0000.JPEG", numpy.uint8)
    files = Files(
        numpy.tile(names, count), (numbers + 1) * len(names), (numbers % 1000).astype(numpy.int32), numbers * 1000
    )
    few = Files(files.names[: 2 * len(names)], *(array[:2] for array in files.arrays[1:]))
    index = Index(tuple(map(str, range(1000))), files, few)
    key = os.fsencode(os.path.realpath(root))
    header = {
        "magic": folder_index.MAGIC, "root": os.fsdecode(key), "built": time.time_ns() + 10**10,
        "sha256": index.sha256, "changed": [("train", (root / "train").stat().st_mtime_ns)] * 2000,
    }  # fmt: skip
    path = tmp_path / f"images-{hashlib.sha256(key).hexdigest()[:16]}.index"
    path.write_bytes(folder_index.dump(header, index))
    before = time.process_time()
    loaded, sha256 = load_index(root, tmp_path)
    assert time.process_time() - before < 2
    assert (len(loaded.train), sha256) == (count, header["sha256"])


def test_links(folder, tmp_path):
    (folder / "train" / "class-0" / "loop").symlink_to(folder / "train" / "class-0")
    (folder / "train" / "class-1" / "up").symlink_to(folder / "train")
    (folder / "train" / "class-2" / "gone.jpg").symlink_to(tmp_path / "nowhere")
    os.mkfifo(folder / "train" / "class-2" / "pipe.png")
    (folder / "train" / "class-7" / "10.png").symlink_to(folder / "val" / "class-7" / "0.png")
    data = load(folder, size=8, resize=8, unreadable="skip", cache=tmp_path)
    # class-1/up holds every class once, itself among them: 10 of its own and the 70 + 3 of the others.
    labels = torch.from_numpy(data.train.files.labels).bincount().tolist()
    assert labels == [10, 83, 12, 10, 10, 10, 10, 11]
    samples = data.train.read(torch.arange(len(data.train)))
    assert sorted(message.rpartition("/")[2] for message in samples.unread.values()) == [
        "gone.jpg: not a file", "gone.jpg: not a file", "pipe.png: not a file", "pipe.png: not a file",
    ]  # fmt: skip


def test_what_is_no_folder_of_images(folder, tmp_path):
    (folder / "val" / "new\x1b[2J").mkdir()
    with pytest.raises(ValueError, match=r"has the class new\\x1b\[2J, missing from .*train"):
        load(folder, cache=tmp_path)
    (folder / "val" / "new\x1b[2J").rename(folder / "train" / "new\x1b[2J")
    with pytest.raises(FileNotFoundError, match=r"new\\x1b\[2J: no images \(.jpg, .jpeg or .png\)"):
        load(folder, cache=tmp_path)
    (folder / "train" / "new\x1b[2J" / "1.png").write_bytes(as_file(PHOTO, "PNG"))
    assert load(folder, cache=tmp_path).classes[-1] == "new\\x1b[2J"
    with pytest.raises(FileNotFoundError, match=r"contains train/CLASS/\*.jpg"):
        load(tmp_path, cache=tmp_path)
    with pytest.raises(FileNotFoundError, match="pass one as --data DIR"):
        load_dataset("imagenet")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"size": 0}, "data_options.size must be a whole number of at least 1, got 0"),
        ({"resize": 1.5}, "data_options.resize must be a whole number"),
        ({"size": 300}, "data_options.size=300 must not be larger than data_options.resize=256"),
        ({"unreadable": "ignore"}, "data_options.unreadable must be one of error, skip, got 'ignore'"),
    ],
)
def test_options(options, complaint, tmp_path):
    with pytest.raises(ValueError, match=complaint):
        load_dataset("imagenet", tmp_path, options=options)


# Decoding.


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_the_centre_is_that_of_resize_and_crop(kind):
    content = as_file(PHOTO, kind, **({"quality": 95} if kind == "JPEG" else {}))
    with Image.open(io.BytesIO(content)) as image:
        small = image.resize((341, 256), Image.Resampling.BILINEAR).crop((58, 16, 58 + 224, 16 + 224))
    difference = numpy.abs(numpy.asarray(small).astype(int) - decode(content, 224, 256))
    # Both round to whole numbers between the two directions, at other places.
    assert difference.max() <= 1


def test_large_photographs_are_decoded_small():
    large = PHOTO.resize((1600, 1200))
    content, exact = as_file(large, "JPEG", quality=95), as_file(large, "PNG", compress_level=0)
    expected = decode(exact, 224, 256).astype(int)
    # JPEG's loss, and a mean over 4 x 4 pixels instead of Pillow's triangle: smooth, so a few of 255.
    assert numpy.abs(decode(content, 224, 256) - expected).max() < 6
    key = (0, 0, 1)
    random = decode(exact, 224, 256, key).astype(int)
    assert numpy.abs(decode(content, 224, 256, key) - random).max() < 6
    assert numpy.abs(random - expected).max() > 20


def modes():
    colours = PHOTO.resize((32, 32))
    rotated = Image.Exif()
    rotated[0x0112] = 6
    grey = numpy.asarray(colours.convert("L")).astype(numpy.uint16)
    yield "grey", as_file(colours.convert("L"), "PNG"), colours.convert("L")
    yield "bit", as_file(colours.convert("1"), "PNG"), colours.convert("1")
    yield "palette", as_file(colours.convert("P"), "PNG"), colours.convert("P")
    yield "palette, transparent", as_file(colours.convert("P"), "PNG", transparency=b"\x00\x10"), colours.convert("P")
    yield "alpha", as_file(Image.merge("RGBA", [*colours.split(), Image.new("L", (32, 32), 9)]), "PNG"), colours
    yield "grey and alpha", as_file(colours.convert("LA"), "PNG"), colours.convert("L")
    yield "CMYK", as_file(colours.convert("CMYK"), "JPEG", quality=100), colours.convert("CMYK")
    yield "16 bits", as_file(Image.fromarray(grey * 256 + 77), "PNG"), colours.convert("L")
    yield "rotated by its camera", as_file(colours, "PNG", exif=rotated), colours


@pytest.mark.parametrize(("name", "content", "expected"), list(modes()), ids=[name for name, _, _ in modes()])
def test_modes(name, content, expected):
    out = decode(content, 32, 32).astype(int)
    # JPEG loses a little even at its best quality.
    assert numpy.abs(out - numpy.asarray(expected.convert("RGB"))).max() <= (8 if name == "CMYK" else 0)


def png_header(width, height):
    """A PNG that claims to be that large."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(b"\0" * 100)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


HOSTILE = {
    "empty": (b"", "neither JPEG nor PNG"),
    "text": (b"hello", "neither JPEG nor PNG"),
    "postscript": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "neither JPEG nor PNG"),
    "gif": (as_file(PHOTO, "GIF"), "neither JPEG nor PNG"),
    "truncated jpeg": (as_file(PHOTO, "JPEG")[:2000], "truncated"),
    "truncated png": (as_file(PHOTO, "PNG")[:-2000], "truncated"),
    "bomb": (png_header(10_000, 10_000), "10000 x 10000 pixels, more than the limit of 89,478,485"),
    "larger bomb": (png_header(2**31 - 1, 2**31 - 1), "more than twice the limit of 89,478,485 pixels"),
    "nothing in it": (png_header(64, 64), "truncated|broken|not enough"),
    "zero": (png_header(0, 5), "neither JPEG nor PNG|zero|Exception|Error"),
}


@pytest.mark.parametrize(("content", "complaint"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_files(content, complaint):
    with pytest.raises(CannotDecode, match=complaint):
        decode(content, 32, 32)


# Crops.


def test_random_crops_are_those_of_random_resized_crop():
    width, height = 500, 375
    boxes = numpy.array([random_box(width, height, 0, 0, index) for index in range(20_000)])
    left, top, right, bottom = boxes.T
    assert left.min() >= 0
    assert top.min() >= 0
    assert right.max() <= width
    assert bottom.max() <= height
    area = (right - left) * (bottom - top) / (width * height)
    ratio = (right - left) / (bottom - top)
    # Sides are rounded to whole pixels.
    assert 0.079 < area.min() < 0.09
    assert 0.74 < ratio.min() < ratio.max() < 1.35
    # Without the attempts that do not fit, torchvision's sampler run 200,000 times gives these means; five standard
    # errors of 20,000 draws are 0.01 and 0.007.
    fitting = rejection_means(width, height)
    assert abs(area.mean() - fitting[0]) < 0.01
    assert abs(numpy.log(ratio).mean() - fitting[1]) < 0.007
    centre = (left + right) / 2 / width
    assert abs(centre.mean() - 0.5) < 0.01
    # A function of each part of the key.
    assert len({random_box(width, height, *key) for key in ((0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1))}) == 4


def rejection_means(width, height):
    """Means of area and log ratio of RandomResizedCrop's proposals that fit."""
    generator = numpy.random.default_rng(1)
    area = generator.uniform(0.08, 1, 200_000)
    ratio = numpy.exp(generator.uniform(numpy.log(3 / 4), numpy.log(4 / 3), 200_000))
    target = area * width * height
    fits = (numpy.sqrt(target * ratio) <= width) & (numpy.sqrt(target / ratio) <= height)
    return area[fits].mean(), numpy.log(ratio[fits]).mean()


@pytest.mark.parametrize("shape", [(1, 1), (1, 5000), (5000, 1), (2, 3)])
def test_crops_of_extreme_shapes(shape):
    for index in range(50):
        left, top, right, bottom = random_box(*shape, 0, 0, index)
        assert 0 <= left < right <= shape[0]
        assert 0 <= top < bottom <= shape[1]
    left, top, right, bottom = centre_box(*shape, 256, 224)
    assert 0 <= left < right <= shape[0]
    assert 0 <= top < bottom <= shape[1]
    content = as_file(PHOTO.resize(shape), "PNG")
    assert decode(content, 224, 256).shape == decode(content, 224, 256, (0, 0, 0)).shape == (224, 224, 3)


# Batches.

CONFIG = Config(
    data="generated-folder",
    network_options={"depth": 1, "width": 8, "inputs": 3072},
    method="plain",
    batch_size=16,
    epochs=1,
    drops=(),
    validation=16,
    augment=("resized-crop", "flip"),
)


def test_batches_do_not_depend_on_workers_or_processes():
    parts = {workers: split(load_dataset("generated-folder", workers=workers), CONFIG, CPU, torch.float32)
             for workers in (0, 2)}  # fmt: skip
    before = torch.get_rng_state()
    order = torch.randperm(64, generator=torch.Generator().manual_seed(1))
    alone = list(parts[0].train.batches(order, 16, epoch=3))
    others = list(parts[2].train.batches(order, 16, epoch=3))
    shares = [list(parts[0].train.batches(order, 16, rank=rank, world=2, epoch=3)) for rank in (0, 1)]
    for (images, labels), (other, _), *pieces in zip(alone, others, *shares, strict=True):
        assert torch.equal(images, other)
        assert torch.equal(images, torch.cat([piece[0] for piece in pieces]))
        assert torch.equal(labels, torch.cat([piece[1] for piece in pieces]))
    later = list(parts[2].train.batches(order, 16, epoch=3, first=2))
    assert all(torch.equal(a[0], b[0]) for a, b in zip(later, alone[2:], strict=True))
    other_epoch = next(parts[0].train.batches(order, 16, epoch=4))[0]
    assert not torch.equal(other_epoch, alone[0][0])
    # Neither test nor held-out samples are cropped at random.
    held_out = parts[0].validation
    expected = held_out.batch(torch.arange(16))[0]
    assert torch.equal(next(held_out.batches(torch.arange(16), 16, epoch=3))[0], expected)
    assert torch.equal(torch.get_rng_state(), before), "reading must not draw from training's generator"


def spoil(folder):
    """Two images of train and one of val that can't be read."""
    spoilt = [folder / "train" / "class-0" / "3.png", folder / "train" / "class-5" / "0.png"]
    spoilt.append(folder / "val" / "class-7" / "1.png")
    for path in spoilt:
        path.write_bytes(path.read_bytes()[:500])
    return spoilt


@pytest.mark.parametrize("workers", [0, 1])
def test_unreadable_images(folder, workers, tmp_path):
    spoilt = spoil(folder)
    options = {"size": 8, "resize": 8, "cache": tmp_path, "workers": workers}
    config = replace(CONFIG, validation=0)
    part = split(load(folder, **options), config, CPU, torch.float32).train
    with pytest.raises(Unreadable, match=r"class-0/3.png: .*truncated.*; repair it, or pass data_options"):
        list(part.batches(torch.arange(16), 16))
    part = split(load(folder, unreadable="skip", **options), config, CPU, torch.float32).train
    batches = list(part.batches(torch.arange(80), 16, epoch=0))
    assert [len(images) for images, _ in batches] == [15, 16, 16, 15, 16]
    assert [len(labels) for _, labels in batches] == [15, 16, 16, 15, 16]
    assert [message.partition(": ")[0] for message in part.unread] == list(map(str, spoilt[:2]))
    # The others are augmented as if nothing were missing.
    whole = split(load_dataset("generated-folder", options={"size": 8, "resize": 8}), config, CPU, torch.float32)
    images, _ = next(whole.train.batches(torch.arange(16), 16, epoch=0))
    assert torch.equal(images[[place for place in range(16) if place != 3]], batches[0][0])


def test_a_file_that_changed_since(folder, tmp_path):
    source = load(folder, size=8, resize=8, cache=tmp_path).train
    path = folder / source.files.path(4)
    path.write_bytes(path.read_bytes() + b"more")
    assert "has changed its size since the folder was indexed" in source.read(torch.tensor([4])).unread[0]
    path.unlink()
    assert source.read(torch.tensor([4])).unread[0] == f"{path}: No such file or directory"


def test_memory_does_not_grow():
    data = load_dataset("generated-folder", options={"size": 64, "resize": 64})
    part = split(data, CONFIG, CPU, torch.float32).train
    statm = Path("/proc/self/statm")
    if not statm.exists():
        pytest.skip("needs /proc")

    def read(times):
        for epoch in range(times):
            for _ in part.batches(torch.arange(64), 16, epoch=epoch):
                pass
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    before = read(5)
    # 1,280 images of 12 kB would be 16 MB, and four times that as numbers.
    assert read(20) - before < 4 << 20


def test_a_memory_of_images_takes_no_resized_crop():
    config = replace(CONFIG, data="fashion-mnist-sample", data_options={})
    with pytest.raises(ValueError, match="data=fashion-mnist-sample is in memory; use crop"):
        split(load_dataset("fashion-mnist-sample"), config, CPU, torch.float32)
