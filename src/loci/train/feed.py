"""Sequences for training: from a world or a folder through one interface, one sequence ahead of the network."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from loci import random
from loci.config import Config, DataConfig
from loci.data.clip import Clip
from loci.data.source import Source, Split
from loci.errors import UserError
from loci.train.scene import Scene, still_scene
from loci.train.step import Lesson
from loci.worlds.open import WORLDS

ENDLESS = 2**31
ELSEWHERE = {
    "split": "training and evaluation take their own",
    "seed": "use --train.seed",
    "size": "use --model.height and --model.width",
    "length": "use --data.length",
}
"""What `data.options` may not say, and what does."""
LARGEST = 2**28
"""Pixels (over objects and frames) that labelled clips may have at once; more are made in portions."""
KEPT = 2**28
"""Bytes of held-out frames that are kept between two evaluations."""
GLANCE = 0.1
"""Seconds between two looks at whether to wait on."""


class Batch(NamedTuple):
    """What the network learns from in one sequence."""

    frames: Tensor
    """[B,T,3,H,W] uint8"""
    background: Tensor
    """[B,1,3,H,W] uint8, or [B,T,3,H,W] where it moves."""
    snitch: Tensor | None
    """[B,T,2] where CATER's snitch is."""

    def lesson(self, time: int) -> Lesson:
        """What frame `time` teaches; -1 is the bootstrap, which learns to see the first frame."""
        now, following = max(time, 0), time + 1
        return Lesson(
            frame=self.frames[:, now],
            target=self.frames[:, following],
            bootstrapping=time < 0,
            background=self.background[:, now] if self.background.shape[1] > 1 else None,
            snitch=None if self.snitch is None else self.snitch[:, following],
        )


def open_data(config: Config, split: Split, size: tuple[int, int]) -> Source:
    """The source that the config names, with frames of this size."""
    from loci.data.open import READERS, open_source

    data = config.data
    if data.source in READERS and data.source not in WORLDS and data.path is None:
        raise UserError(f"data.source {data.source} needs a file or a folder: --data.path PATH")
    spec = data.source if data.path is None else f"{data.source}:{data.path}"
    options = _options(data.options)
    for name, instead in ELSEWHERE.items():
        if name in options:
            raise UserError(f"data.options has {name}={options[name]}, which the run decides: {instead}")
    try:
        return open_source(spec, split=split, seed=config.train.seed, size=size, length=data.length, **options)
    except TypeError as error:
        if not options:
            raise
        raise UserError(
            f"data.options {' '.join(data.options)}: a value of another kind was expected ({error})"
        ) from error


def _options(words: Sequence[str]) -> dict[str, Any]:
    """name=value, the value as JSON or else as it stands."""
    options = {}
    for word in words:
        name, _, value = word.partition("=")
        try:
            options[name] = json.loads(value)
        except ValueError:
            options[name] = value
    return options


class Feed:
    """The batches of a run, numbered by sequence; the next one is made while the network learns from this one."""

    def __init__(
        self,
        source: Source,
        data: DataConfig,
        *,
        seed: int,
        entries: range,
        device: torch.device,
        snitch: bool,
        scene: Scene | None = None,
        out: Path | None = None,
    ) -> None:
        self.source = source
        self.batch = data.batch
        self.count = len(source) if data.clips is None else min(len(source), data.clips)
        if self.count < 1:
            raise UserError(f"{data.source} has no clips to train on")
        self.seed = seed
        self.entries = entries
        self.device = device
        self.snitch = snitch
        self.scene = scene
        self.out = out
        self.kept: dict[tuple[int, ...], Batch] = {}
        self.waited = 0.0
        self.worker = ThreadPoolExecutor(1, "feed")
        self.ahead: dict[int, Future[Batch]] = {}

    def get(self, sequence: int) -> Batch:
        """The batch of a sequence; the one after it is begun."""
        future = self._begin(sequence)
        begin = time.perf_counter()
        batch = future.result()
        self.waited += time.perf_counter() - begin
        del self.ahead[sequence]
        return batch

    def ready(self, sequence: int, stop: Callable[[], bool]) -> bool:
        """Wait for the batch of a sequence; False if `stop` says so before it is there."""
        future = self._begin(sequence)
        begin = time.perf_counter()
        while not (done := wait([future], GLANCE).done) and not stop():
            pass
        self.waited += time.perf_counter() - begin
        return bool(done)

    def _begin(self, sequence: int) -> Future[Batch]:
        """See to it that this batch and the next one are being made."""
        begun, self.ahead = self.ahead, {}
        for number in (sequence, sequence + 1):
            self.ahead[number] = begun.get(number) or self.worker.submit(self._make, number)
        return self.ahead[sequence]

    def close(self) -> None:
        """Let the worker go."""
        self.worker.shutdown(wait=False, cancel_futures=True)

    def indices(self, sequence: int, entries: range | None = None) -> list[int]:
        """Which clips a sequence shows, here or in these entries: all in turn, in a new order each time round."""
        numbers = [sequence * self.batch + entry for entry in (self.entries if entries is None else entries)]
        if self.count >= ENDLESS:
            return [number % self.count for number in numbers]
        return [self._shuffled(number // self.count, number % self.count) for number in numbers]

    def _shuffled(self, epoch: int, place: int) -> int:
        order = random.bits(random.key(self.seed, "epoch", epoch), (self.count,)).argsort(stable=True)
        return int(order[place])

    def _make(self, sequence: int) -> Batch:
        """Runs in the worker; on a GPU in a stream of its own, so that nobody waits for it."""
        if self.device.type != "cuda":
            return self.read(self.indices(sequence))
        stream = torch.cuda.Stream(self.device)
        with torch.cuda.stream(stream):
            batch = self.read(self.indices(sequence))
        stream.synchronize()
        return batch

    def read(self, indices: Sequence[int]) -> Batch:
        """These clips as a batch on the device."""
        if not self.snitch:
            return self._batch(self.source.clips(indices, labels=False, device=self.device))
        height, width = self.source.size
        portion = max(1, LARGEST // (height * width * self.source.length * 10))
        parts = [
            self._batch(self.source.clips(indices[i : i + portion], device=self.device))
            for i in range(0, len(indices), portion)
        ]
        where = torch.cat([part.snitch for part in parts if part.snitch is not None])
        return Batch(torch.cat([p.frames for p in parts]), torch.cat([p.background for p in parts]), where)

    def again(self, indices: Sequence[int]) -> Batch:
        """These clips, kept from the last time if they are not too large."""
        key = tuple(indices)
        if key in self.kept:
            return self.kept[key]
        batch = self.read(indices)
        if batch.frames.nbytes + sum(other.frames.nbytes for other in self.kept.values()) <= KEPT:
            self.kept[key] = batch
        return batch

    def _batch(self, clip: Clip) -> Batch:
        if self.scene is None and clip.background is None:
            self.scene = still_scene(self.source, self.count, self.out)
        background = clip.background if self.scene is None else self.scene.background(clip.frames)
        assert background is not None
        snitch = snitch_position(clip, self.source) if self.snitch else None
        return Batch(clip.frames, background, snitch)


def snitch_position(clip: Clip, source: Source) -> Tensor:
    """Where the snitch is in every frame, hidden or not, [B,T,2]."""
    shapes, names = clip.attributes.get("shape"), source.names.get("shape", ())
    if clip.position is None or shapes is None or "spl" not in names:
        raise UserError("supervision needs labels with CATER's snitch, and this source has none: set it to 0")
    is_snitch = (shapes == names.index("spl")).to(clip.position.dtype)
    return (clip.position * is_snitch[:, None, :, None]).sum(2)
