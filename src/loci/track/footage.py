"""A look at somebody's own footage before a network is trained on it: what to choose, and whether it can work."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from loci.errors import UserError
from loci.track.background import SAMPLE, mixture, sample
from loci.track.decode import Pixels
from loci.track.fit import Fit
from loci.track.video_in import VIDEOS, open_video

Array = NDArray[np.float64]

CONTRAST = 25  # of 255: what differs this much from the background is foreground
SPECK = 0.0002  # of the frame's pixels: what is smaller is noise
_WORK = 320  # pixels of the longer side at which the look is taken
_PAIRS = 60  # pairs of consecutive frames for motion


@dataclass(frozen=True)
class Look:
    """What footage is like, and what a network for it should be like."""

    videos: tuple[Path, ...]
    """The files (or the folder of images)."""
    video: tuple[int, int]
    """Height and width of the first one."""
    rate: float
    """Frames per second."""
    frames: int
    """How many there are, about."""
    background: Pixels
    """[H,W,3] the scene without objects."""
    size: tuple[int, int]
    """Height and width a network should have, in the video's shape; it then sees a quarter of that ("coarse")."""
    slots: int
    """How many objects to reckon with."""
    blobs: tuple[float, float, float]
    """Small, typical and large (10, 50, 90%): the side of a square of a blob's area over the frame's longer side."""
    crowd: tuple[float, int]
    """Mean and largest number of blobs at a time."""
    foreground: float
    """Share of pixels that are not background."""
    dark: bool
    """Whether objects are darker than bright: then a network learns better on negatives."""
    motion: float
    """How far a blob moves in a frame, typically, as a share of the frame's longer side."""
    stride: int
    """Every so-manieth frame is enough to learn from: things move by about a pixel of the network's."""
    shake: float
    """How far the camera moves from frame to frame, in pixels of the video (half of the frames are steadier)."""
    drift: float
    """How far it has moved in the end."""
    advice: tuple[str, ...]
    """Plain words about what will not work, and what to do; empty if nothing is wrong."""

    def settings(self) -> dict[str, str]:
        """What was found, for a table."""
        longer = max(self.video)
        small, typical, large = (f"{share * longer:.0f}" for share in self.blobs)
        return {
            "video": f"{self.video[1]} x {self.video[0]}, {self.frames} frames, {self.rate:g} a second",
            "network": f"sees {self.size[1] // 4} x {self.size[0] // 4}, {self.slots} slots",
            "blobs": f"{small} / {typical} / {large} pixels across",
            "blobs at a time": f"{self.crowd[0]:.1f}, at most {self.crowd[1]}",
            "foreground": f"{self.foreground:.1%} of the pixels{', dark: taken as negatives' if self.dark else ''}",
            "motion": f"{self.motion * longer:.1f} pixels a frame",
            "camera": f"shakes by {self.shake:.2f}, drifts by {self.drift:.1f} pixels",
        }


def look(path: str | Path) -> Look:
    """Look at a video, a folder of videos or a folder of images."""
    videos = find(Path(path))
    with open_video(videos[0]) as first:
        facts = first.facts
    fit = Fit(facts.size, _working(facts.size), letterbox=False)
    background = mixture(sample(videos[0], SAMPLE))
    scene = Fit((background.shape[0], background.shape[1]), fit.network, letterbox=False).shrink(background)
    shown = sample(videos[0], SAMPLE, shrink=fit.shrink)
    counts, areas, shares = _blobs(shown, scene)
    moves, steps = _motion(videos[0], fit, scene)
    longer = max(fit.network)
    sides = np.sqrt(areas) / longer if len(areas) else np.zeros(1)
    small, typical, large = (float(value) for value in np.percentile(sides, (10, 50, 90)))
    size = _network(facts.size, small)
    motion = float(np.median(moves)) / longer if len(moves) else 0.0
    found = Look(
        videos=videos,
        video=facts.size,
        rate=facts.rate,
        frames=(facts.count or 0) * len(videos),
        background=background,
        size=size,
        slots=int(np.clip(np.ceil(1.25 * np.percentile(counts, 98)) + 2, 2, 24)),
        blobs=(small, typical, large),
        crowd=(float(counts.mean()), int(counts.max())),
        foreground=float(shares.mean()),
        dark=_brightness(shown, scene) < 0.5,
        motion=motion,
        stride=int(np.clip(1 / step, 1, 8)) if (step := motion * max(size) / 4) > 0 else 1,
        shake=float(np.median(np.abs(steps).max(-1))) * facts.size[1] / fit.network[1],
        drift=_drift(videos[0], fit) * facts.size[1] / fit.network[1],
        advice=(),
    )
    return _advised(found)


