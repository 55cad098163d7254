"""The peak of memory that a call takes: exact to the byte, and the same every time."""

from __future__ import annotations

import os
from collections.abc import Callable

import torch
from torch.autograd.profiler import profile

__all__ = ["peak_memory"]


def peak_memory(call: Callable[[], object], device: str = "cpu") -> int:
    """The most bytes that were allocated at once during the call, beyond those allocated before.

    On the CPU every allocation and release is taken from torch's profiler and added up in order. What libraries
    allocate on their own (a BLAS's packing buffers) is in no such record.

    >>> peak_memory(lambda: torch.ones(1000) + torch.ones(1000))
    12000
    """
    if device != "cpu":
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        call()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    # The profiler's library writes to standard error at every start and stop otherwise.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    with profile(profile_memory=True) as recorded:
        call()
    assert recorded.kineto_results is not None
    events = [event for event in recorded.kineto_results.events() if event.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak
