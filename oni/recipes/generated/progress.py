"""How many images are done, shown once there is something to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from oni.recipes.progress.reporters import Reporter

__all__ = ["watch_images"]


@contextmanager
def watch_images(reporter: Reporter, name: str) -> Iterator[Callable[[str, int, int], None]]:
    """A function to call with the kind of images, how many are done, and how many there are."""
    shown = reporter.for_other_work()
    current = ""

    def watch(what: str, done: int, total: int) -> None:
        nonlocal current
        if what != current:
            if current:
                shown.end("measured")
            current = what
            shown.start(f"{name}: features of {total} {what} images", total, 0)
        shown.step(done, what, {})

    try:
        yield watch
    finally:
        if current:
            shown.end("measured")
