"""Tolerances that follow from the size of a computation, so that they hold on every CPU."""

import math

import torch

# Forward, 5 steps make 12 matrix products (oni.newton.product_count); a network adds one for each layer.
FIVE_STEPS = 12


def rounding(products, size, *, values=1.0, dtype=torch.float32):
    """Tolerances for ``assert_close`` after so many matrix products in a row.

    A sum of ``size`` terms rounds by about sqrt(size) epsilon of its terms' size, and instruction sets order the sums
    differently; each product passes on the errors of those before it.

    Args:
        products: how many come one after the other.
        size: the length of the sums in them.
        values: the size of the numbers compared.
        dtype: what is computed in.
    """
    relative = products * math.sqrt(size) * torch.finfo(dtype).eps
    return {"atol": relative * values, "rtol": relative}
