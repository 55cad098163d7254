"""The weights of a model that are computed from a proxy: the one walk that finds them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from torch import Tensor, nn
from torch.nn.utils.parametrize import ParametrizationList

from oni.nn.from_proxy import FromProxy
from oni.nn.parametrization import Orthogonal

__all__ = ["Member", "Path", "check_model", "find_orthogonal", "join_path", "walk_proxied"]

Path: TypeAlias = "tuple[Path, str] | None"
"""The names on the way from a model to a module, the last one outermost."""


class Member(NamedTuple):
    """An orthogonal weight of a model."""

    path: Path
    """To its layer."""
    name: str
    parametrization: Orthogonal
    holder: ParametrizationList
    """What holds the proxy."""

    @property
    def Z(self) -> Tensor:
        return self.holder.original

    @property
    def title(self) -> str:
        return join_path((self.path, self.name))


def check_model(model: object) -> None:
    """Refuse anything but a module."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")


def find_orthogonal(model: nn.Module) -> Iterator[Member]:
    """Every orthogonal weight of a model; one that several layers share, as often."""
    for path, _, name, holder in walk_proxied(model):
        first = holder._modules["0"]
        if isinstance(first, Orthogonal):
            yield Member(path, name, first, holder)


def walk_proxied(model: nn.Module) -> Iterator[tuple[Path, nn.Module, str, ParametrizationList]]:
    """The one walk that finds them: the way to the module, the module, the name of the weight, what holds its proxy.

    Every forward pass of a converted model comes here: ``named_modules`` takes several times as long, and names that
    nobody reads would take as long again.
    """
    seen: set[int] = set()
    waiting: list[tuple[Path, nn.Module]] = [(None, model)]
    while waiting:
        path, module = waiting.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        # Copies, in one go: another thread may convert or bake the model meanwhile.
        children = dict(module._modules.items())
        done = None
        if isinstance(holders := children.get("parametrizations"), nn.ModuleDict):
            lists = dict(holders._modules)
            ours = {name: holder for name, holder in lists.items() if has_proxy(holder)}
            yield from ((path, module, name, holder) for name, holder in ours.items())  # type: ignore[misc]
            # Below them there is nothing more to find.
            done = holders if len(ours) == len(lists) else None
        for name, child in reversed(children.items()):
            if child is not None and child is not done and child._modules:
                waiting.append(((path, name), child))


def has_proxy(holder: nn.Module | None) -> bool:
    return isinstance(holder, ParametrizationList) and isinstance(holder._modules.get("0"), FromProxy)


def join_path(path: Path) -> str:
    """A path as torch writes it.

    >>> join_path(((None, "features"), "0"))
    'features.0'
    """
    names: list[str] = []
    while path is not None:
        path, name = path
        names.append(name)
    return ".".join(reversed(names))
