"""The protocol buffer `tf.train.Example` without TensorFlow: lists of bytes, floats or whole numbers by name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Kind = Literal["bytes", "floats", "ints"]

_KINDS: dict[int, Kind] = {1: "bytes", 2: "floats", 3: "ints"}
_VARINT, _EIGHT, _SIZED, _FOUR = 0, 1, 2, 5


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """A number of seven bits a byte, least first; and where it ends."""
    value = 0
    for n in range(10):
        if at + n >= len(data):
            raise ValueError("a number is cut off")
        value |= (data[at + n] & 127) << 7 * n
        if data[at + n] < 128:
            return value & (2**64 - 1), at + n + 1
    raise ValueError("a number has more than ten bytes")


def _fields(data: memoryview) -> Iterator[tuple[int, int, memoryview]]:
    """Number, wire type and content of each field of a message."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            _, end = _varint(data, at)
        elif wire in (_EIGHT, _FOUR):
            end = at + (8 if wire == _EIGHT else 4)
        elif wire == _SIZED:
            size, at = _varint(data, at)
            end = at + size
        else:
            raise ValueError(f"there is no wire type {wire}")
        if end > len(data) or number == 0:
            raise ValueError("a field is cut off" if number else "a field has number 0")
        yield number, wire, data[at:end]
        at = end


def _sized(data: memoryview, number: int) -> Iterator[memoryview]:
    """The messages or strings in one field of a message."""
    for found, wire, content in _fields(data):
        if found == number:
            if wire != _SIZED:
                raise ValueError(f"field {number} should be a message or a string")
            yield content


class Feature(NamedTuple):
    """A list of values, not yet taken apart."""

    kind: Kind
    data: memoryview

    def bytes_list(self) -> list[bytes]:
        """The values, where they are strings of bytes."""
        self._expect("bytes")
        return [bytes(value) for value in _sized(self.data, 1)]

    def rows(self) -> NDArray[np.uint8]:
        """The values [n,L], where they are strings of bytes of one length L: without a loop over a million values."""
        self._expect("bytes")
        first = next(_sized(self.data, 1), None)
        if first is None:
            return np.zeros((0, 0), np.uint8)
        raw = np.frombuffer(self.data, np.uint8)
        _, start = _varint(self.data, 1)  # after a tag of one byte comes the length
        step = start + len(first)
        if raw[0] == 0x0A and len(raw) % step == 0:
            table = raw.reshape(-1, step)
            if (table[:, :start] == raw[:start]).all():
                return table[:, start:]
        raise ValueError("its values should all have the same number of bytes")

    def floats(self) -> NDArray[np.float32]:
        """The values, where they are floats."""
        self._expect("floats")
        parts = []
        for number, wire, content in _fields(self.data):
            if number == 1:
                if wire not in (_SIZED, _FOUR) or len(content) % 4:
                    raise ValueError("its floats do not have four bytes each")
                parts.append(np.frombuffer(content, "<f4"))
        return np.concatenate(parts).astype(np.float32) if parts else np.zeros(0, np.float32)

    def ints(self) -> NDArray[np.int64]:
        """The values, where they are whole numbers."""
        self._expect("ints")
        parts = []
        for number, wire, content in _fields(self.data):
            if number == 1:
                if wire not in (_SIZED, _VARINT):
                    raise ValueError("its whole numbers are not stored as such")
                parts.append(_varints(content))
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)

    def _expect(self, kind: Kind) -> None:
        if self.kind != kind:
            raise ValueError(f"it should be a list of {kind}, not of {self.kind}")


def _varints(data: memoryview) -> NDArray[np.int64]:
    """Numbers one after another, as `_varint` reads them, all at once."""
    raw = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(raw < 128)
    if not len(raw):
        return np.zeros(0, np.int64)
    if not len(ends) or ends[-1] != len(raw) - 1:
        raise ValueError("a number is cut off")
    starts = np.concatenate(([0], ends[:-1] + 1))
    if (ends - starts).max() > 9:
        raise ValueError("a number has more than ten bytes")
    place = (np.arange(len(raw)) - np.repeat(starts, ends - starts + 1)).astype(np.uint64)
    bits = (raw & np.uint8(127)).astype(np.uint64) << (place * np.uint64(7))
    return np.bitwise_or.reduceat(bits, starts).astype(np.int64)


def parse_example(data: bytes) -> dict[str, Feature]:
    """The features of an example by name.

    Raises:
        ValueError: the data is no example, or is damaged.
    """
    features: dict[str, Feature] = {}
    for block in _sized(memoryview(data), 1):
        for entry in _sized(block, 1):
            names, values = list(_sized(entry, 1)), list(_sized(entry, 2))
            if len(names) != 1 or len(values) != 1:
                raise ValueError("an entry should have one name and one value")
            name = bytes(names[0]).decode("utf-8")
            lists = [(number, content) for number, wire, content in _fields(values[0]) if wire == _SIZED]
            if len(lists) > 1 or any(number not in _KINDS for number, _ in lists):
                raise ValueError(f"feature {name!r} should be one list of bytes, floats or whole numbers")
            if lists:  # a feature with nothing in it is one that is not there
                features[name] = Feature(_KINDS[lists[0][0]], lists[0][1])
    return features
