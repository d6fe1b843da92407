"""`mnist_test_seq.npy`: the 10 000 test sequences of the common Moving MNIST, frames first: [20,10000,64,64]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from loci.data.batch import gather
from loci.data.clip import Clip
from loci.data.picture import LARGEST, Size, resized
from loci.data.source import Split
from loci.errors import UserError


@dataclass(frozen=True)
class MnistSequences:
    """Sequences of an array [T,N,H,W] as clips with three equal channels, on black.

    Attributes:
        path: the file.
        count: N.
        size: height and width that frames are brought to.
        length: frames in a clip: the first ones.
    """

    path: Path
    count: int
    size: Size
    length: int

    def __len__(self) -> int:
        return self.count

    @property
    def names(self) -> Mapping[str, tuple[str, ...]]:
        """The file does not say which digits it shows."""
        return {}

    def clips(self, indices: Sequence[int], *, labels: bool = True, device: torch.device | str = "cpu") -> Clip:
        """These clips, in this order; there are no labels to ask for."""
        return gather(partial(self._read, _array(self.path)), indices, self.count, device)

    def _read(self, array: NDArray[np.uint8], n: int) -> Clip:
        grey = np.stack([resized(frame[..., None], self.size) for frame in np.array(array[: self.length, n])])
        frames = torch.from_numpy(grey)[..., 0][:, None].expand(-1, 3, -1, -1)[None].contiguous()
        return Clip(frames, torch.zeros(1, 1, 3, *self.size, dtype=torch.uint8), index=torch.tensor([n]))


def _array(path: Path) -> NDArray[np.uint8]:
    """The file's array, not read yet."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError, SyntaxError, OverflowError) as error:
        raise UserError(f"{path} cannot be read as a numpy array of bytes: {error}") from error
    if not isinstance(array, np.ndarray) or array.dtype != np.uint8 or array.ndim != 4 or 0 in array.shape:
        found = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else "an archive"
        raise UserError(f"{path}: an array of bytes [frames, sequences, height, width] expected, got {found}")
    if array.shape[2] * array.shape[3] > LARGEST:
        raise UserError(f"{path}: frames of {array.shape[2]}x{array.shape[3]} are too large")
    return array


def open_mnist(
    path: Path, *, split: Split = "test", size: Size | None = None, length: int | None = None
) -> MnistSequences:
    """Open a file like `mnist_test_seq.npy`.

    Args:
        path: the file.
        split: "test"; such files have no other.
        size: what to bring frames to; by default their own.
        length: frames in a clip; by default all.
    """
    if split != "test":
        raise UserError(
            f"{path} holds test sequences only, not split {split!r}; for others take the world moving_mnist"
        )
    T, N, H, W = _array(path).shape
    if length is not None and not 1 <= length <= T:
        raise UserError(f"{path} has sequences of {T} frames, a clip cannot have {length}")
    return MnistSequences(path, N, size or (H, W), length or T)