def find(path: Path) -> tuple[Path, ...]:
    """The videos meant: a file, the videos in a folder, or a folder of images."""
    if not path.exists():
        raise UserError(f"no file or folder {str(path)!r}")
    if not path.is_dir():
        return (path,)
    inside = tuple(sorted(each for each in path.iterdir() if each.suffix.lower() in VIDEOS))
    return inside or (path,)


def _working(size: tuple[int, int]) -> tuple[int, int]:
    scale = min(1.0, _WORK / max(size))
    return max(8, round(size[0] * scale)), max(8, round(size[1] * scale))


def _differs(frame: Pixels, scene: Pixels) -> Pixels:
    """1 where a frame is not the background, specks and holes removed."""
    far = np.abs(frame.astype(np.int16) - scene).max(-1) > CONTRAST
    kernel = np.ones((3, 3), np.uint8)
    opened = cv2.morphologyEx(far.astype(np.uint8), cv2.MORPH_OPEN, kernel)
    return np.asarray(cv2.morphologyEx(opened, cv2.MORPH_CLOSE, np.ones((5, 5), np.uint8)), np.uint8)


def _blobs(frames: list[Pixels], scene: Pixels) -> tuple[Array, Array, Array]:
    """Blobs in each frame; their areas in pixels; the share of foreground in each frame."""
    counts, areas, shares = [], [], []
    least = max(4, SPECK * scene.shape[0] * scene.shape[1])
    for frame in frames:
        mask = _differs(frame, scene)
        parts = cv2.connectedComponentsWithStats(mask, connectivity=8)[2][1:, cv2.CC_STAT_AREA]
        parts = parts[parts >= least]
        counts.append(len(parts))
        areas.extend(parts.tolist())
        shares.append(mask.mean())
    return np.array(counts, float), np.array(areas, float), np.array(shares, float)


def _brightness(frames: list[Pixels], scene: Pixels) -> float:
    """Of the foreground, from 0 to 1; 1 where there is none."""
    inside = [frame[_differs(frame, scene) > 0] for frame in frames]
    pixels = np.concatenate(inside) if inside else np.zeros((0, 3), np.uint8)
    return float(pixels.mean()) / 255 if pixels.size else 1.0


