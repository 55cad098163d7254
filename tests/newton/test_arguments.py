"""Bad arguments: the error names the argument, the value and the remedy."""

import pytest
import torch

import oni

Z = torch.randn(4, 6)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"steps": -1}, ValueError, "steps must not be negative, got -1"),
        ({"steps": 2.0}, TypeError, "steps must be a whole number, got 2.0 of type float"),
        ({"steps": "5"}, TypeError, "steps must be a whole number, got '5'"),
        ({"steps": True}, TypeError, "steps must be a whole number, got True"),
        ({"steps": None}, TypeError, "steps must be a whole number, got None"),
        (
            {"bound": "spectral"},
            ValueError,
            "bound must be one of 'frobenius', 'compact', 'trace', 'trace2', 'tight', got 'spectral'",
        ),
        ({"bound": None}, ValueError, "bound must be one of .* got None"),
        ({"center": "always"}, ValueError, "center must be True, False or \"auto\", got 'always'"),
        ({"center": 1}, ValueError, "center must be .* got 1"),
        ({"groups": 3}, ValueError, r"groups must divide the 4 rows of Z .* got 3; pass one of \[1, 2, 4\]"),
        ({"groups": 0}, ValueError, "groups must divide .* got 0"),
        ({"groups": -2}, ValueError, "groups must divide .* got -2"),
        ({"groups": 2.0}, TypeError, "groups must be a whole number, got 2.0"),
        ({"schedule": "polar"}, ValueError, "schedule must be one of 'newton', 'minimax', got 'polar'"),
        ({"schedule": None}, ValueError, "schedule must be one of .* got None"),
        ({"Z": torch.ones(3, 3, dtype=torch.int64)}, TypeError, "Z must be float16, .* got torch.int64"),
        ({"Z": torch.ones(3, 3, dtype=torch.bool)}, TypeError, "got torch.bool"),
        ({"Z": torch.ones(3, 3, dtype=torch.complex64)}, TypeError, "got torch.complex64"),
        ({"Z": torch.ones(3)}, ValueError, r"Z must be a matrix .* got shape \(3,\)"),
        ({"Z": torch.tensor(1.0)}, ValueError, r"got shape \(\)"),
        ({"Z": [[1.0, 2.0]]}, TypeError, "Z must be a torch.Tensor, got list"),
    ],
    ids=str,
)
def test_errors(arguments, error, words):
    before = Z.clone()
    with pytest.raises(error, match=words):
        oni.orthogonalize(**{"Z": Z, **arguments})
    assert torch.equal(Z, before)


def test_steps_may_be_any_integer_type():
    numpy = pytest.importorskip("numpy")
    assert torch.equal(oni.orthogonalize(Z, numpy.int64(3)), oni.orthogonalize(Z, 3))


def test_options_are_keywords():
    with pytest.raises(TypeError):
        oni.orthogonalize(Z, 5, True)
