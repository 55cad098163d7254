"""Images from a generator that was trained, read from its run's folder."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from oni.files import check_writable, write_atomically
from oni.names import unknown_name
from oni.recipes.run_files.trained import TrainedRun, digest_weights
from oni.recipes.sheets import to_bytes, write_sheet
from oni.recipes.tasks.gan import fixed_noise, name_kept
from oni.recipes.tasks.gan_setup import build_gan

__all__ = ["MODES", "TrainedGenerator", "draw_sheet"]

MODES = ("eval", "train")
"""Of the generator's batch normalisation: with its running means, or with those of each batch."""
BATCH = 64
"""Images at once, over which a generator in training mode normalises, as in the authors' code."""
MOST = 10_000
"""Images on a sheet."""


class TrainedGenerator:
    """The generator of a run, or the moving average of it where there is one.

    Args:
        path: the run's folder.
        update: after how many updates it was kept, if not at the end.

    Raises:
        ValueError: if it is no run of a GAN, or has no weights.
    """

    def __init__(self, path: Path, update: int | None = None) -> None:
        self.run = TrainedRun(path)
        self.config = self.run.config
        if self.config.task != "gan":
            raise ValueError(
                f"{path}: a run of the task {self.config.task!r}, which has no generator; pass a run of the task gan"
            )
        name = "average" if self.config.task_options["ema"] else "generator"
        gan = build_gan(self.config)
        self.generator, self.latent = gan.generator, gan.latent
        state = self.run.models()[name] if update is None else read_kept(path, update)
        self.generator.load_state_dict(state)
        self.sha256 = digest_weights(state)
        self.dtype = next(self.generator.parameters()).dtype

    @torch.no_grad()
    def images(self, count: int, seed: int | str = "sheet", mode: str = "eval") -> Tensor:
        """So many images as bytes (count, channels, 32, 32).

        Args:
            count: how many.
            seed: of z; ``"sheet"`` are those of the sample sheets.
            mode: one of ``MODES``.

        Raises:
            ValueError: naming the images that hold NaN, if the generator diverged.
        """
        if mode not in MODES:
            raise ValueError(unknown_name("generator mode", mode, MODES))
        if count < 1:
            raise ValueError(f"the number of images must be at least 1, got {count}")
        self.generator.train(mode == "train")
        # Whole batches, so that the last images do not depend on how many there are.
        noise = fixed_noise(-(-count // BATCH) * BATCH, self.latent, seed).to(self.dtype)
        images = torch.cat([self.generator(z) for z in noise.split(BATCH)])[:count]
        return to_bytes(images.float().contiguous())


def read_kept(path: Path, update: int) -> dict[str, Tensor]:
    """The weights of a generator that was kept on the way."""
    file = path / name_kept(update)
    if not file.is_file():
        raise ValueError(f"{file}: no generator was saved after {update} updates; train with task_options.keep_every")
    return torch.load(file, map_location="cpu", weights_only=True)


def draw_sheet(
    run: Path, out: Path, count: int, seed: int | None = None, *, columns: int = 8, mode: str = "eval"
) -> Path:
    """``oni sample``: write a sheet of images by the generator of a run; return where it is."""
    if out.suffix.lower() != ".png":
        raise ValueError(f"--out {out}: a sheet is a PNG file; pass a name that ends in .png")
    if columns < 1:
        raise ValueError(f"--columns must be at least 1, got {columns}")
    if not 1 <= count <= MOST:
        raise ValueError(f"--number must be from 1 to {MOST:,}, got {count}")
    trained = TrainedGenerator(run)
    check_writable(out)
    images = trained.images(count, "sheet" if seed is None else seed, mode)
    return write_atomically(out, write_sheet(images, min(columns, count)))
