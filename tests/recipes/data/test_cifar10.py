"""CIFAR-10 in both official layouts, and files that are not what they should be."""

import hashlib
import io
import os
import pickle
import tarfile

import numpy
import pytest
import torch

from oni.cli import main
from oni.recipes.data import cifar10

COUNT = 4
NAMES = (*cifar10.TRAIN, cifar10.TEST)


def make_batch(seed):
    """Pixels and labels of one file."""
    generator = numpy.random.default_rng(seed)
    pixels = generator.integers(0, 256, (COUNT, cifar10.PIXELS), dtype=numpy.uint8)
    return pixels, [int(label) for label in generator.integers(0, 10, COUNT)]


def write_binary(folder):
    target = folder / cifar10.BINARY
    target.mkdir(parents=True)
    for seed, name in enumerate(NAMES):
        pixels, labels = make_batch(seed)
        records = numpy.concatenate([numpy.array(labels, numpy.uint8)[:, None], pixels], 1)
        (target / f"{name}.bin").write_bytes(records.tobytes())
    return target


def write_pickles(folder, protocol=2):
    target = folder / cifar10.PYTHON
    target.mkdir(parents=True)
    for seed, name in enumerate(NAMES):
        pixels, labels = make_batch(seed)
        batch = {b"data": pixels, b"labels": labels, b"batch_label": b"a batch", b"filenames": [b"x.png"] * COUNT}
        (target / name).write_bytes(pickle.dumps(batch, protocol=protocol))
    return target


WRITERS = {"binary": write_binary, "python": write_pickles}


@pytest.mark.parametrize("layout", WRITERS)
@pytest.mark.parametrize("inside", [True, False], ids=["the folder itself", "the folder above"])
def test_layouts(layout, inside, tmp_path):
    target = WRITERS[layout](tmp_path)
    data = cifar10.load(target if inside else tmp_path)
    assert data.train_images.shape == (5 * COUNT, 3, 32, 32)
    assert data.test_images.shape == (COUNT, 3, 32, 32)
    assert data.train_images.dtype == data.train_labels.dtype == torch.uint8
    pixels, labels = make_batch(1)
    # The second file: planes of red, green and blue, rows from the top.
    assert data.train_images[COUNT + 2, 1, 3, 4] == pixels[2, 1024 + 3 * 32 + 4]
    assert data.train_labels[COUNT : 2 * COUNT].tolist() == labels


def test_both_layouts_hold_the_same(tmp_path):
    write_binary(tmp_path / "a")
    for protocol in (2, 4):
        write_pickles(tmp_path / f"b{protocol}", protocol)
        assert cifar10.load(tmp_path / "a").sha256 == cifar10.load(tmp_path / f"b{protocol}").sha256


class Attack:
    def __reduce__(self):
        return os.mkdir, (b"executed",)


HOSTILE = {
    "a call": (pickle.dumps(Attack(), protocol=2), r"refers to (posix|nt)\.mkdir, .*nothing was executed"),
    "eval": (b"cbuiltins\neval\n(V1\ntR.", r"refers to (__builtin__|builtins)\.eval"),
    "numpy's loader": (b"cnumpy\nload\n(Vx\ntR.", r"refers to numpy\.load"),
    "objects": (pickle.dumps({b"data": numpy.array([None]), b"labels": [0]}, 2), "expected bytes"),
    "outside": (b"Pid\n.", "refers to objects outside"),
    "truncated": (pickle.dumps({b"data": numpy.zeros((1, 3072), numpy.uint8), b"labels": [0]}, 2)[:-40], "truncated"),
    "empty": (b"", "truncated or damaged"),
    "text": (b"hello", "truncated or damaged"),
    "a list": (pickle.dumps([1, 2], 2), "expected a dict of data"),
    "floats as labels": (pickle.dumps({b"data": make_batch(0)[0], b"labels": [0.5] * COUNT}, 2), "expected a dict"),
    "too few labels": (pickle.dumps({b"data": make_batch(0)[0], b"labels": [1]}, 2), "expected a dict"),
    "a label above 9": (pickle.dumps({b"data": make_batch(0)[0], b"labels": [1, 2, 3, 10]}, 2), "label 10, expected 0"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_pickles(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    content, message = HOSTILE[name]
    target = write_pickles(tmp_path)
    (target / "data_batch_3").write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        cifar10.load(tmp_path)
    assert str(target / "data_batch_3") in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda content: content[:-1], "expected a multiple of 3,073"),
        (lambda content: b"", "expected a multiple of 3,073"),
        (lambda content: bytes([10]) + content[1:], "label 10, expected 0 to 9"),
    ],
    ids=["truncated", "empty", "label above 9"],
)
def test_damaged_binary_files(damage, message, tmp_path):
    path = write_binary(tmp_path) / "data_batch_2.bin"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=message) as caught:
        cifar10.load(tmp_path)
    assert str(path) in str(caught.value)


def test_missing_files(tmp_path):
    with pytest.raises(FileNotFoundError, match="no CIFAR-10 here"):
        cifar10.load(tmp_path)
    target = write_binary(tmp_path)
    (target / "data_batch_4.bin").unlink()
    with pytest.raises(FileNotFoundError, match=r"data_batch_4\.bin: missing"):
        cifar10.load(tmp_path)


def make_archive(folder, extra=None):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for path in sorted(folder.iterdir()):
            archive.add(path, f"{cifar10.BINARY}/{path.name}")
        if extra:
            archive.addfile(tarfile.TarInfo(extra), io.BytesIO())
    return stream.getvalue()


def test_download(tmp_path, monkeypatch):
    made = write_binary(tmp_path / "made")
    archive = make_archive(made, extra="../../outside.bin")
    monkeypatch.setattr(cifar10, "fetch", lambda address: archive)
    target = tmp_path / "target"
    with pytest.raises(ValueError, match=r"data_batch_1\.bin has the MD5 \w+, expected 5dd7e06a"):
        cifar10.download(target)
    assert not target.exists()
    checksums = {path.name: hashlib.md5(path.read_bytes()).hexdigest() for path in made.iterdir()}
    monkeypatch.setattr(cifar10, "CHECKSUMS", checksums)
    cifar10.download(target)
    assert cifar10.load(target).sha256 == cifar10.load(made).sha256
    assert {path.name for path in target.rglob("*") if path.is_file()} == set(checksums)
    monkeypatch.setattr(cifar10, "fetch", lambda address: pytest.fail("it is there already"))
    cifar10.download(target)
    monkeypatch.setattr(cifar10, "fetch", lambda address: b"<html>")
    with pytest.raises(ValueError, match="is not an archive"):
        cifar10.download(tmp_path / "elsewhere")


def test_through_the_command(tmp_path, capsys):
    write_binary(tmp_path / "data")
    config = tmp_path / "config.yaml"
    config.write_text(
        "data: cifar10\nnetwork: vgg\nmethod: oni\nepochs: 1\nbatch_size: 4\naugment: [flip, crop]\n"
        "network_options: {g: 1, k: 1}\n"
    )
    arguments = ["train", str(config), "--data", str(tmp_path / "data"), "--out", str(tmp_path / "out")]
    assert main(arguments) == 0
    # Not the official images, so the run is told apart and says so.
    assert "warning" in capsys.readouterr().err
    (run,) = (tmp_path / "out").glob("vgg-oni-*")
    assert "-data-" in run.name
