"""CRC-32C, which TFRecord files are sealed with, fast enough in numpy for records of megabytes.

A checksum is linear over GF(2): pieces of the data are done side by side, and a piece's checksum is moved past the
bytes that follow it by a 32×32 bit matrix, here four tables of 256 words.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint32]

_POLYNOMIAL = 0x82F63B78
_MASK_DELTA = 0xA282EAD8
_STEPS = 64  # bytes done one after another, at least; as many lanes of them side by side as there is data for


@functools.cache
def _byte_table() -> Words:
    """What a byte, shifted out of the register, leaves in it."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = (table >> np.uint32(1)) ^ (table & np.uint32(1)) * np.uint32(_POLYNOMIAL)
    return table


def _apply(tables: Words, register: Words) -> Words:
    """A matrix (as tables [4,256] for the register's four bytes) times registers."""
    result: Words = tables[0][register & 0xFF]
    for n in range(1, 4):
        result = result ^ tables[n][(register >> np.uint32(8 * n)) & 0xFF]
    return result


@functools.cache
def _past(zeros: int) -> Words:
    """The matrix that moves a register past so many zero bytes."""
    if zeros == 1:
        every = np.arange(256, dtype=np.uint32)
        registers = np.stack([every << np.uint32(8 * n) for n in range(4)])
        return (registers >> 8) ^ _byte_table()[registers & 0xFF]
    half = _past(zeros // 2)
    whole = _apply(half, half)
    return _apply(_past(1), whole) if zeros % 2 else whole


def crc32c(data: bytes | memoryview) -> int:
    """The CRC-32C (Castagnoli) of some bytes."""
    raw = np.frombuffer(data, np.uint8)
    register = np.uint32(0xFFFFFFFF)
    table = _byte_table()
    count = 1 << (len(raw) // _STEPS).bit_length() >> 1
    if count >= 16:
        step = len(raw) // count
        lanes = np.zeros(count, np.uint32)
        lanes[0] = register
        for column in np.ascontiguousarray(raw[: step * count].reshape(count, step).T):
            lanes = (lanes >> 8) ^ table[(lanes ^ column) & 0xFF]
        # Neighbours join until one is left: the first of each pair moves past the second's bytes.
        length = step
        while len(lanes) > 1:
            lanes = _apply(_past(length), lanes[::2]) ^ lanes[1::2]
            length *= 2
        register = lanes[0]
        raw = raw[step * count :]
    value, small = int(register), table.tolist()
    for byte in raw.tolist():
        value = (value >> 8) ^ small[(value ^ byte) & 0xFF]
    return value ^ 0xFFFFFFFF


def masked_crc32c(data: bytes | memoryview) -> int:
    """The checksum as TFRecord stores it: turned and shifted, so that a checksum of checksums stays useful."""
    value = crc32c(data)
    return ((value >> 15 | value << 17) + _MASK_DELTA) & 0xFFFFFFFF
