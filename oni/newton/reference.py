r"""The reference for everything else: slow, plain, independent of the fast path.

* :func:`oracle`: the definition. A float64 singular value decomposition whose values go through the scalar map.
* :func:`direct`: :math:`W \leftarrow \tfrac32 W - \tfrac12 W W^\top W`, differentiable and stable; the gradient oracle.
* :func:`literal`: the paper's Algorithms 1 and 2 to the letter, which lose accuracy after about eight steps.
* :func:`authors`: the same as released by its authors, to measure the cost of their code.
* :func:`printed_backward`: the paper's backward formulas, with its centring gradient as printed or corrected.
"""

from __future__ import annotations

import torch
from torch import Tensor

from oni.newton.bounding import SCHATTEN_ORDER, TRACE_POWER
from oni.newton.matrix import split_groups
from oni.newton.schedule import get_schedule

__all__ = ["authors", "direct", "literal", "oracle", "printed_backward"]


def oracle(
    Z: Tensor,
    steps: int = 5,
    *,
    center: bool = False,
    bound: str = "compact",
    groups: int = 1,
    schedule: str = "newton",
) -> Tensor:
    r"""The definition, in float64: :math:`U \operatorname{diag}(\varphi_T(\sigma / \sqrt f)) R^\top`.

    Singular values below the float64 rounding error of the decomposition count as zero: they are zero or meaningless,
    and a long schedule would lift them.
    """
    A = split_groups(Z.detach().double(), groups)
    if center:
        A = A - A.mean(-1, keepdim=True)
    U, sigma, Rh = torch.linalg.svd(A, full_matrices=False)
    noise = sigma[..., :1] * max(A.shape[-2:]) * torch.finfo(torch.float64).eps
    # Centring itself leaves noise of the size of the mean it removed.
    noise = torch.maximum(noise, Z.detach().double().abs().amax() * 4 * torch.finfo(torch.float64).eps)
    sigma = torch.where(sigma > noise, sigma, 0.0)
    if bound in TRACE_POWER:
        k, power = sigma.shape[-1], 2 * TRACE_POWER[bound]
        m = (sigma**power).mean(-1, keepdim=True)
        f = (m + ((k - 1) / k) ** 0.5 * (sigma**power - m).norm(dim=-1, keepdim=True)) ** (1 / power)
    else:
        f = torch.linalg.vector_norm(sigma, ord=SCHATTEN_ORDER[bound], dim=-1, keepdim=True)
    s = sigma / torch.where(f == 0, 1.0, f)
    for polynomial in polynomials(schedule, steps):
        s = s * sum(c * s ** (2 * i) for i, c in enumerate(polynomial))
    return (U @ (s[..., None] * Rh)).reshape(Z.shape)


def direct(
    Z: Tensor,
    steps: int = 5,
    *,
    center: bool = False,
    bound: str = "compact",
    groups: int = 1,
    schedule: str = "newton",
) -> Tensor:
    """The same map in its simplest stable form, in Z's own precision, differentiable by autograd."""
    W = split_groups(Z, groups)
    if center:
        W = W - W.mean(-1, keepdim=True)
    M = W @ W.mT if W.shape[-2] <= W.shape[-1] else W.mT @ W
    if bound in TRACE_POWER:
        k = M.shape[-1]
        power = torch.linalg.matrix_power(M, TRACE_POWER[bound])
        m = power.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
        D = power - m * torch.eye(k, dtype=M.dtype, device=M.device)
        f = (m + ((k - 1) / k) ** 0.5 * torch.linalg.matrix_norm(D, keepdim=True)) ** (1 / TRACE_POWER[bound])
    else:
        power = torch.linalg.matrix_power(M, SCHATTEN_ORDER[bound] // 2)
        f = power.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None] ** (2 / SCHATTEN_ORDER[bound])
    W = W / f.sqrt()
    for first, *others in polynomials(schedule, steps):
        power, total = W, first * W
        for c in others:
            power = W @ W.mT @ power if W.shape[-2] <= W.shape[-1] else power @ (W.mT @ W)
            total = total + c * power
        W = total
    return W.reshape(Z.shape)


