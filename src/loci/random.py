"""Random numbers as pure functions of a key.

A number is a hash of (key, stream, position): no state, so the same on every machine, batch size and number of
processes, resumable without saving anything, and safe inside a CUDA graph because the key may be a tensor.

A key is an int64 tensor of any shape; `fold` derives new keys; `uniform`, `normal` and `integers` append dimensions to
the key's shape. The hash is the SplitMix64 finaliser, in wrapping int64 arithmetic.
"""

from __future__ import annotations

import hashlib
import math

import torch
from torch import Tensor

_GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as int64
_MIX_1 = -4658895280553007687  # 0xBF58476D1CE4E5B9
_MIX_2 = -7723592293110705685  # 0x94D049BB133111EB


def _shift(x: Tensor, bits: int) -> Tensor:
    """Shift right without the sign."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _mix(x: Tensor) -> Tensor:
    x = (x ^ _shift(x, 30)) * _MIX_1
    x = (x ^ _shift(x, 27)) * _MIX_2
    return x ^ _shift(x, 31)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def stream(name: str) -> int:
    """The number that stands for a purpose, such as "gestalt noise", in a key."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little", signed=True)


def key(*parts: int | str | Tensor, device: torch.device | str | None = None) -> Tensor:
    """A key from integers, names and integer tensors (which broadcast against each other)."""
    result = torch.zeros((), dtype=torch.int64, device=device)
    for part in parts:
        result = fold(result, part)
    return result


def fold(base: Tensor, part: int | str | Tensor) -> Tensor:
    """A new key for each pair of a key and a part; tensors broadcast."""
    number = stream(part) if isinstance(part, str) else part
    if isinstance(number, Tensor):
        return _mix(base * 3 + _mix(number.to(torch.int64) + _GOLDEN) + _GOLDEN)
    number = (number + 2**63) % 2**64 - 2**63
    constant = torch.full((), number, dtype=torch.int64, device=base.device)  # no copy from the host: graph-safe
    return _mix(base * 3 + _mix(constant + _GOLDEN) + _GOLDEN)


def bits(keys: Tensor, shape: tuple[int, ...] = ()) -> Tensor:
    """One int64 of 64 random bits for each position; shape [*keys.shape, *shape]."""
    count = math.prod(shape)
    index = torch.arange(1, count + 1, device=keys.device, dtype=torch.int64)
    return _mix(keys[..., None] + index * _GOLDEN).reshape(*keys.shape, *shape)


def uniform(keys: Tensor, shape: tuple[int, ...] = (), dtype: torch.dtype = torch.float32) -> Tensor:
    """Uniform numbers in [0, 1), exact multiples of 2^-24 (2^-53 in float64)."""
    digits = 53 if dtype == torch.float64 else 24
    return _shift(bits(keys, shape), 64 - digits).to(dtype) * 2.0**-digits


def integers(keys: Tensor, high: int, shape: tuple[int, ...] = ()) -> Tensor:
    """Whole numbers in [0, high)."""
    return _shift(bits(keys, shape), 1) % high


def normal(keys: Tensor, shape: tuple[int, ...] = (), dtype: torch.dtype = torch.float32) -> Tensor:
    """Standard normal numbers (Box and Muller), two uniforms each."""
    pair = uniform(keys, (2, *shape), dtype)
    first, second = pair.unbind(keys.dim())
    return torch.sqrt(-2 * torch.log1p(-first)) * torch.cos(2 * math.pi * second)
