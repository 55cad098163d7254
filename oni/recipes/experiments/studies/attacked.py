"""A trained network with a certificate under attack: how many images change, and one of them to look at."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from oni.recipes.data.images import Dataset

__all__ = ["attack_network", "draw_attack"]

CLASSES = ("T-shirt", "trousers", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
OUTSIDE = 3.0
"""Times the certified radius: an attack that works finds something there."""
STEPS, RESTARTS = 50, 2
ENLARGED = 8


def attack_network(folder: Path, dataset: Dataset, count: int) -> dict[str, Any]:
    """Attack the first images that a run certifies, just inside their radius and at three times that radius.

    For the image with the median radius, the pixels are kept: the original, and the results of both attacks.
    """
    import torch

    from oni.diagnostics.certified import certified_radius
    from oni.recipes.attack import attack
    from oni.recipes.methods import plain
    from oni.recipes.run_files.trained import TrainedRun
    from oni.recipes.tasks.classification import build_network
    from oni.recipes.training.parts import split

    run = TrainedRun(folder)
    with torch.random.fork_rng():
        network = build_network(run.config)
    network.load_state_dict(run.models()["network"])
    network = plain(network).eval()
    part = split(dataset, run.config, torch.device("cpu"), torch.float32).test
    images, labels = part.batch(torch.arange(min(4 * count, len(part))))
    radii = certified_radius(network, images, labels)
    chosen = radii.nonzero()[:count, 0]
    images, labels, radii = images[chosen], labels[chosen], radii[chosen]
    generator = torch.Generator().manual_seed(run.config.seed)
    attacks = {
        name: attack(network, images, labels, times * radii, steps=STEPS, restarts=RESTARTS, generator=generator)
        for name, times in (("inside", 1.0), ("outside", OUTSIDE))
    }
    changed = attacks["outside"].fooled.nonzero()[:, 0]
    among = changed if len(changed) else torch.arange(len(images))
    shown = int(among[radii[among].argsort()[len(among) // 2]]) if len(among) else None
    counts = {name: int(result.fooled.sum()) for name, result in attacks.items()}
    if shown is None:
        return {"images": 0, **counts}

    def pixels(image: Any) -> list[int]:
        return ((image + part.mean).clamp(0, 1) * 255).round().int().flatten().tolist()

    with torch.no_grad():
        classes = {name: int(network(result.images[shown : shown + 1]).argmax()) for name, result in attacks.items()}
    versions = {"before": images, **{name: result.images for name, result in attacks.items()}}
    example = {
        "radius": float(radii[shown]),
        "label": int(labels[shown]),
        "classes": classes,
        "size": list(images.shape[-2:]),
        "pixels": {name: pixels(many[shown]) for name, many in versions.items()},
    }
    return {"images": len(images), **counts, "example": example}


def draw_attack(attacked: dict[str, Any]) -> dict[str, bytes]:
    """PNG files by their captions: the image, and what the attacks made of it."""
    from PIL import Image

    if "example" not in attacked:
        return {}
    example = attacked["example"]
    height, width = example["size"]

    def name(label: int) -> str:
        return CLASSES[label] if label < len(CLASSES) else f"class {label}"

    radius, label = example["radius"], name(example["label"])
    inside, outside = (name(example["classes"][where]) for where in ("inside", "outside"))
    captions = {
        "before": f"A test image, {label}: its class is certified within a radius of {radius:.2f}",
        "inside": f"The worst that {RESTARTS * STEPS} attacking steps find within {radius:.2f}: still {inside}",
        "outside": f"The same at {OUTSIDE:g} times the radius, {OUTSIDE * radius:.2f}: "
        f"{'still ' if outside == label else 'now '}{outside}",
    }
    drawn = {}
    for where, caption in captions.items():
        image = Image.frombytes("L", (width, height), bytes(example["pixels"][where]))
        file = io.BytesIO()
        image.resize((ENLARGED * width, ENLARGED * height), Image.Resampling.NEAREST).save(file, "PNG")
        drawn[caption] = file.getvalue()
    return drawn
