"""How kernels of our own are called."""

from __future__ import annotations

from typing import Any

import torch

try:
    import triton
except ImportError:
    triton = None


def available() -> bool:
    """Whether Triton is installed; torch's CPU build comes without."""
    return triton is not None


def launch(kernel: Any) -> Any:
    """A kernel as torch.compile wants it called; under Triton's interpreter (on a CPU) as it is."""
    return torch.library.wrap_triton(kernel) if torch.cuda.is_available() else kernel
