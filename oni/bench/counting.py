"""How many weights are orthogonalised: a number that no other load on the machine can change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from oni.newton.batched import orthogonalize_each
from oni.newton.orthogonalize import orthogonalize
from oni.nn import parametrization

__all__ = ["counted"]


@contextmanager
def counted() -> Iterator[list[int]]:
    """Inside it, every call that computes orthogonal weights adds to the list how many it computes.

    >>> import torch, oni
    >>> layer = oni.nn.Linear(8, 4)
    >>> with counted() as count:
    ...     _ = layer(torch.ones(8))
    >>> count
    [1]
    """
    count: list[int] = []

    def one(*arguments: Any, **options: Any) -> Any:
        count.append(1)
        return orthogonalize(*arguments, **options)

    def each(Zs: Any, *arguments: Any, **options: Any) -> Any:
        count.append(len(Zs))
        return orthogonalize_each(Zs, *arguments, **options)

    with patch.multiple(parametrization, orthogonalize=one, orthogonalize_each=each):
        yield count
