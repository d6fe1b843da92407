"""The main job: a video in, and for each frame where every object is, what it is, and how much of it is seen.

What is said of frame t is known the moment the network has seen frame t; nothing waits for later frames. Where an
object is comes from the network's view of this frame; its mask is the one foreseen for this frame a step before, which
is what the paper scores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from loci.kernels.fast import FastWatch
from loci.model import Loci, State, StepOutput
from loci.model.frames import as_frame
from loci.model.loss import FOREGROUND
from loci.model.seed import difference
from loci.track.clock import Clock
from loci.track.decode import Pixels
from loci.track.fit import Fit, tensor
from loci.track.link import Links, link
from loci.track.scene import Scene
from loci.track.video_in import Frame

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]
CLAIM = 0.5  # the mask value at which a slot has an object


@dataclass(frozen=True, eq=False)
class Tracked:
    """Everything about the N objects found so far, at one frame. Pixels are the video's own.

    An object keeps its entry, and its id, while it is hidden: `visible` is then near 0 and its mask is empty.
    """

    index: int
    """The frame's number, from 0."""
    time: float
    """Seconds since the video began."""
    pixels: Pixels
    """[H,W,3] the frame, RGB."""
    ids: Integers
    """[N] the objects' ids, from 1, in the order in which they were found."""
    slots: Integers
    """[N] which of the network's slots has it."""
    hues: Integers
    """[N] which of the fixed colours it is drawn in: its slot's, or its id's where ids are by motion."""
    positions: Floats
    """[N,2] row and column of the centre, seen or not."""
    sizes: Floats
    """[N] the standard deviation of the Gaussian that stands for it."""
    order: Integers
    """[N] 0 is in front, 1 behind it, ..."""
    visible: Floats
    """[N] the largest value of its mask: 1 is in full view, 0 hidden."""
    boxes: Floats
    """[N,4] left, top, width, height around its mask; while it is hidden, its last box moved along with its centre."""
    seen: NDArray[np.bool_]
    """[N] whether it is in sight: its mask exceeds 0.5 and has a pixel. What is not has no mask in files."""
    gestalts: Floats
    """[N,D] the code of what it is."""
    codes: Floats
    """[N,4] row, column, sigma in the network's own coordinates, and priority."""
    labels: NDArray[np.uint8]
    """[H,W] which slot has the pixel, from 1; 0 is the background. Of all slots, found or not."""
    pictures: NDArray[np.uint8]
    """[N,h,w,4] how the network paints it, at the network's size: RGB and its mask as opacity."""

    @cached_property
    def masks(self) -> NDArray[np.bool_]:
        """[N,H,W] the pixels of each object in sight; they never overlap."""
        return np.asarray((self.labels[None] == (self.slots[:, None, None] + 1)) & self.seen[:, None, None])


class Found(NamedTuple):
    """What the tracker itself remembers of the slots; all else is in the network's state."""

    ids: Integers
    """[K] the id, or 0."""
    boxes: Floats
    """[K,4] the last box around a mask."""
    centres: Floats
    """[K,2] where the centre was in the last frame."""
    last: Floats
    """[K,2] where it was when there was last a mask."""
    unseen: Integers
    """[K] frames since there was a mask."""
    total: int
    """How many ids there were so far."""
    links: Links | None
    """Whom ids stand for, where they are by motion."""

    @staticmethod
    def nothing(slots: int, by_motion: bool) -> Found:
        """No object yet."""
        boxes, centres, zero = np.zeros((slots, 4), np.float32), np.zeros((slots, 2), np.float32), np.zeros(slots, int)
        return Found(zero, boxes, centres, centres, zero, 0, Links.none() if by_motion else None)


