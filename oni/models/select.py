"""Which weights of a model to orthogonalise, and why not the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, TypeAlias

from torch import nn
from torch.nn.utils import parametrize

from oni.nn.parametrization import CONVOLUTIONS, FromProxy, layout_of

__all__ = ["LEFT_ALONE", "Selector", "Weight", "chosen", "proxied_weights", "weights"]

One: TypeAlias = "type[nn.Module] | str | Callable[[str, nn.Module], bool]"
Selector: TypeAlias = "One | Iterable[One] | None"

LEFT_ALONE = "_oni_left_alone"
"""The attribute of a converted model that remembers why weights were left alone."""
ATTENTION = ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight")


class Weight(NamedTuple):
    """A matrix-shaped parameter of a model, or a layer that has one in a form of its own."""

    layer: str
    """The module's qualified name, empty for the model itself."""
    module: nn.Module
    name: str
    groups: int = 1
    """In how many matrices its rows come by their nature: 3 for the queries, keys and values of attention."""
    unfit: str = ""
    """Why this kind of layer is never converted by itself."""

    @property
    def called(self) -> str:
        """Its name in tables and errors."""
        return self.layer or type(self.module).__name__

    @property
    def shown(self) -> str:
        """The weight's name in tables."""
        return self.called if self.name == "weight" else f"{self.called}.{self.name}"

    @property
    def parametrization(self) -> nn.Module | None:
        """Its first parametrization, whoever's."""
        if not parametrize.is_parametrized(self.module, self.name):
            return None
        return self.module.parametrizations[self.name][0]  # type: ignore[index, return-value]


def weights(model: nn.Module) -> Iterator[Weight]:
    """Every weight that has rows and columns, in the model's order; each module once, under its first name."""
    for layer, module in model.named_modules():
        if isinstance(module, parametrize.ParametrizationList | FromProxy) or layer.endswith(".parametrizations"):
            continue
        if isinstance(module, (nn.Linear, *CONVOLUTIONS)):
            yield Weight(layer, module, "weight")
        elif isinstance(module, nn.MultiheadAttention):
            for name in ATTENTION:
                if parametrize.is_parametrized(module, name) or module._parameters.get(name) is not None:
                    yield Weight(layer, module, name, groups=3 if name == "in_proj_weight" else 1)
        elif isinstance(module, nn.RNNBase):
            yield Weight(layer, module, "weight_hh_l0", unfit="keeps its weights in a list of its own; use cells")
        elif isinstance(module, nn.RNNCellBase):
            yield Weight(layer, module, "weight_hh", unfit='call oni.orthogonal(cell, "weight_hh", groups=gates)')
        elif isinstance(module, nn.Embedding | nn.EmbeddingBag):
            yield Weight(layer, module, "weight", unfit="an embedding is a table, not a map")
        elif isinstance(module, nn.Bilinear):
            yield Weight(layer, module, "weight", unfit="is a bilinear form; call oni.orthogonal on it")
        else:
            parametrised = list(module.parametrizations) if parametrize.is_parametrized(module) else []
            own = [name for name, parameter in module._parameters.items() if is_matrix(parameter)]
            for name in own + parametrised:
                yield Weight(layer, module, name, unfit="not a kind of layer that convert knows")


def is_matrix(parameter: nn.Parameter | None) -> bool:
    lazy = isinstance(parameter, nn.parameter.UninitializedParameter)
    return parameter is not None and not lazy and parameter.dim() > 1


def proxied_weights(model: nn.Module) -> Iterator[tuple[Weight, FromProxy]]:
    """The weights that are computed from a proxy now, wherever they are."""
    for layer, module in model.named_modules():
        if not isinstance(module, parametrize.ParametrizationList) and parametrize.is_parametrized(module):
            for name, parametrizations in module.parametrizations.items():
                if isinstance(parametrizations[0], FromProxy):
                    yield Weight(layer, module, name), parametrizations[0]


def chosen(model: nn.Module, only: Selector, skip: Selector) -> Iterator[tuple[Weight, str]]:
    """Each weight, and why it is left alone: empty if it is not."""
    wanted, unwanted = selectors(only, "only"), selectors(skip, "skip")
    used: set[int] = set()

    def first_match(weight: Weight, those: list[One]) -> One | None:
        matches = [(i, one) for i, one in enumerate(those) if matched(one, weight)]
        used.update(id(one) for _, one in matches)
        return matches[0][1] if matches else None

    result = []
    for weight in weights(model):
        left_out = first_match(weight, unwanted)
        if wanted and first_match(weight, wanted) is None:
            why = "not among only"
        elif left_out is not None:
            why = f"skipped by {described(left_out)}"
        else:
            why = weight.unfit
        result.append((weight, why))
    for argument, those in (("only", wanted), ("skip", unwanted)):
        for one in those:
            if id(one) not in used and not callable_predicate(one):
                names = [weight.layer for weight, _ in result][:8]
                raise ValueError(f"{argument}={described(one)} matches no layer; the model has {names}")
    shared = owners(model)
    taken = {id(weight.module): weight for weight, why in result if not why}
    yield from ((weight, why or shared_with_others(weight, shared, taken)) for weight, why in result)


def selectors(given: Selector, argument: str) -> list[One]:
    if given is None:
        return []
    several = isinstance(given, Iterable) and not isinstance(given, str | type)
    those: list[Any] = list(given) if several else [given]  # type: ignore[arg-type]
    for one in those:
        if not (isinstance(one, str) or callable(one)):
            raise TypeError(
                f"{argument} takes module types, glob patterns on names such as 'features.*', or functions of "
                f"(name, module), got {one!r}"
            )
    return those


def matched(one: One, weight: Weight) -> bool:
    if isinstance(one, str):
        return fnmatchcase(weight.layer, one)
    if isinstance(one, type):
        return isinstance(weight.module, one)
    return bool(one(weight.layer, weight.module))


def callable_predicate(one: One) -> bool:
    return not isinstance(one, str | type)


def described(one: One) -> str:
    return repr(one) if isinstance(one, str) else getattr(one, "__name__", repr(one))


def owners(model: nn.Module) -> dict[int, list[tuple[nn.Module, str]]]:
    """For each parameter, the modules that hold it as their own."""
    held: dict[int, list[tuple[nn.Module, str]]] = {}
    for _, module in model.named_modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                held.setdefault(id(parameter), []).append((module, name))
    return held


def shared_with_others(weight: Weight, shared: dict[int, list[tuple[nn.Module, str]]], taken: dict[int, Weight]) -> str:
    """Why sharing its parameter keeps a weight from being converted: its partners would use the proxy as a weight."""
    parameter = weight.module._parameters.get(weight.name)
    for module, _ in shared.get(id(parameter), []):
        if id(module) not in taken or layout_of(module) != layout_of(weight.module):
            return f"shares its parameter with {type(module).__name__}, which is not converted"
    return ""
