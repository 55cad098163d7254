"""Which weights of a model to orthogonalise, and why not the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, TypeAlias

from torch import Tensor, nn
from torch.nn.utils import parametrize

from oni.diagnostics.operator import CONVOLUTIONS
from oni.models.proxied import join_path, walk_proxied
from oni.nn.from_proxy import FromProxy
from oni.nn.parametrization import get_layout, parameter_order
from oni.nn.stacked import count_stacked, is_transformers_conv1d
from oni.torch_internals import is_shard

__all__ = [
    "LEFT_ALONE",
    "NOT_RECURRENT",
    "Selector",
    "Weight",
    "check_whole",
    "choose_weights",
    "find_owners",
    "find_proxied_weights",
    "find_weights",
]

Criterion: TypeAlias = "type[nn.Module] | str | Callable[[str, nn.Module], bool]"
Selector: TypeAlias = "Criterion | Iterable[Criterion] | None"

LEFT_ALONE = "_oni_left_alone"
"""The attribute of a converted model that remembers why weights were left alone."""
ATTENTION = ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight")
NOT_RECURRENT = "is not recurrent; call oni.orthogonal on it"
UNKNOWN_KIND = "not a kind of layer that convert knows"


class Weight(NamedTuple):
    """A matrix-shaped parameter of a model, or a layer that has one in a form of its own."""

    layer: str
    """The module's qualified name, empty for the model itself."""
    module: nn.Module
    name: str
    unfit: str = ""
    """Why this kind of layer is never converted by itself."""

    @property
    def label(self) -> str:
        """The layer's name in errors."""
        return self.layer or type(self.module).__name__.removeprefix("Parametrized")

    @property
    def title(self) -> str:
        """The weight's name in tables: as the model has it, or the kind of layer where the model is that layer."""
        if self.name == "weight":
            return self.label
        return f"{self.layer}.{self.name}" if self.layer else self.name

    @property
    def groups(self) -> int:
        """How many matrices it stacks by its nature: 3 for the queries, keys and values of attention."""
        return count_stacked(self.module, self.name, self.layer)

    @property
    def parametrization(self) -> nn.Module | None:
        """Its first parametrization, whoever's."""
        if not parametrize.is_parametrized(self.module, self.name):
            return None
        return self.module.parametrizations[self.name][0]  # type: ignore[index, return-value]


def find_weights(model: nn.Module) -> Iterator[Weight]:
    """Every weight that has rows and columns, in the model's order; each module once, under its first name."""
    for layer, module in model.named_modules():
        if isinstance(module, parametrize.ParametrizationList | FromProxy) or layer.endswith(".parametrizations"):
            continue
        if isinstance(module, (nn.Linear, *CONVOLUTIONS)) or is_transformers_conv1d(module):
            yield Weight(layer, module, "weight", unfit=explain_emptiness(module))
        elif isinstance(module, nn.MultiheadAttention):
            for name in ATTENTION:
                if parametrize.is_parametrized(module, name) or module._parameters.get(name) is not None:
                    yield Weight(layer, module, name)
        elif isinstance(module, nn.RNNBase | nn.RNNCellBase):
            for name in parameter_order(module):
                if name.startswith("weight"):
                    yield Weight(layer, module, name, unfit="" if name.startswith("weight_hh") else NOT_RECURRENT)
        elif isinstance(module, nn.Embedding | nn.EmbeddingBag):
            yield Weight(layer, module, "weight", unfit="an embedding is a table, not a map")
        elif isinstance(module, nn.Bilinear):
            yield Weight(layer, module, "weight", unfit="is a bilinear form; call oni.orthogonal on it")
        else:
            parametrised = list(module.parametrizations) if parametrize.is_parametrized(module) else []
            own = [name for name, parameter in module._parameters.items() if is_matrix(parameter)]
            for name in own + parametrised:
                yield Weight(layer, module, name, unfit=UNKNOWN_KIND)


def explain_emptiness(module: nn.Module) -> str:
    weight = module._parameters.get("weight")
    lazy = isinstance(weight, nn.parameter.UninitializedParameter)
    return "has no entries" if weight is not None and not lazy and weight.numel() == 0 else ""