def follow(
    model: Loci,
    frames: Iterator[Frame],
    fit: Fit,
    scene: Scene,
    *,
    seed: int = 0,
    slots: int | None = None,
    forget: int | None = None,
    jump: float | None = None,
    trim: bool = False,
    by_motion: bool = False,
    rate: float = 25.0,
    clock: Clock | None = None,
    watch: Callable[[State, StepOutput], None] = lambda _state, _out: None,
) -> Iterator[Tracked]:
    """Track frame by frame, in constant memory.

    Args:
        model: the network, in evaluation mode.
        frames: what comes in.
        fit: how the video's pixels and the network's belong together.
        scene: the background.
        seed: of where slots look for objects.
        slots: the most objects at a time, unless the network's own number.
        forget: let go of an object after so many frames out of sight; its slot then looks for another, with a new id.
        jump: a centre that moves by more than this share of the video's longer side, in the frames since it was last
            seen, is that of another object: it gets a new id.
        trim: cut masks to what differs from the background in this very frame.
        by_motion: ids go on along the paths of objects, from slot to slot (`link.py`), and not with the slots.
        rate: frames a second.
        clock: told how long things take.
        watch: shown the network's state and output after each frame; on a GPU the next frame overwrites them.
    """
    clock = clock or Clock()
    watcher = FastWatch(model)
    state: State | None = None
    water = None if scene.moving is None else scene.moving.start(1)
    found = Found.nothing(slots or model.config.slots, by_motion)
    patience = np.inf if forget is None else forget
    reach = np.inf if jump is None else jump * max(fit.video)
    for frame in clock.over("decoding", frames):
        with clock("scaling"):
            shown = tensor(fit.shrink(frame.pixels))[None].to(model.device)
        with clock("model"), torch.inference_mode():
            background = None
            if scene.moving is not None and water is not None:
                background, water = scene.moving.step(255 - shown if scene.turned else shown, water)
                background = 1 - background if scene.turned else background
            if state is None:
                first = tensor(scene.picture) if background is None else background
                state = watcher.bootstrap(shown, model.start(1, first, seed=seed, slots=slots))
            foreseen = _foreseen(state)
            if trim:
                foreseen = _trimmed(foreseen, shown, state.background if background is None else background)
            state, out = watcher.step(shown, state, background=background)
            view = _view(foreseen, out, fit)
        with clock("masks"), torch.inference_mode():
            found, tracked = _tracked(frame, view, fit, found, reach, patience, rate)
            if (gone := ((found.ids > 0) | by_motion) & (found.unseen > patience)).any():
                released = torch.from_numpy(gone)[None].to(state.claimed.device)
                state = state._replace(claimed=torch.where(released, 0, state.claimed))
                found = found._replace(ids=np.where(gone, 0, found.ids))
        watch(state, out)
        yield tracked


class _Foreseen(NamedTuple):
    """What the last step said of this frame, on the host: on a GPU the next step writes over it."""

    claimed: Floats
    masks: Tensor
    priority: Floats


def _foreseen(state: State) -> _Foreseen:
    def host(values: Tensor) -> Tensor:
        return torch.empty_like(values, dtype=torch.float32, device="cpu").copy_(values)

    return _Foreseen(
        host(state.claimed[0]).numpy(),
        host(state.masks[0]),
        host(state.code.priority[0]).numpy(),
    )


def _trimmed(foreseen: _Foreseen, frame: Tensor, background: Tensor) -> _Foreseen:
    """Masks of what is there: a slot that sees none of it is hidden."""
    scene = background.to(torch.float32)
    there = torch.sqrt(difference(as_frame(frame, scene.dtype, scene.device), scene))[0].cpu() > FOREGROUND
    slots = foreseen.masks[:-1] * there
    return foreseen._replace(masks=torch.cat((slots, 1 - slots.sum(0, keepdim=True))))


class _View(NamedTuple):
    """The network's answer for this frame, on the host."""

    claimed: Floats
    masks: Tensor
    pictures: Tensor
    position: Floats
    gestalt: Floats
    priority: Floats


