"""Train neural networks whose weight matrices are as orthogonal as you ask for.

Controllable orthogonalisation by Newton's iteration (Huang et al., CVPR 2020): each weight W is computed from a
proxy Z, and the number of steps decides how far its singular values are pushed towards 1.

>>> import torch, oni
>>> W = oni.orthogonalize(torch.randn(64, 256), steps=10)
>>> bool(oni.orthogonality(W).row < 1e-3)
True
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oni.public import *  # noqa: F403
    from oni.public import __all__ as __all__
    from oni.public import __version__ as __version__


def __getattr__(name: str) -> Any:
    """Load the names of oni/public.py, and torch with them, when one is used: the command line starts without."""
    public = import_module("oni.public")
    globals().update({key: getattr(public, key) for key in ("__all__", "__version__", *public.__all__)})
    try:
        return globals()[name]
    except KeyError:
        raise AttributeError(f"module 'oni' has no attribute {name!r}") from None


def __dir__() -> list[str]:
    return sorted({*globals(), *import_module("oni.public").__all__})