def is_matrix(parameter: nn.Parameter | None) -> bool:
    lazy = isinstance(parameter, nn.parameter.UninitializedParameter)
    return parameter is not None and not lazy and parameter.dim() > 1


def find_proxied_weights(model: nn.Module) -> Iterator[tuple[Weight, FromProxy]]:
    """The weights that are computed from a proxy now, wherever they are, in the model's order."""
    for path, module, name, holder in walk_proxied(model):
        yield Weight(join_path(path), module, name), holder[0]  # type: ignore[misc]


def check_whole(weight: Weight, Z: Tensor) -> None:
    """Refuse the shard of a proxy."""
    if is_shard(Z):
        raise ValueError(
            f"{weight.title}: its proxy is sharded, and a shard does not determine the spectrum; call unshard() on the "
            "modules that fully_shard made, then this, then reshard()"
        )


def choose_weights(model: nn.Module, only: Selector, skip: Selector) -> Iterator[tuple[Weight, str]]:
    """Each weight, and why it is left alone: empty if it is not."""
    wanted, unwanted = list_criteria(only, "only"), list_criteria(skip, "skip")
    used: set[int] = set()

    def first_match(weight: Weight, criteria: list[Criterion]) -> Criterion | None:
        matching = [criterion for criterion in criteria if matches(criterion, weight)]
        used.update(map(id, matching))
        return matching[0] if matching else None

    choices = []
    for weight in find_weights(model):
        skipped_by = first_match(weight, unwanted)
        if wanted and first_match(weight, wanted) is None:
            why = "not among only"
        elif skipped_by is not None:
            why = f"skipped by {describe_criterion(skipped_by)}"
        else:
            why = weight.unfit
        choices.append((weight, why))
    for argument, criteria in (("only", wanted), ("skip", unwanted)):
        for criterion in criteria:
            if id(criterion) not in used and not is_predicate(criterion):
                names = [weight.layer for weight, _ in choices][:8]
                raise ValueError(f"{argument}={describe_criterion(criterion)} matches no layer; the model has {names}")
    owners = find_owners(model)
    taken = {(id(weight.module), weight.name) for weight, why in choices if not why}
    yield from ((weight, why or explain_sharing(weight, owners, taken)) for weight, why in choices)


def list_criteria(selector: Selector, argument: str) -> list[Criterion]:
    if selector is None:
        return []
    several = isinstance(selector, Iterable) and not isinstance(selector, str | type)
    criteria: list[Any] = list(selector) if several else [selector]  # type: ignore[arg-type]
    for criterion in criteria:
        if not (isinstance(criterion, str) or callable(criterion)):
            raise TypeError(
                f"{argument} takes module types, glob patterns on names such as 'features.*', or functions of "
                f"(name, module), got {criterion!r}"
            )
    return criteria


def matches(criterion: Criterion, weight: Weight) -> bool:
    if isinstance(criterion, str):
        # The name itself counts too: it may hold brackets, which are special in a pattern.
        return weight.layer == criterion or fnmatchcase(weight.layer, criterion)
    if isinstance(criterion, type):
        return isinstance(weight.module, criterion)
    return bool(criterion(weight.layer, weight.module))


def is_predicate(criterion: Criterion) -> bool:
    return not isinstance(criterion, str | type)


def describe_criterion(criterion: Criterion) -> str:
    return repr(criterion) if isinstance(criterion, str) else getattr(criterion, "__name__", repr(criterion))


def find_owners(model: nn.Module) -> dict[int, list[tuple[nn.Module, str]]]:
    """For each parameter, the modules that hold it as their own."""
    owners: dict[int, list[tuple[nn.Module, str]]] = {}
    for _, module in model.named_modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                owners.setdefault(id(parameter), []).append((module, name))
    return owners


def explain_sharing(weight: Weight, owners: dict[int, list[tuple[nn.Module, str]]], taken: set[tuple[int, str]]) -> str:
    """Why sharing its parameter keeps a weight from being converted: its partners would use the proxy as a weight."""
    parameter = weight.module._parameters.get(weight.name)
    for module, name in owners.get(id(parameter), []):
        if (id(module), name) not in taken or get_layout(module) != get_layout(weight.module):
            return f"shares its parameter with {type(module).__name__}, which is not converted"
    return ""
