"""TFRecord files without TensorFlow: any record by its number, plain or gzip, every byte of it checked.

A record is its length (u64), that length's checksum, the data, and the data's checksum. Such a file has no index: one
is made while reading, so the first way to a late record leads past all before it. In a gzip file the decompressor's
state is kept from time to time, which makes later ways there short.
"""

from __future__ import annotations

import bisect
import struct
import threading
import weakref
import zlib
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from loci.data.checksum import masked_crc32c
from loci.errors import UserError

LARGEST = 2**28  # bytes of a record; the largest we know, MOVi's, have some 2^25
_HEAD = struct.Struct("<QI")
_SEAL = struct.Struct("<I")
_PIECE = 2**16
_SPACING = 2**27  # bytes between two kept states of the decompressor, each some 100 kB


class RecordError(UserError):
    """A record, and so all behind it, cannot be reached; `record` is its number, and that of whole ones before it."""

    def __init__(self, text: str, record: int) -> None:
        super().__init__(text)
        self.record = record


class _Damaged(Exception):  # noqa: N818
    """The bytes cannot be what they should; says why, without the place."""


class _Cursor(Protocol):
    """A place in the bytes of a file."""

    spacing: int

    def read(self, count: int) -> bytes:
        """So many bytes, fewer at the end."""
        ...

    def skip(self, count: int) -> int:
        """Go on, and say by how many bytes that was possible."""
        ...

    def mark(self) -> Any:
        """What `restore` needs to come back here."""
        ...

    def restore(self, mark: Any) -> None:
        """Come back."""
        ...


class _Plain:
    spacing = 0

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file, self._size = file, size

    def read(self, count: int) -> bytes:
        return self._file.read(count)

    def skip(self, count: int) -> int:
        count = min(count, self._size - self._file.tell())
        self._file.seek(count, 1)
        return count

    def mark(self) -> int:
        return self._file.tell()

    def restore(self, mark: int) -> None:
        self._file.seek(mark)


class _Packed:
    spacing = _SPACING

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._waiting = file, b""
        self._inflate = zlib.decompressobj(31)

    def read(self, count: int) -> bytes:
        result = bytearray()
        while len(result) < count and self._supply():
            try:
                result += self._inflate.decompress(self._waiting, count - len(result))
            except zlib.error as error:
                raise _Damaged(f"the gzip data is damaged ({error})") from error
            self._waiting = self._inflate.unconsumed_tail
        return bytes(result)

    def _supply(self) -> bool:
        """See to it that there is something to decompress; gzip files may be several, one after another."""
        if self._inflate.eof:
            self._waiting = self._inflate.unused_data or self._file.read(_PIECE)
            if not self._waiting:
                return False
            self._inflate = zlib.decompressobj(31)
        elif not self._waiting:
            self._waiting = self._file.read(_PIECE)
            if not self._waiting:
                raise _Damaged("the gzip data is cut off")
        return True

    def skip(self, count: int) -> int:
        left = count
        while left:
            piece = len(self.read(min(left, _PIECE * 16)))
            if not piece:
                break
            left -= piece
        return count - left

    def mark(self) -> tuple[Any, bytes, int]:
        return self._inflate.copy(), self._waiting, self._file.tell()

    def restore(self, mark: tuple[Any, bytes, int]) -> None:
        inflate, self._waiting, place = mark
        self._inflate = inflate.copy()
        self._file.seek(place)


class TfRecords:
    """The records of a file. Threads may share it: they wait for each other."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            file = path.open("rb")
            size = path.stat().st_size
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error}") from error
        weakref.finalize(self, file.close)  # a source lives as long as somebody reads from it; nobody closes it
        head = file.read(_HEAD.size)
        file.seek(0)
        sealed = len(head) == _HEAD.size and masked_crc32c(head[:8]) == _HEAD.unpack(head)[1]
        if not sealed and size and head[:2] != b"\x1f\x8b":
            raise UserError(f"{path} is no TFRecord file, plain or gzip: it does not begin with a sealed length")
        self._cursor: _Cursor = _Packed(file) if head[:2] == b"\x1f\x8b" and not sealed else _Plain(file, size)
        self._lock = threading.Lock()
        self._bytes = size
        self._marks: list[tuple[int, Any]] = [(0, self._cursor.mark())]
        self._since = 0  # bytes passed since the last mark
        self._next = 0  # the record the cursor stands before
        self._count: int | None = None

    def __repr__(self) -> str:
        """Which file, and which of its versions, as far as its size tells."""
        return f"TfRecords({str(self.path)!r}, {self._bytes} bytes)"

    def count(self) -> int:
        """How many records there are; reads to the end of the file the first time.

        Raises:
            RecordError: the file is cut off or damaged.
        """
        with self._lock:
            if self._count is None:
                self._go(2**62)
            assert self._count is not None
            return self._count

    def __getitem__(self, n: int) -> bytes:
        """The data of a record.

        Raises:
            UserError: there is no such record, or it or one before it is cut off or damaged.
        """
        with self._lock:
            length = self._go(n) if n >= 0 else None
            if length is None:
                raise UserError(f"{self.path} has no record {n}: they are counted from 0, and there are {self._count}")
            data = self._exactly(length, "data")
            (seal,) = _SEAL.unpack(self._exactly(_SEAL.size, "checksum"))
            self._passed(length)
            if masked_crc32c(data) != seal:
                raise UserError(f"{self.path}: record {n} is damaged: its checksum is wrong")
            return data

    def _go(self, n: int) -> int | None:
        """Stand behind the head of record n and say its length; None if there is no such record."""
        if self._count is not None and n >= self._count:
            return None
        number, mark = self._marks[bisect.bisect_right(self._marks, n, key=lambda m: m[0]) - 1]
        if not number <= self._next <= n:
            self._cursor.restore(mark)
            self._next, self._since = number, 0
        while (length := self._head()) is not None and self._next < n:
            if self._skip(length + _SEAL.size) < length + _SEAL.size:
                raise self._error("its data is cut off")
            self._passed(length)
        return length

    def _passed(self, length: int) -> None:
        """A record lies behind; keep the place now and then."""
        self._next += 1
        self._since += length
        if self._since >= self._cursor.spacing and self._next > self._marks[-1][0]:
            self._marks.append((self._next, self._cursor.mark()))
            self._since = 0

    def _head(self) -> int | None:
        """The length of the record the cursor stands before; None at the end."""
        raw = self._read(_HEAD.size)
        if not raw:
            self._count = self._next
            return None
        if len(raw) < _HEAD.size:
            raise self._error("its length is cut off")
        length, seal = _HEAD.unpack(raw)
        if masked_crc32c(raw[:8]) != seal:
            raise self._error("the checksum of its length is wrong")
        if length > LARGEST:
            raise self._error(f"it claims {length} bytes, at most {LARGEST} are read")
        return int(length)

    def _exactly(self, count: int, what: str) -> bytes:
        raw = self._read(count)
        if len(raw) < count:
            raise self._error(f"its {what} is cut off")
        return raw

    def _read(self, count: int) -> bytes:
        try:
            return self._cursor.read(count)
        except _Damaged as error:
            raise self._error(str(error)) from error

    def _skip(self, count: int) -> int:
        try:
            return self._cursor.skip(count)
        except _Damaged as error:
            raise self._error(str(error)) from error

    def _error(self, why: str) -> RecordError:
        """An error at the record the cursor stood before; after it the cursor's place is not known."""
        n = self._next
        self._next = -1
        whole = f"; the {n} before it can be had with limit={n}" if n else ""
        return RecordError(f"{self.path}: record {n} cannot be read: {why}{whole}", n)