def _view(foreseen: _Foreseen, out: StepOutput, fit: Fit) -> _View:
    """Where from what was seen in this frame; masks as foreseen for it."""
    painted = torch.sigmoid(out.view_logits[0] - 2.5)
    painted = (1 - painted if fit.negative else painted).float().cpu()
    pictures = torch.cat((painted, foreseen.masks[:-1, None]), 1)
    return _View(
        foreseen.claimed,
        foreseen.masks,
        (pictures.clamp(0, 1) * 255).round().to(torch.uint8).permute(0, 2, 3, 1),
        out.percept.position[0].float().cpu().numpy(),
        out.percept.gestalt[0].float().cpu().numpy(),
        foreseen.priority,
    )


def _tracked(
    frame: Frame, view: _View, fit: Fit, found: Found, reach: float, patience: float, rate: float
) -> tuple[Found, Tracked]:
    """In the video's own pixels, and only slots that have claimed an object."""
    visible = view.masks[:-1].amax((1, 2)).numpy()
    centres = fit.to_pixels(view.position[:, :2]).astype(np.float32)
    labels = fit.labels(view.masks)
    boxes = found.boxes + np.pad((centres - found.centres)[:, ::-1], ((0, 0), (0, 2))) * (found.boxes[:, 2:3] > 0)
    boxes, seen = _boxes(labels, boxes, visible > CLAIM)
    links, total = found.links, found.total
    if links is None:
        far = np.hypot(*(centres - found.last).T) > reach * (1 + found.unseen)
        ids = np.where(far, 0, found.ids)
        for slot in np.flatnonzero((view.claimed > CLAIM) & (visible > CLAIM) & (ids == 0)):
            total += 1
            ids[slot] = total
    else:
        here = np.flatnonzero(seen & (view.claimed > CLAIM))
        links, given = link(links, boxes[here].astype(np.float64), here, patience=patience, rate=rate)
        ids = np.where(np.isin(found.ids, given) | ~np.isin(found.ids, links.ids) | seen, 0, found.ids)
        ids[here], total = given, links.total
    last = np.where((seen | (ids == 0))[:, None], centres, found.last)
    unseen = np.where(seen, 0, found.unseen + 1)
    found = Found(ids, boxes, centres, last, unseen, total, links)
    slots = np.flatnonzero(ids)
    slots = slots[np.argsort(ids[slots])]
    depth = np.empty(len(slots), np.int64)
    depth[np.argsort(-view.priority[slots], kind="stable")] = np.arange(len(slots))
    return found, Tracked(
        index=frame.index,
        time=frame.time,
        pixels=frame.pixels,
        ids=ids[slots],
        slots=slots,
        hues=slots if links is None else ids[slots] - 1,
        positions=centres[slots],
        sizes=fit.radius(view.position[slots, 2]).astype(np.float32),
        order=depth,
        visible=visible[slots],
        boxes=boxes[slots],
        seen=seen[slots],
        gestalts=view.gestalt[slots],
        codes=np.concatenate((view.position, view.priority[:, None]), 1)[slots],
        labels=labels,
        pictures=view.pictures.numpy()[slots],
    )


def _boxes(labels: NDArray[np.uint8], otherwise: Floats, clear: NDArray[np.bool_]) -> tuple[Floats, NDArray[np.bool_]]:
    """Left, top, width, height of the pixels of each label that is clear; for others, and without a pixel, as given."""
    boxes, seen = otherwise.astype(np.float32), np.zeros(len(otherwise), np.bool_)
    for slot in np.flatnonzero(clear):
        mine = labels == slot + 1
        rows = np.flatnonzero(mine.any(1))
        if rows.size:
            columns = np.flatnonzero(mine[rows[0] : rows[-1] + 1].any(0))
            boxes[slot] = columns[0], rows[0], columns[-1] - columns[0] + 1, rows[-1] - rows[0] + 1
            seen[slot] = True
    return boxes, seen
