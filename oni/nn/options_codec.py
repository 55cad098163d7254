"""The options of an orthogonal weight as a tensor in the ``state_dict``, so that a file says how it was trained.

It is a tensor because safetensors stores nothing else, and of floating-point numbers because code that averages,
converts or randomises all entries of a ``state_dict`` should neither fail on it nor spoil it. The content is JSON, one
number per byte: whole numbers that survive float16, bfloat16 and averages of equal ones.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import torch
from torch import Tensor

from oni.newton.matrix import Layout
from oni.newton.target import Target, check_target
from oni.nn.options import Options, make_options

__all__ = ["MOST_STEPS", "OtherVersion", "decode_options", "encode_options"]

LONGEST = 4096
CHOSEN_SIZE = 512
MOST_STEPS = 1000
"""That a file may ask for, as memory and time grow with them: 1000 lift even a singular value of 1e-170 to 1."""
VERSION = 2
"""Of the format. Version 1 had no targets, and its minimax schedule was two best cubics."""


class OtherVersion(ValueError):
    """The options were saved by a version of this package that computes differently or is not known."""


def encode_options(options: Options, layout: Layout) -> Tensor:
    """Write options and layout as numbers.

    >>> decode_options(encode_options(make_options(steps=3, scale="relu"), Layout(groups=2)).half())[0].scale
    1.4142135623730951
    """
    fields = {"oni": VERSION, **asdict(options), "layout": layout._asdict()}
    if options.target is None:
        del fields["target"]
    else:
        fields["target"] = options.target._asdict()
    text = json.dumps(fields, separators=(",", ":"))
    if options.target is not None:
        # What is chosen may change; the size may not, as distributed checkpoints are read into tensors of equal size.
        text = text.ljust(CHOSEN_SIZE)
    return torch.tensor(list(text.encode()), dtype=torch.float32)


def decode_options(tensor: object) -> tuple[Options, Layout]:
    """Read what ``encode_options`` wrote; ``ValueError`` for anything else."""
    if not isinstance(tensor, Tensor) or tensor.dim() != 1 or not 0 < tensor.numel() <= LONGEST:
        raise ValueError("not the saved options of an orthogonal weight")
    try:
        fields = json.loads(bytes(tensor.detach().cpu().float().round().int().tolist()).decode("ascii"))
        layout = Layout(**fields.pop("layout"))
        version = fields.pop("oni")
        target = fields.pop("target", None)
        options = make_options(**fields)
        if target is not None:
            sigma_min, bound, schedule = (target[name] for name in Target._fields)
            asked = make_options(sigma_min=check_target(sigma_min), bound=bound, schedule=schedule)
            options = replace(options, target=asked.target)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"not the saved options of an orthogonal weight ({type(error).__name__})") from None
    valid_layout = type(layout.groups) is int and layout.groups > 0 and type(layout.transposed) is bool
    if version == 1 and options.schedule == "minimax":
        raise OtherVersion(
            "the weight was trained with an earlier minimax schedule (two best cubics) that is no longer supported; "
            "bake it with the version that saved it"
        )
    if version not in (1, VERSION) or not valid_layout:
        raise OtherVersion(f"the options of an orthogonal weight were saved in an unknown format (version {version!r})")
    return options, layout
