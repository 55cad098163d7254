"""Fashion-MNIST: the embedded sample, and files that are not what they should be."""

import gzip
import shutil
import struct

import pytest
import torch

from oni.recipes.data import fashion_mnist
from oni.recipes.data.idx import read_idx, write_idx

FILES = [f"{name}.gz" for name in fashion_mnist.CHECKSUMS]


def test_the_sample_is_balanced():
    data = fashion_mnist.load("sample")
    assert data.train_images.shape == (10_000, 28, 28)
    assert data.test_images.shape == (2_000, 28, 28)
    assert data.train_images.dtype == torch.uint8
    assert data.train_labels.bincount().tolist() == [1000] * 10
    assert data.test_labels.bincount().tolist() == [200] * 10
    # Real pictures: the mean grey value of the full set is 72.94.
    assert float(data.train_images.float().mean()) == pytest.approx(72.94, abs=1)
    overlap = {bytes(image.flatten().tolist()) for image in data.test_images}
    assert not any(bytes(image.flatten().tolist()) in overlap for image in data.train_images[:2000])


def test_the_sample_fits_and_carries_its_notice():
    files = list(fashion_mnist.SAMPLE.iterdir())
    assert sum(file.stat().st_size for file in files) < 6e6
    assert "Zalando" in (fashion_mnist.SAMPLE / "NOTICE").read_text()


@pytest.fixture
def folder(tmp_path):
    for name in FILES:
        shutil.copy(fashion_mnist.SAMPLE / name, tmp_path)
    return tmp_path


@pytest.mark.parametrize("inside", ["", "fashion-mnist", "FashionMNIST/raw"])
@pytest.mark.parametrize("raw", [True, False])
def test_folders(folder, tmp_path_factory, inside, raw):
    target = tmp_path_factory.mktemp("data")
    (target / inside).mkdir(parents=True, exist_ok=True)
    for name in FILES:
        content = (folder / name).read_bytes()
        if raw:
            (target / inside / name.removesuffix(".gz")).write_bytes(gzip.decompress(content))
        else:
            (target / inside / name).write_bytes(content)
    data = fashion_mnist.load(target)
    assert torch.equal(data.train_labels, fashion_mnist.load("sample").train_labels)


def damage_magic(path):
    path.write_bytes(gzip.compress(b"\0\0\x0b\x03" + gzip.decompress(path.read_bytes())[4:], compresslevel=1))


def damage_truncated(path):
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes())[:-100], compresslevel=1))


def damage_longer(path):
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()) + b"x", compresslevel=1))


def damage_gzip(path):
    path.write_bytes(path.read_bytes()[:-1000])


def damage_not_gzip(path):
    path.write_bytes(b"<html>not found</html>")


def damage_header(path):
    path.write_bytes(gzip.compress(b"\0\0"))


def damage_size(path):
    path.write_bytes(gzip.compress(struct.pack(">4I", 0x0803, 10_000, 28, 29) + b"x"))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (damage_magic, "magic number 0x0b03, expected 0x0803"),
        (damage_truncated, "promises 7840000 bytes of data, but it has 7839900"),
        (damage_longer, "it has more"),
        (damage_gzip, "damaged or cut off"),
        (damage_not_gzip, "damaged or cut off"),
        (damage_header, "truncated within its header"),
        (damage_size, r"dimensions \(10000, 28, 29\), expected \(10000, 28, 28\)"),
    ],
)
def test_damaged_files_are_named(folder, damage, words):
    damage(folder / "train-images-idx3-ubyte.gz")
    with pytest.raises(ValueError, match=f"train-images-idx3-ubyte.gz: .*{words}"):
        fashion_mnist.load(folder)


def test_wrong_label_count_and_values(folder):
    write_idx(folder / "train-labels-idx1-ubyte.gz", torch.zeros(9_999, dtype=torch.uint8))
    with pytest.raises(ValueError, match=r"train-images.*expected \(9999, 28, 28\)"):
        fashion_mnist.load(folder)
    write_idx(folder / "train-labels-idx1-ubyte.gz", torch.full((10_000,), 10, dtype=torch.uint8))
    with pytest.raises(ValueError, match="labels must be 0 to 9"):
        fashion_mnist.load(folder)


def test_missing(folder, tmp_path_factory):
    empty = tmp_path_factory.mktemp("empty")
    with pytest.raises(FileNotFoundError, match="no Fashion-MNIST here"):
        fashion_mnist.load(empty)
    (folder / "t10k-images-idx3-ubyte.gz").unlink()
    with pytest.raises(FileNotFoundError, match="t10k-images-idx3-ubyte: missing"):
        fashion_mnist.load(folder)


def test_a_claim_of_too_much_is_not_believed(tmp_path):
    path = tmp_path / "huge"
    path.write_bytes(struct.pack(">2I", 0x0801, 0xFFFFFFFF) + b"x")
    with pytest.raises(ValueError, match="claims 4294967295 bytes"):
        read_idx(path, (None,))


def test_download_checks_what_it_gets(tmp_path, monkeypatch):
    class Answer:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            return False

        def read(self, _):
            return gzip.compress(b"something else")

    monkeypatch.setattr(fashion_mnist.urllib.request, "urlopen", lambda *_, **__: Answer())
    with pytest.raises(ValueError, match="wrong checksum"):
        fashion_mnist.download(tmp_path / "new")
    assert list((tmp_path / "new").iterdir()) == []
