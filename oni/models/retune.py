"""``retune``: choose steps, bound and schedule again for the targets of a model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn

from oni.models.proxied import check_model
from oni.models.select import Weight, check_whole, find_proxied_weights
from oni.newton.target import Choice
from oni.nn.options import Options
from oni.nn.parametrization import Orthogonal

__all__ = ["Retuned", "has_targets", "retune"]


@dataclass(frozen=True)
class Retuned:
    """A weight for which something else was chosen."""

    layer: str
    sigma_min: float
    """Its target."""
    before: Choice
    after: Choice

    def __str__(self) -> str:
        return f"{self.layer}: {self.before} -> {self.after}"


def retune(model: nn.Module) -> list[Retuned]:
    """Choose the cheapest steps, bound and schedule again, in place, for every weight with a ``sigma_min``.

    Training moves the singular values of the proxies, so the first choice may later miss the target or cost more
    than necessary. Once per epoch is usually enough: it takes a singular value decomposition of each weight. With
    several processes, call it on all of them: equal proxies get equal choices.

    Returns:
        The changes; empty if there are none.

    Raises:
        ValueError: if the model has no targets, or if a weight can't reach its target any more (a dead filter): it is
            named, and nothing is changed.

    >>> import oni
    >>> layer = oni.nn.Linear(64, 16, sigma_min=0.9)
    >>> retune(layer)
    []
    """
    check_model(model)
    new: dict[int, tuple[str, Orthogonal, Options]] = {}
    for weight, parametrization in find_targets(model):
        # Several modules may share one.
        if id(parametrization) in new:
            continue
        Z = weight.module.parametrizations[weight.name].original  # type: ignore[union-attr, index]
        check_whole(weight, Z)
        try:
            options = parametrization.options.choose_for(parametrization.layout.matrices(Z))
        except ValueError as error:
            raise ValueError(f"{weight.title}: {error}") from None
        new[id(parametrization)] = weight.title, parametrization, options
    if not new:
        raise ValueError("no weight of the model has a target; set one with oni.convert(model, sigma_min=0.9)")
    changes = []
    for title, parametrization, options in new.values():
        before = parametrization.options
        if options != before:
            assert options.target is not None
            parametrization.set_options(options)
            changes.append(Retuned(title, options.target.sigma_min, before.choice, options.choice))
    return changes


def has_targets(model: nn.Module) -> bool:
    """Whether a weight of the model has a ``sigma_min``."""
    return next(find_targets(model), None) is not None


def find_targets(model: nn.Module) -> Iterator[tuple[Weight, Orthogonal]]:
    """Every weight with a ``sigma_min``, and what computes it."""
    for weight, parametrization in find_proxied_weights(model):
        if isinstance(parametrization, Orthogonal) and parametrization.options.target is not None:
            yield weight, parametrization
