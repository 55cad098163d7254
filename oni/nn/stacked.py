"""Weights that stack several matrices of equal height: the gates of recurrent layers, queries, keys and values."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.utils import parametrize

__all__ = ["count_stacked", "is_transformers_conv1d"]

JOINED = ("c_attn", "qkv", "to_qkv", "Wqkv")
"""The names of layers that compute queries, keys and values in one product: GPT-2, timm, vit-pytorch, MPT."""


def count_stacked(module: nn.Module, name: str, layer: str = "") -> int:
    """Count the matrices that a weight stacks.

    The weight of a recurrent layer or cell has one per gate: 4 for an LSTM, 3 for a GRU. Attention's
    ``in_proj_weight`` has 3. So has a linear layer that is called ``qkv`` or the like and has 3 outputs per input.

    Args:
        module: the module.
        name: its weight.
        layer: the module's qualified name, if known.

    >>> count_stacked(nn.LSTM(8, 16), "weight_hh_l0"), count_stacked(nn.Linear(192, 576), "weight", "blocks.0.attn.qkv")
    (4, 3)
    """
    weight = get_stored(module, name)
    if weight is None or isinstance(weight, nn.parameter.UninitializedParameter) or weight.dim() != 2:
        return 1
    if isinstance(module, nn.RNNBase | nn.RNNCellBase):
        return max(1, len(weight) // module.hidden_size)  # a projection has fewer rows than there are hidden units
    if isinstance(module, nn.MultiheadAttention):
        return 3 if name == "in_proj_weight" else 1
    if layer.rpartition(".")[2] not in JOINED:
        return 1
    outputs, inputs = weight.T.shape if is_transformers_conv1d(module) else weight.shape
    return outputs // inputs if outputs in (2 * inputs, 3 * inputs) else 1


def get_stored(module: nn.Module, name: str) -> Tensor | None:
    """The parameter of this name, or the proxy that it is computed from."""
    if parametrize.is_parametrized(module, name):
        return module.parametrizations[name]._parameters.get("original")  # type: ignore[index, union-attr]
    return module._parameters.get(name)


def is_transformers_conv1d(module: nn.Module) -> bool:
    """Whether this is Hugging Face's ``Conv1D``, a linear layer whose weight is (in, out)."""
    return any(cls.__name__ == "Conv1D" and cls.__module__.startswith("transformers.") for cls in type(module).__mro__)
