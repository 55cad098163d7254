"""OLM: exact orthogonalisation by eigendecomposition (Huang et al., 2018), which ONI approximates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from oni.baselines.exact_inverse_root import exact_inverse_root
from oni.newton.bounding import centred, power_of_two_scale
from oni.newton.matrix import Layout
from oni.newton.orthogonalize import check_input, disable_autocast
from oni.nn.from_proxy import FromProxy
from oni.nn.options import check_learn_scale, check_scale
from oni.nn.parametrization import attach, check_module, check_weight, get_layout

__all__ = ["OLM", "OLMOptions", "check_olm_options", "olm", "orthogonalize_olm"]

M = TypeVar("M", bound=nn.Module)
GRADIENTS = ("stable", "textbook")


def orthogonalize_olm(
    Z: Tensor, *, group_size: int | None = None, center: bool = True, gradient: str = "stable"
) -> Tensor:
    r"""Make the rows of each group exactly orthonormal, as close to the (centred) rows of Z as possible.

    .. math:: W = (Z_c Z_c^\top)^{-1/2} Z_c = D \Lambda^{-1/2} D^\top Z_c, \qquad Z_c Z_c^\top = D \Lambda D^\top

    The limit of :func:`oni.orthogonalize` for many steps, at the cost of an eigendecomposition.

    Args:
        Z: the proxy, ``(n, d)`` or a batch ``(..., n, d)``; float16, bfloat16, float32 or float64.
        group_size: the number of consecutive rows per group, each orthogonalised separately; the last may be smaller.
            ``None`` is all. No more than d rows can be orthonormal, so as in the authors' code a larger group is cut
            to d rows.
        center: subtract each row's mean first. Only d - 1 centred rows can be orthonormal: a centred group of d rows
            becomes orthonormal except for one direction u, :math:`W W^\top = I - u u^\top`. To avoid this, pass
            ``center=False`` or a smaller ``group_size``.
        gradient: ``"stable"`` is the closed form of :mod:`oni.baselines.exact_inverse_root`. ``"textbook"``
            differentiates eigenvectors and eigenvalues separately, as printed in the paper: it divides by
            :math:`\lambda_i - \lambda_j`, and so gives infinity, NaN or noise for (nearly) equal eigenvalues. It is
            provided for study.

    Returns:
        W, of Z's shape and dtype.

    ``"stable"`` works in float64 wherever the device has it, as a Gram matrix squares the condition number. Singular
    values that :func:`torch.linalg.matrix_rank` counts as zero stay zero, with the gradient along matrices of the same
    rank; so zero matrices give zero, and linearly dependent rows a finite answer. NaN or infinity in a group gives NaN
    in all of it. Differentiable any number of times, in reverse mode. ``"textbook"`` works in Z's own precision
    (float32 for half), and needs full rank and finite numbers.

    >>> W = orthogonalize_olm(torch.randn(64, 32, generator=torch.Generator().manual_seed(0)), group_size=16)
    >>> torch.allclose(W[:16] @ W[:16].T, torch.eye(16), atol=1e-5)
    True

    Reference: Huang et al., *Orthogonal Weight Normalization: Solution to Optimization over Multiple Dependent Stiefel
    Manifolds in Deep Neural Networks*, AAAI 2018.
    """
    check_input(Z)
    checked_map_options(group_size, center, gradient)
    n, d = Z.shape[-2:]
    checked_columns(d, center)
    if Z.numel() == 0:
        return Z.clone()
    size = rows_per_group(group_size, n, d)
    whole = n // size * size
    groups = Z[..., :whole, :].unflatten(-2, (-1, size))
    with disable_autocast(Z.device.type):
        W = polar(groups, center, gradient).flatten(-3, -2)
        if whole < n:
            W = torch.cat([W, polar(Z[..., whole:, :], center, gradient)], -2)
    return W


def olm(
    module: M,
    name: str = "weight",
    *,
    group_size: int | None = 64,
    center: bool = True,
    scale: float | str = 1.0,
    learn_scale: bool = False,
    gradient: str = "stable",
) -> M:
    r"""From now on, compute ``module.weight`` from a proxy Z by :func:`orthogonalize_olm`.

    .. math:: W = \operatorname{diag}(g) \, \operatorname{orthogonalize\_olm}(Z)

    As with :func:`oni.orthogonal`, rows are output filters, each group of a grouped convolution is a separate matrix,
    ``oni.bake`` makes the module plain again, ``oni.summary`` lists it, ``oni.init_scale`` initialises its scale.

    Args:
        module, name: the layer, and which of its parameters.
        group_size: 64 as in the authors' code, cut to the number of columns; ``None`` for as many as there are.
        scale, learn_scale: as in :func:`oni.orthogonal`. ``"relu"`` is the OLM of the ONI paper's comparison, 1.0 the
            original one ("OLM-1", "OLM-NS").
        center, gradient: as in :func:`orthogonalize_olm`.

    Returns:
        The module itself.

    >>> layer = olm(nn.Conv2d(8, 16, 3), scale="relu")
    >>> W = layer.weight.flatten(1)
    >>> torch.allclose(W @ W.T, 2 * torch.eye(16), atol=1e-5)
    True
    """
    check_module(module)
    options = check_olm_options(group_size, center, scale, learn_scale, gradient)
    weight = check_weight(module, name, type(module).__name__)
    attach(module, name, OLM(weight, get_layout(module), options))
    return module


@dataclass(frozen=True)
class OLMOptions:
    """The options of ``olm``, ``scale`` as a number."""

    group_size: int | None
    center: bool
    scale: float
    learn_scale: bool
    gradient: str

    def of_orthogonalize_olm(self) -> dict[str, Any]:
        """Those that ``orthogonalize_olm`` takes."""
        return {name: getattr(self, name) for name in ("group_size", "center", "gradient")}


class OLM(FromProxy):
    """The parametrization by ``orthogonalize_olm``."""

    options: OLMOptions

    def __init__(self, weight: Tensor, layout: Layout, options: OLMOptions) -> None:
        super().__init__(weight, layout, options)
        checked_columns(layout.matrices(weight).shape[-1], options.center)

    def unscaled(self, Z: Tensor) -> Tensor:
        return orthogonalize_olm(self.layout.matrices(Z), **self.options.of_orthogonalize_olm())

    def blocks(self, W: Tensor) -> list[Tensor]:
        return list(W.split(rows_per_group(self.options.group_size, *W.shape[-2:]), -2))


def polar(Z: Tensor, center: bool, gradient: str) -> Tensor:
    """The polar factor of matrices that are at least as wide as high."""
    own = Z.dtype if Z.dtype == torch.float64 else torch.float32
    stable = gradient == "stable"
    A = Z.to(torch.float64 if stable and Z.device.type != "mps" else own)
    A = power_of_two_scale(A.detach()) * A
    if center:
        A = centred(A)
    n, d = A.shape[-2:]
    S = A @ A.mT
    if stable:
        # What matrix_rank neglects, as an eigenvalue; and what is rounding noise of S in the precision of this work.
        cutoff = max((d * torch.finfo(own).eps) ** 2, n * torch.finfo(A.dtype).eps)
        Q = exact_inverse_root(S, cutoff)
    else:
        eigenvalues, D = torch.linalg.eigh(S)
        Q = D * eigenvalues.rsqrt()[..., None, :] @ D.mT
    return (Q @ A).to(Z.dtype)


def rows_per_group(group_size: int | None, n: int, d: int) -> int:
    """The size of all groups but perhaps the last."""
    return min(n if group_size is None else group_size, n, d)


def check_olm_options(
    group_size: int | None = 64,
    center: bool = True,
    scale: float | str = 1.0,
    learn_scale: bool = False,
    gradient: str = "stable",
) -> OLMOptions:
    """The options of ``olm``, if all are good."""
    checked_map_options(group_size, center, gradient)
    return OLMOptions(group_size, center, check_scale(scale), check_learn_scale(learn_scale), gradient)


def checked_map_options(group_size: int | None, center: bool, gradient: str) -> None:
    if group_size is not None:
        if isinstance(group_size, bool) or not isinstance(group_size, int):
            raise TypeError(
                f"group_size must be a whole number of rows or None, got {group_size!r} of type "
                f"{type(group_size).__name__}; pass None for all rows"
            )
        if group_size < 1:
            raise ValueError(f"group_size must be at least 1, got {group_size}; pass None for all rows")
    if not isinstance(center, bool):
        raise ValueError(f"center must be True or False, got {center!r}")
    if not isinstance(gradient, str) or gradient not in GRADIENTS:
        raise ValueError(f"gradient must be one of {', '.join(map(repr, GRADIENTS))}, got {gradient!r}")


def checked_columns(d: int, center: bool) -> None:
    """Refuse to centre rows of one entry, of which nothing would be left."""
    if center and d == 1:
        raise ValueError("center=True makes rows with one column zero; pass center=False")
