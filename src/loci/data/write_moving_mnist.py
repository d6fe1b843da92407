"""Moving MNIST as its readers expect it: one array `mnist_test_seq.npy` (T, N, H, W), and png files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import cv2
import numpy as np

from loci.data.clip import Clip
from loci.data.source import Source, Split
from loci.data.write import whole, write_json
from loci.data.write_labels import LabelledFolder, labels

ARRAY = "mnist_test_seq.npy"
_AT_ONCE = 256


class MovingMnistFolder(LabelledFolder):
    """`mnist_test_seq.npy`, `png/00000/000.png`, ... and `labels/00000.json`, ... of one split."""

    def write(self, number: int, clip: Clip, source: Source) -> None:
        """A folder of pictures, then labels."""
        names = [f"png/{number:05d}/{t:03d}.png" for t in range(clip.length)]
        folder = self.root / "png" / f"{number:05d}"
        if not folder.exists():
            with whole(folder) as part:
                part.mkdir()
                for name, frame in zip(names, clip.frames[0, :, 0].numpy(), strict=True):
                    (part / Path(name).name).write_bytes(cv2.imencode(".png", frame)[1].tobytes())
        write_json(self.labels_of(number), labels(clip, source, names))

    def finish(self, count: int, sources: Mapping[Split, Source]) -> None:
        """The array of the first `count` clips or more, if there are; they are quicker made again than read."""
        while self.done(count):
            count += 1
        source, path = sources[self.split], self.root / ARRAY
        shape = (source.length, count, *source.size)
        if path.exists() and np.load(path, mmap_mode="r", allow_pickle=False).shape == shape:
            return
        with whole(path) as part:
            array = np.lib.format.open_memmap(part, "w+", np.uint8, shape)
            for first in range(0, count, _AT_ONCE):
                some = range(first, min(first + _AT_ONCE, count))
                array[:, some.start : some.stop] = source.clips(some, labels=False).frames[:, :, 0].transpose(0, 1)
            array.flush()