def polynomials(schedule: str, steps: int) -> list[tuple[float, ...]]:
    """The odd polynomials of a schedule, by their coefficients, the first power's first; Newton's one by one."""
    return (
        [(1.5, -0.5)] * steps
        if schedule == "newton"
        else [s.coefficients() for s in get_schedule(schedule).stages(steps)]
    )


def literal(Z: Tensor, steps: int = 5, *, center: bool = True, bound: str = "compact") -> Tensor:
    r"""The paper to the letter: :math:`B \leftarrow \tfrac32 B - \tfrac12 B^3 S` on the n x n Gram matrix.

    Algorithm 1 is ``center=False, bound="frobenius"``, Algorithm 2 is the default.
    """
    if center:
        Z = Z - Z.mean(-1, keepdim=True)
    norm = torch.linalg.matrix_norm(Z) if bound == "frobenius" else torch.linalg.matrix_norm(Z @ Z.mT).sqrt()
    V = Z / norm[..., None, None]
    S = V @ V.mT
    B = torch.eye(Z.shape[-2], dtype=Z.dtype, device=Z.device)
    for _ in range(steps):
        B = 1.5 * B - 0.5 * B @ B @ B @ S
    return B @ V


def authors(Z: Tensor, steps: int, *, center: bool) -> Tensor:
    """The paper's iteration as its authors released it: one Gram matrix serves the bound and the iteration."""
    if center:
        Z = Z - Z.mean(-1, keepdim=True)
    n = Z.shape[-2]
    one = torch.eye(n, dtype=Z.dtype, device=Z.device)
    M = Z @ Z.mT + 1e-5 * one
    norm = torch.linalg.matrix_norm(M, keepdim=True)
    S = (M / norm).reshape(-1, n, n)
    B = one.expand_as(S)
    for _ in range(steps):
        B = torch.baddbmm(B, B @ B @ B, S, beta=1.5, alpha=-0.5)
    return B.reshape(M.shape) @ Z / norm.sqrt()


def printed_backward(
    Z: Tensor,
    G: Tensor,
    steps: int = 5,
    *,
    center: bool = True,
    bound: str = "compact",
    centring_gradient: str = "corrected",
) -> Tensor:
    r"""The paper's backward formulas for one matrix Z (n, d), given G = dL/dW.

    ``centring_gradient="printed"`` multiplies by :math:`\tfrac1d 1 1^\top` from the left, as the appendix has it;
    ``"corrected"`` from the right, which removes row means. The saved :math:`B_t` must include :math:`B_0 = I`.
    """
    n, d = Z.shape
    Zc = Z - Z.mean(-1, keepdim=True) if center else Z
    M = Zc @ Zc.mT
    delta = Zc.norm() if bound == "frobenius" else M.norm().sqrt()
    V = Zc / delta
    S = V @ V.mT
    B = [torch.eye(n, dtype=Z.dtype)]
    for _ in range(steps):
        B.append(1.5 * B[-1] - 0.5 * B[-1] @ B[-1] @ B[-1] @ S)

    dB, dS = G @ V.mT, torch.zeros_like(S)
    for b in reversed(B[:-1]):
        dS = dS - 0.5 * (b @ b @ b).mT @ dB
        dB = 1.5 * dB - 0.5 * (dB @ (b @ b @ S).mT + (b @ b).mT @ dB @ S.mT + b.mT @ dB @ (b @ S).mT)
    dV = B[-1].mT @ G + (dS + dS.mT) @ V
    if bound == "frobenius":
        dZc = (dV - (dV * Zc).sum() / delta**2 * Zc) / delta
    else:
        dM = -(dV * Zc).sum() / (2 * delta**5) * M
        dZc = dV / delta + (dM + dM.mT) @ Zc
    if not center:
        return dZc
    if centring_gradient == "printed":
        return dZc - torch.ones(n, n, dtype=Z.dtype) @ dZc / d
    return dZc - dZc.mean(-1, keepdim=True)
