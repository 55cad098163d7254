"""How fast a folder of images is read, and where the time goes: python benchmarks/folders.py DIR [size of an index]."""

import cProfile
import os
import pstats
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch

from oni.recipes.data.augment import RESIZED_CROP
from oni.recipes.data.batches import Part, shuffle_indices
from oni.recipes.data.image_folder import ImageSource, load

SIZES = ((64, 64), (224, 256))
"""Side of the images, and what the shorter side becomes for testing."""
ROUNDS = 3
IMAGES = 2048
BATCH = 64
PILLOW = ("ImagingDecoder", "_imaging", "ImagingCore", "PIL")
CLASSES = 1000


def read_some(source: ImageSource, images: int = IMAGES) -> float:
    """Images a second, through the loader that training uses."""
    part = Part(source, source.mean.view(3, 1, 1), augmentations=(RESIZED_CROP, "flip"))
    order = shuffle_indices(len(source), 0)[:images]
    before = time.perf_counter()
    count = sum(len(labels) for _, labels in part.batches(order, BATCH, epoch=0))
    return count / (time.perf_counter() - before)


def show_throughput(folder: Path, size: int, resize: int) -> None:
    """With the process itself and with others that decode."""
    for workers in (0, 1, 2):
        source = load(folder, size=size, resize=resize, workers=workers).train
        speeds = [read_some(source) for _ in range(ROUNDS)]
        median = statistics.median(speeds)
        print(f"  {workers} workers: {median:5.0f} images a second ({min(speeds):.0f} - {max(speeds):.0f})")


def show_profile(folder: Path, size: int, resize: int) -> None:
    """Time of functions themselves, Pillow's together."""
    source = load(folder, size=size, resize=resize).train
    profile = cProfile.Profile()
    profile.runcall(read_some, source)
    groups: dict[str, float] = {}
    stats: dict[tuple[str, int, str], tuple[int, int, float, float, object]] = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    for (file, _, name), (_, _, own, _, _) in stats.items():
        if any(part in f"{file}{name}" for part in PILLOW):
            group = "Pillow: decode, resize"
        elif "BufferedReader" in name or "open" in name:
            group = "reading files"
        elif "oni" in Path(file).parts:
            group = "oni"
        else:
            group = "torch, numpy and Python"
        groups[group] = groups.get(group, 0.0) + own
    total = sum(groups.values())
    shares = (f"{name} {100 * own / total:.0f} %" for name, own in sorted(groups.items(), key=lambda item: -item[1]))
    print(f"  of the time (profiled): {', '.join(shares)}")


def show_index(images: int) -> None:
    """How long a folder of many files is searched, and how long its index takes to load."""
    with tempfile.TemporaryDirectory() as temporary:
        root, cache = Path(temporary, "images"), Path(temporary, "cache")
        for part in ("train", "val"):
            for label in range(CLASSES):
                folder = root / part / f"n{label:08d}"
                folder.mkdir(parents=True)
                count = images // CLASSES if part == "train" else 1
                for number in range(count):
                    os.close(os.open(folder / f"n{label:08d}_{number}.JPEG", os.O_CREAT | os.O_WRONLY))
        time.sleep(3)  # what changed just now is searched again
        for what in ("searched", "loaded", "loaded"):
            before = time.perf_counter()
            count = len(load(root, cache=cache).train)
            print(f"  index of {count:,} images: {what} in {time.perf_counter() - before:.2f} s")


if __name__ == "__main__":
    torch.set_num_threads(1)
    for size, resize in SIZES:
        print(f"{size} x {size}")
        show_throughput(Path(sys.argv[1]), size, resize)
        show_profile(Path(sys.argv[1]), size, resize)
    if len(sys.argv) > 2:
        show_index(int(sys.argv[2]))