def _motion(path: Path, fit: Fit, scene: Pixels) -> tuple[Array, Array]:
    """How far blobs move between consecutive frames, and the whole picture's shifts [n,2]; in working pixels."""
    moves: list[float] = []
    shifts: list[tuple[float, float]] = []
    before: Pixels | None = None
    with open_video(path, note=lambda _: None) as video:
        skip = max(1, (video.facts.count or 0) // _PAIRS)
        for frame in video:
            if frame.index % skip > 1 or (skip == 1 and frame.index > _PAIRS):
                before = None
                continue
            small = fit.shrink(frame.pixels)
            if before is not None and (skip == 1 or frame.index % skip == 1):
                moves.extend(_steps(_differs(before, scene), _differs(small, scene)))
                shifts.append(_shift(before, small))
            before = small
    return np.array(moves, float), np.array(shifts or [(0.0, 0.0)], float)


def _steps(before: Pixels, after: Pixels) -> list[float]:
    """From each blob to the nearest one of the next frame, where that is of about the same size."""
    one, two = (cv2.connectedComponentsWithStats(mask) for mask in (before, after))
    steps = []
    for area, centre in zip(one[2][1:, cv2.CC_STAT_AREA], one[3][1:], strict=True):
        far = np.linalg.norm(two[3][1:] - centre, axis=1)
        alike = np.abs(np.log(two[2][1:, cv2.CC_STAT_AREA] / area)) < 0.4
        if area >= 9 and alike.any():
            steps.append(float(far[alike].min()))
    return steps


def _shift(before: Pixels, after: Pixels) -> tuple[float, float]:
    """How far the whole picture moved: the median over its corners, most of which are not on objects."""
    one, two = (cv2.cvtColor(each, cv2.COLOR_RGB2GRAY) for each in (before, after))
    corners = cv2.goodFeaturesToTrack(one, 200, 0.01, 5)
    if corners is None or len(corners) < 12:
        return 0.0, 0.0
    moved, good, _ = cv2.calcOpticalFlowPyrLK(one, two, corners, None)
    steps = (moved - corners)[good.astype(bool)]
    if len(steps) < 12:
        return 0.0, 0.0
    across, down = np.median(steps.reshape(-1, 2), 0)
    return float(across), float(down)


def _drift(path: Path, fit: Fit) -> float:
    """The shift between the scene of the first third and of the last, in working pixels; a median has no objects."""
    frames = sample(path, 60, shrink=fit.shrink)
    third = len(frames) // 3
    if third < 3:
        return 0.0
    first, last = (np.median(np.stack(part), 0).astype(np.uint8) for part in (frames[:third], frames[-third:]))
    return float(np.abs(_shift(first, last)).max())


def _network(video: tuple[int, int], small: float) -> tuple[int, int]:
    """In the video's shape, so large that a small blob is some 3 pixels across in the quarter that the network sees.

    The cells of its grid are 4 of those pixels; at full size they would be 16, wider than a person far away. Twice as
    large takes four times as long to learn.
    """
    longer = float(np.clip(3 / max(small, 0.01), 64, 192))
    scale = longer / max(video)
    height, width = (16 * max(8, round(side * scale / 4)) for side in video)
    return height, width


def _advised(found: Look) -> Look:
    """With what a person should be told."""
    pixels, longer = found.blobs[0] * max(found.size) / 4, max(found.video)
    checks = {
        f"There are only about {found.frames} frames, which may be learned by heart; a few thousand are better.":
            found.frames < 300,
        f"The camera moves: it shakes by {found.shake:.1f} pixels and drifts by {found.drift:.1f}. loci needs a still "
        "one: stabilise the video first, or cut it to where the camera stands still.":
            found.drift > 0.01 * longer or found.shake > 0.002 * longer,
        "Hardly anything differs from the background, so there may be nothing to learn: choose a part where things "
        "move.":
            found.foreground < 0.0005 or found.crowd[0] < 0.05,
        f"{found.foreground:.0%} of the pixels differ from the still background. A background that moves can learn "
        "water, leaves or light (--data.background learned); if it is none of these, nothing here stands still.":
            found.foreground > 0.4,
        f"Small objects are {pixels:.0f} pixels across in the network and will be missed: crop the video to where they "
        "are.":
            found.crowd[1] > 0 and pixels < 1.5,
        "Some blobs are more than half as large as the frame: several objects that touch, or light that changes.":
            found.blobs[2] > 0.5,
        "Objects move further than their own size from frame to frame: take a higher frame rate, or slots lose them.":
            found.motion > max(1.5 * found.blobs[1], 0.02),
        f"Up to {found.crowd[1]} blobs at a time: more than 24 slots are slow and seldom work. Crop the video.":
            found.crowd[1] > 22,
    }  # fmt: skip
    return replace(found, advice=tuple(words for words, holds in checks.items() if holds))
