"""``certified_radius``: how far an image can be moved, in any direction, before its class can change."""

from __future__ import annotations

import copy
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import _SpectralNorm

from oni.diagnostics.follow import Call, Follower, Signal, Step, norms
from oni.diagnostics.functions import FUNCTIONS
from oni.diagnostics.lipschitz import choose_constants
from oni.diagnostics.matrix_norm import UNIT, gamma
from oni.diagnostics.rounding import rounding_of
from oni.diagnostics.untouched import untouched
from oni.torch_internals import remove_hooks

__all__ = ["certified_radius"]

AT_ONCE = 256
"""Images that are computed together."""
SLACK = 1e-9
"""Covers the rounding of the few thousand float64 operations, at most, that make a bound from norms."""
MODAL = (
    nn.modules.dropout._DropoutNd,
    nn.modules.batchnorm._NormBase,
    nn.RReLU,
    _SpectralNorm,  # each forward pass in training changes the weight
)


def certified_radius(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    r"""A radius for each image within which no perturbation changes its class; 0 if the class is wrong.

    **Theorem.** Let f be the model with its current weights, as :func:`oni.bake` would store them, in exact arithmetic,
    and :math:`\hat f` the same in its own precision, with each sum computed in any order. Let
    :math:`f_y - f_j` be :math:`c_j`-Lipschitz, and let rounding move it by at most
    :math:`a_j + b_j \|x' - x\|` at every x'. If

    .. math:: \|x' - x\|_2 < \min_{j \ne y} \frac{f_y(x) - f_j(x) - a_j}{c_j + b_j},

    then f and :math:`\hat f` both assign class y to x', because
    :math:`\hat f_y(x') - \hat f_j(x') \ge f_y(x) - f_j(x) - c_j \|x' - x\| - a_j - b_j \|x' - x\| > 0`.

    With L from :func:`lipschitz_bound`, :math:`c_j = \sqrt 2 L`. If the last step is a linear layer with rows
    :math:`w_j` on features with constant :math:`L_h`, then :math:`c_j = \|w_y - w_j\| L_h`, which is never larger, and
    equals :math:`\sqrt 2 L_h` for orthonormal rows.

    Everything is computed in float64, from a copy with the current weights: proven upper bounds on the norms of the
    weights (:func:`norm_bound`), f(x) minus its own rounding error, and rounding layer by layer. A sum of k products
    costs :math:`\gamma_k = k u / (1 - k u)` of the products' absolute values, with u the unit roundoff of the model's
    dtype (Higham, *Accuracy and stability of numerical algorithms*, section 3.1). For a perceptron in float32 on images
    of 28 x 28 this worst case reduces a radius by 0.01; ``model.double()`` of a baked model has the same weights and
    loses nothing. Arithmetic that rounds differently, such as TF32, autocast or Winograd convolutions, is not covered.

    Args:
        model: maps ``(batch, ...)`` to logits ``(batch, classes)``, in evaluation mode, of float32 or float64; for the
            supported modules see :func:`lipschitz_bound`. Your own module with ``lipschitz_constant(x)`` also
            needs ``rounding_error(x, dtype)``, which returns a pair: computed in this dtype, the result is off by at
            most the first times the norm of x, plus the second. The model is left as it is.
        images: a batch, in the model's dtype, as the model gets them. The radius is in their units: where pixels were
            divided by a standard deviation, multiply it by the smallest of these for a radius in pixels.
        labels: their classes ``(batch,)``.

    Returns:
        Radii in the Euclidean norm, float64 ``(batch,)``. An image has 0 if its class is wrong, or right by less than
        rounding could turn.

    Raises:
        ValueError: for a module or an operation that can't be bounded, which is named; for a model that does not
            compute, within rounding, what its forward says, as by a hook.

    >>> model = nn.Sequential(nn.Linear(2, 2, bias=False)).eval()
    >>> _ = nn.init.eye_(model[0].weight)
    >>> certified_radius(model, torch.tensor([[3.0, 1.0], [0.0, 1.0]]), torch.tensor([0, 0]))
    tensor([1.4142, 0.0000], dtype=torch.float64)

    Reference: Tsuzuku, Sato and Sugiyama, *Lipschitz-margin training*, NeurIPS 2018.
    """
    dtype = check_model(model)
    check_images(images, labels, dtype)
    radii = []
    with untouched(model, training=False), torch.no_grad():
        twin = bake_in_float64(model)
        has_constant, of_module = choose_constants({})

        def with_rounding(name: str, module: nn.Module, call: Call) -> Step:
            constant = of_module(name, module, call).constant
            rounding = rounding_of(module, call)
            if rounding is None:
                raise ValueError(
                    f"{name or 'the model'}: the rounding error of {type(module).__name__} is not known; use another "
                    "module, such as oni.nn.GroupSort or nn.ReLU, or give it a method rounding_error(x, dtype)"
                )
            return Step(constant, *rounding)

        follower = Follower(twin, has_constant, with_rounding, FUNCTIONS, dtype)
        for some, classes in zip(images.split(AT_ONCE), labels.split(AT_ONCE), strict=True):
            signal = follower(some.double())
            check_logits(signal.value, labels)
            check_agreement(signal, model(some), dtype)
            radii.append(radius_of(signal, classes.long(), dtype))
    return torch.cat(radii)


def radius_of(signal: Signal, labels: Tensor, dtype: torch.dtype) -> Tensor:
    """The theorem's radius, a little less, for logits with their bounds."""
    own = labels[:, None]
    errors, slopes = bound_differences(signal, labels, dtype)
    margins = signal.value.gather(1, own) - signal.value - errors
    radii = torch.where(margins > 0, margins / slopes * (1 - SLACK), 0.0)
    return radii.scatter(1, own, math.inf).min(1).values


def bound_differences(signal: Signal, labels: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The theorem's a_j and c_j + b_j, for the difference of each image's own logit from every other."""
    if signal.head is None:
        # Two entries of a vector of length e differ by at most sqrt 2 e.
        errors = math.sqrt(2) * signal.error[:, None].expand_as(signal.value)
        slopes = torch.full_like(signal.value, math.sqrt(2) * (signal.slope + signal.drift))
    else:
        layer, h = signal.head
        W, count = layer.weight.detach(), layer.in_features + 1
        apart = torch.cdist(W, W, compute_mode="donot_use_mm_for_euclid_dist")[labels]
        factor, rows = gamma(count, torch.finfo(dtype).eps / 2), torch.linalg.vector_norm(W, dim=1)
        # The layer rounds each logit on its own, by so much of |w| |h| + |b| for the h that it is given.
        sizes = F.linear(h.value.abs(), W.abs(), None if layer.bias is None else layer.bias.detach().abs())
        rounding = factor * (sizes + 2 * h.error[:, None] * rows) + 2 * count * torch.finfo(dtype).tiny
        errors = apart * h.error[:, None] + rounding.gather(1, labels[:, None]) + rounding
        slopes = (apart + factor * (rows[labels][:, None] + rows)) * (h.slope + h.drift)
    # Rounding in float64, of the logits at hand, comes on top; it grows with the unit roundoff like that of the model.
    return errors * (1 + 2 * UNIT / torch.finfo(dtype).eps) * (1 + SLACK), slopes * (1 + SLACK)


def allowed_error(signal: Signal, dtype: torch.dtype) -> Tensor:
    """How far the model's result and that in float64 can be apart: rounding of both grows with the unit roundoff."""
    return signal.error * (1 + 2 * UNIT / torch.finfo(dtype).eps) * (1 + SLACK)


def bake_in_float64(model: nn.Module) -> nn.Module:
    """A copy of plain modules in float64, with the weights that the parametrizations of the model give now."""
    twin = copy.deepcopy(model)
    for module, double in zip(list(model.modules()), list(twin.modules()), strict=True):
        if parametrize.is_parametrized(module):
            names = list(module.parametrizations)  # type: ignore[arg-type]
            del double._modules["parametrizations"]
            # Not remove_parametrizations, which would take the weight from the class that both share.
            double.__class__ = type(module).__bases__[0]
            for name in names:
                double._parameters[name] = nn.Parameter(getattr(module, name).detach().clone())
        # Whoever changes a result by a hook is found out by comparing with the model itself.
        remove_hooks(double, lambda hook: True)
    return twin.double().eval()


def check_model(model: nn.Module) -> torch.dtype:
    """The dtype in which it computes, if it is a model in evaluation."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    for name, module in model.named_modules():
        if module.training and isinstance(module, MODAL):
            kind = type(module).__name__
            raise ValueError(f"model must be in evaluation mode, got {kind} {name!r} in training; call model.eval()")
        loose = [key for key, value in vars(module).items() if isinstance(value, Tensor)]
        if loose:
            raise ValueError(
                f"model must store its tensors as parameters or buffers, got {name}.{loose[0]} (as left by old-style "
                "spectral_norm); use torch.nn.utils.parametrizations.spectral_norm, or register_buffer"
            )
    dtypes = {tensor.dtype for tensor in (*model.parameters(), *model.buffers()) if tensor.is_floating_point()}
    if len(dtypes) != 1 or not dtypes <= {torch.float32, torch.float64}:
        present = ", ".join(sorted(map(str, dtypes))) or "no parameters"
        raise ValueError(f"model must have parameters in torch.float32 or torch.float64, got {present}; call .float()")
    return dtypes.pop()


def check_images(images: Tensor, labels: Tensor, dtype: torch.dtype) -> None:
    """Refuse what is no batch of images with their classes."""
    if not isinstance(images, Tensor) or images.dim() < 2 or len(images) == 0:
        shape = tuple(images.shape) if isinstance(images, Tensor) else type(images).__name__
        raise ValueError(f"images must be a non-empty batch (batch, ...), got {shape}; for one image, x.unsqueeze(0)")
    if images.dtype != dtype:
        raise ValueError(f"images must have the model's dtype {dtype}, got {images.dtype}; pass images.to({dtype})")
    if not bool(torch.isfinite(images).all()):
        raise ValueError(f"images must be finite, got {int((~torch.isfinite(images)).sum())} entries that are not")
    is_whole = isinstance(labels, Tensor) and not labels.is_floating_point() and not labels.is_complex()
    if not is_whole or labels.dtype == torch.bool or labels.shape != images.shape[:1]:
        got = f"{tuple(labels.shape)} of {labels.dtype}" if isinstance(labels, Tensor) else type(labels).__name__
        raise ValueError(f"labels must be whole numbers of shape ({len(images)},), one per image, got {got}")


def check_logits(logits: Tensor, labels: Tensor) -> None:
    """Refuse what is not a row of logits for each image, or does not have the class of a label."""
    if logits.dim() != 2 or logits.shape[1] < 2:
        raise ValueError(
            f"model must return logits (batch, classes) of at least two classes, got {tuple(logits.shape)}"
        )
    if not bool(torch.isfinite(logits).all()):
        raise ValueError("the model's logits are not finite; look for NaN or infinity in its weights with oni.spectrum")
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= logits.shape[1]:
        value = low if low < 0 else high
        raise ValueError(f"labels must be from 0 to {logits.shape[1] - 1}, the classes of the model, got {value}")


def check_agreement(signal: Signal, logits: Tensor, dtype: torch.dtype) -> None:
    """Refuse a model that does something else than its forward says, or computes in another precision."""
    apart = norms(logits.double() - signal.value)
    allowed = allowed_error(signal, dtype)
    if not bool((apart <= allowed).all()):
        worst = int((apart - allowed).nan_to_num(math.inf).argmax())
        raise ValueError(
            f"the model's logits differ by {float(apart[worst]):.3g} from those computed in float64, but rounding in "
            f"{dtype} explains only {float(allowed[worst]):.3g}; remove hooks that change results, and autocast or TF32"
        )
