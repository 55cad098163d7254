"""Checkpoints as files: reading anybody's without running anything in them, writing plain ones."""

from __future__ import annotations

import errno
import pickle
import re
import stat
import zipfile
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from oni.files import write_atomically

__all__ = ["read", "state_dicts", "write"]

DEPTH = 6
"""How deep state dicts may be nested."""


def read(path: Path) -> Any:
    """What a ``.safetensors`` file or one by ``torch.save`` holds, on the CPU.

    Code is never run: a pickle of anything but tensors, numbers, strings and containers is refused.
    """
    refuse_device(path)
    with path.open("rb") as file:
        start = file.read(16)
    if path.suffix == ".safetensors":
        return read_safetensors(path)
    zipped = zipfile.is_zipfile(path)
    if zipped:
        refuse_compression(path)
    elif not start.startswith((b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")):
        cut = " (only the start of one: truncated?)" if start.startswith(b"PK\x03\x04") else ""
        raise ValueError(f"{path}: not a checkpoint: neither a zip archive{cut} nor a pickle, as torch.save writes")
    try:
        # Tensors of an archive are read from the file only when looked at.
        return torch.load(path, map_location="cpu", weights_only=True, mmap=zipped)
    except pickle.UnpicklingError as error:
        raise ValueError(f"{path}: {refusal(str(error))}") from None
    except MemoryError:
        raise ValueError(f"{path}: needs more memory than there is; it is damaged or malicious") from None
    except Exception as error:
        # torch's reader raises anything on damaged files: RuntimeError, EOFError, KeyError, struct.error, ...
        raise ValueError(f"{path}: can't be read as a checkpoint; truncated or damaged? ({brief(error)})") from None


def refuse_device(path: Path) -> None:
    """Refuse what has no end, or none yet: reading a pipe waits for ever, and /dev/zero fills the memory."""
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "is a directory; name the file in it", str(path))
    if not stat.S_ISREG(mode):
        raise ValueError(f"{path}: not a regular file; copy its contents into one")


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a ``.safetensors`` file."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except SafetensorError as error:
        raise ValueError(f"{path}: not a complete safetensors file ({brief(error)})") from None


def refuse_compression(path: Path) -> None:
    """torch.save stores tensors as they are; a small archive that unpacks to something vast was made by hand."""
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, NotImplementedError, UnicodeDecodeError, ValueError) as error:
        raise ValueError(f"{path}: its zip archive is damaged ({brief(error)})") from None
    unpacked = sum(entry.file_size for entry in entries)
    if unpacked > path.stat().st_size:
        raise ValueError(
            f"{path}: refused: {path.stat().st_size:,} bytes that unpack to {unpacked:,}, which torch.save never writes"
        )


def refusal(message: str) -> str:
    """Why a pickle was refused, in a line."""
    wanted = re.search(r"GLOBAL (\S+)", message)
    if wanted:
        return (
            f"refused: it wants to run {wanted[1]} as it loads, and a pickle can run anything; if you trust it, load "
            "it in Python with weights_only=False and save its state_dict() alone"
        )
    return f"refused: not a pickle of tensors alone, or damaged ({message.strip().splitlines()[-1][:120]})"


def brief(error: Exception) -> str:
    """The class and the first line of an error."""
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first[:120]}" if first else type(error).__name__


def state_dicts(held: Any) -> dict[str, dict[str, Tensor]]:
    """The state dicts in what a checkpoint holds, by where they are; the state of optimizers is left out.

    >>> W = torch.ones(2, 2)
    >>> held = {"model": {"0.weight": W}, "optimizer": {"state": {0: {"m": W}}, "param_groups": []}, "epoch": 3}
    >>> {where: list(state) for where, state in state_dicts(held).items()}
    {'model': ['0.weight']}
    """
    if isinstance(held, Tensor):
        return {"": {"tensor": held}}
    return dict(_walk(held, "", 0))


def _walk(held: Any, where: str, depth: int) -> Iterator[tuple[str, dict[str, Tensor]]]:
    if isinstance(held, Mapping):
        items = [(str(key), value) for key, value in held.items()]
    elif isinstance(held, list | tuple):
        items = [(str(index), value) for index, value in enumerate(held)]
    else:
        return
    own = {key: value for key, value in items if isinstance(value, Tensor)}
    if own:
        yield where, own
    for key, value in items:
        # Depth also ends what contains itself.
        if depth < DEPTH and isinstance(value, Mapping | list | tuple) and not is_training_state(key, value):
            yield from _walk(value, f"{where}/{key}" if where else key, depth + 1)


def is_training_state(key: str, value: Any) -> bool:
    """Whether this is the state of an optimizer, a schedule, a gradient scaler or random numbers."""
    if isinstance(value, Mapping) and {"state", "param_groups"} <= {str(name) for name in value}:
        return True
    return bool(re.search(r"optim|sched|scaler|rng|random", key.lower()))


def write(state: Mapping[str, Any], path: Path) -> None:
    """Write a state dict by suffix, ``.safetensors`` or ``.pt`` and ``.pth``: whole or not at all.

    In memory first: torch and safetensors, given a path, hide what the system says of a disk that is full.
    """
    if path.suffix == ".safetensors":
        from safetensors.torch import save

        write_atomically(path, save(dict(separate(state))))
    else:
        content = BytesIO()
        torch.save(dict(state), content)
        write_atomically(path, content.getbuffer())


def separate(state: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Contiguous tensors of which no two share memory, as safetensors asks."""
    seen = set()
    for key, value in state.items():
        tensor = value.detach().contiguous()
        address = tensor.untyped_storage().data_ptr()
        yield key, tensor.clone() if address in seen else tensor
        seen.add(address)
