"""Properties over shape, rank, conditioning, scale, dtype, bound, centre and groups, against the float64 oracle."""

import torch
from hypothesis import assume, given
from hypothesis import strategies as st

import oni
from oni.newton.reference import direct, oracle

BOUNDS = ["frobenius", "compact", "trace", "trace2", "tight"]


@st.composite
def problems(draw):
    rows, groups = draw(st.integers(1, 8)), draw(st.integers(1, 3))
    n, d = rows * groups, draw(st.integers(1, 16))
    batch = draw(st.sampled_from([(), (2,), (2, 1)]))
    rank = draw(st.integers(1, min(n, d)))
    decades = draw(st.floats(0, 3))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    left = torch.randn(*batch, n, rank, generator=generator, dtype=torch.float64)
    right = torch.randn(*batch, rank, d, generator=generator, dtype=torch.float64)
    sigma = torch.logspace(0, -decades, rank, dtype=torch.float64)
    scale = 10.0 ** draw(st.floats(-20, 20))
    options = {
        "steps": draw(st.integers(0, 14)),
        "center": draw(st.booleans()),
        "bound": draw(st.sampled_from(BOUNDS)),
        "groups": groups,
        "schedule": draw(st.sampled_from(["newton", "minimax", "minimax:0.01"])),
    }
    return (left * sigma) @ right * scale, options


def hopeless(Z, options):
    """Centring left nothing but the rounding of Z itself: there is no right answer then."""
    rows = Z.unflatten(-2, (options["groups"], -1))
    spread = (rows - rows.mean(-1, keepdim=True)).abs().amax((-2, -1))
    return options["center"] and bool((spread <= 1e-3 * rows.abs().amax((-2, -1))).any())


@given(problems())
def test_float64(problem):
    Z, options = problem
    assume(not hopeless(Z, options))
    W = oni.orthogonalize(Z, **options)
    assert W.shape == Z.shape
    assert W.dtype == Z.dtype
    # Epsilon, times the square of a part's slope (657^2) in the worst case.
    torch.testing.assert_close(W, oracle(Z, **options), atol=1e-9, rtol=0)
    assert oni.spectrum(W.unflatten(-2, (options["groups"], -1))).max() <= 1 + 1e-12


@given(problems(), st.sampled_from([torch.float32, torch.bfloat16, torch.float16]))
def test_lower_precision(problem, dtype):
    Z, options = problem
    if dtype == torch.float16:
        Z = Z / Z.abs().max()
    Z = Z.to(dtype)
    assume(not hopeless(Z, options))
    W = oni.orthogonalize(Z, **options)
    assert W.shape == Z.shape
    assert W.dtype == dtype
    exact = oracle(Z, **options)
    # The promise for float32, and the rounding of the answer to the caller's own precision.
    assert (W.double() - exact).abs().max() < 2e-4 + torch.finfo(dtype).eps


@given(problems())
def test_gradient(problem):
    Z, options = problem
    assume(not hopeless(Z, options))
    Z = (Z / Z.abs().max()).requires_grad_()
    G = torch.randn(Z.shape, dtype=Z.dtype, generator=torch.Generator().manual_seed(0))
    (ours,) = torch.autograd.grad(oni.orthogonalize(Z, **options), Z, G)
    (theirs,) = torch.autograd.grad(direct(Z, **options), Z, G)
    # As above; relative, because in a null space the gradient itself is as large as the slope.
    assert (ours - theirs).norm() <= 1e-7 * theirs.norm() + 1e-12


@given(problems())
def test_steps_never_lower_a_singular_value(problem):
    Z, options = problem
    assume(options["schedule"] == "newton" and not hopeless(Z, options))
    W = oni.orthogonalize(Z, **options)
    longer = oni.orthogonalize(Z, **{**options, "steps": options["steps"] + 1})
    groups = (options["groups"], -1)
    before, after = oni.spectrum(W.unflatten(-2, groups)), oni.spectrum(longer.unflatten(-2, groups))
    assert (after >= before - 1e-9).all()
