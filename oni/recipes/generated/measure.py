"""How far generated images are from real ones: measured once for each generator, and kept in its run's folder."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from oni.files import make_folder, write_atomically
from oni.recipes.data.batches import shuffle_indices
from oni.recipes.data.images import Dataset, InMemory
from oni.recipes.generated.samples import TrainedGenerator
from oni.recipes.metrics.extractors import Extractor
from oni.recipes.metrics.frechet import TooFewSamples, frechet_distance
from oni.recipes.metrics.inception_score import class_score
from oni.recipes.metrics.kernel import kernel_distance
from oni.recipes.run_files.run_folder import RunFolder, lock_folder
from oni.recipes.run_files.trained import TrainedRun
from oni.recipes.tasks.gan import resize

__all__ = ["FILE", "NAMES", "Sampling", "measure_run", "read_measured", "real_features"]

FILE = "distances.json"
"""In a run's folder: every measurement of its generator."""
FEATURES = "features"
"""The folder with the features of real images, next to the runs."""
NAMES = {
    "inception": {"frechet": "fid", "kernel": "kid", "kernel_error": "kid_error", "score": "inception_score"},
    "classifier": {
        "frechet": "classifier_distance",
        "kernel": "classifier_kernel_distance",
        "kernel_error": "classifier_kernel_error",
        "score": "class_score",
    },
}
"""What the numbers are called: only those of the Inception network are FID, KID and IS."""
ImageCounter = Callable[[str, int, int], None]
"""Called with the kind of images, how many are done, and how many there are."""


@dataclass(frozen=True)
class Sampling:
    """How a generator is measured; part of every reported number."""

    samples: int
    """Generated images."""
    real_samples: int
    """Test images; fewer if there are not so many."""
    mode: str = "eval"
    """Of the generator: with the running means of its batch normalisation, or (``"train"``) those of each batch."""
    seed: str = "measure"
    """Of z."""

    def for_data(self, dataset: Dataset) -> dict[str, Any]:
        """The same with as many real images as there are."""
        return {**asdict(self), "real_samples": min(self.real_samples, len(dataset.test))}


def measure_run(
    path: Path,
    dataset: Dataset,
    extractor: Extractor,
    sampling: Sampling,
    watch: ImageCounter | None = None,
    update: int | None = None,
) -> dict[str, Any]:
    """Measure the generator of a run, or read what was measured of the same weights in the same way.

    Args:
        path: the run's folder. Features of real images are kept next to it.
        dataset: of which the test images are compared with.
        extractor: where features come from.
        sampling: how many images, and how they are generated.
        watch: called with the progress.
        update: after how many updates the generator was kept, if not at the end.

    Returns:
        The numbers by name (see ``NAMES``), and what they are of: ``samples``, ``real_samples``, ``mode``, ``seed``,
        ``weights``, ``kind``, ``extractor``, ``extractor_sha256`` and ``preparation``.

    Raises:
        Busy: if another process has the run or the features of the real images.
        ValueError: if the generator's images are not finite.
    """
    trained = TrainedGenerator(path, update)
    folder = trained.run.folder
    identity = {
        **sampling.for_data(dataset),
        "update": update,
        "weights": trained.sha256,
        "kind": extractor.kind,
        "extractor": extractor.label,
        "extractor_sha256": extractor.sha256,
        "preparation": extractor.preparation,
    }
    if found := find_measured(folder, identity):
        return found[-1]
    real, _ = real_features(path.parent / FEATURES, dataset, extractor, identity["real_samples"], watch)
    with lock_folder(path, "another process is measuring this run"):
        images = trained.images(sampling.samples, sampling.seed, sampling.mode)
        features, logits = extract_all(extractor, images, "generated", watch)
        measured = {**identity, **compare(extractor.kind, real, features, logits)}
        record = folder.read(FILE) or {"format": 1, "measured": []}
        others = [other for other in record["measured"] if not is_same(other, identity)]
        folder.write_json(FILE, {**record, "measured": [*others, measured]})
    return measured


def read_measured(
    path: Path, dataset: Dataset, sampling: Sampling, update: int | None = None
) -> dict[str, dict[str, Any]]:
    """What was measured of a run's generator in this way, by the kind of extractor; the newest of each."""
    run = TrainedRun(path)
    identity = {**sampling.for_data(dataset), "update": update}
    measured = find_measured(run.folder, identity)
    if measured and run.folder.checkpoints():
        weights = TrainedGenerator(path, update).sha256
        measured = [other for other in measured if other.get("weights") == weights]
    return {other["kind"]: other for other in measured if other.get("kind") in NAMES}


def find_measured(folder: RunFolder, identity: dict[str, Any]) -> list[dict[str, Any]]:
    """Every measurement with these properties."""
    record = folder.read(FILE) or {"measured": []}
    return [other for other in record["measured"] if is_same(other, identity)]


def is_same(measured: dict[str, Any], identity: dict[str, Any]) -> bool:
    return all(measured.get(name) == value for name, value in identity.items())


def compare(kind: str, real: Tensor, generated: Tensor, logits: Tensor | None) -> dict[str, Any]:
    """All distances between two sets of features, and the score where there are class scores.

    ``biased`` says that there are fewer samples than features, which makes the Frechet distance too large.
    """
    names = NAMES[kind]
    with warnings.catch_warnings(record=True) as caught:
        # Recorded beside the number, which is what is shown.
        warnings.simplefilter("always", TooFewSamples)
        frechet = frechet_distance(real, generated)
    kernel, error = kernel_distance(real, generated)
    too_few = any(issubclass(warning.category, TooFewSamples) for warning in caught)
    values = {names["frechet"]: frechet, names["kernel"]: kernel, names["kernel_error"]: error, "biased": too_few}
    if logits is not None:
        score, deviation = class_score(logits)
        values |= {names["score"]: score, f"{names['score']}_deviation": deviation}
    return values


def real_features(
    folder: Path, dataset: Dataset, extractor: Extractor, count: int, watch: ImageCounter | None = None
) -> tuple[Tensor, Tensor | None]:
    """Features (and class scores) of the first ``count`` test images of one shuffle, computed once and kept."""
    path = folder / f"real-{dataset.sha256[:12]}-{extractor.kind}-{extractor.sha256[:12]}-{count}.pt"
    if not path.exists():
        make_folder(folder)
        with lock_folder(folder, "another process computes the features of real images"):
            if not path.exists():
                chosen = shuffle_indices(len(dataset.test), 0)[:count]
                features, logits = extract_all(extractor, read_bytes(dataset, chosen), "real", watch)
                content = io.BytesIO()
                torch.save({"features": features, "logits": logits}, content)
                write_atomically(path, content.getvalue())
    state = torch.load(path, map_location="cpu", weights_only=True)
    return state["features"], state["logits"]


def read_bytes(dataset: Dataset, chosen: Tensor) -> Tensor:
    """Test images as bytes, 32 x 32."""
    test = dataset.test
    images = test.images[chosen] if isinstance(test, InMemory) else test.read(chosen)[0]
    return resize(images, black=0)


def extract_all(
    extractor: Extractor, images: Tensor, what: str, watch: ImageCounter | None
) -> tuple[Tensor, Tensor | None]:
    """Features and class scores of all images, in batches."""
    pieces = []
    for start in range(0, len(images), extractor.batch):
        pieces.append(extractor.extract(images[start : start + extractor.batch]))
        if watch:
            watch(what, min(start + extractor.batch, len(images)), len(images))
    features = torch.cat([features for features, _ in pieces])
    logits = [scores for _, scores in pieces if scores is not None]
    return features, torch.cat(logits) if logits else None
