"""The labels that `loci data make` writes beside videos: YouTube-VIS, with what `Clip` knows beyond it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from loci.data.clip import EVENTS, STATES, Clip
from loci.data.document import choice, numbers, read_json, reading, run_lengths, whole_number
from loci.data.picture import Size, pixel_to_position, resampled


def read_labels(path: Path, frames: Tensor, names: Mapping[str, tuple[str, ...]], stored: Size, index: int) -> Clip:
    """The clip of these frames [T,3,H,W] with what the file says of them.

    Args:
        path: the JSON file; what it says of frames beyond the last is left out.
        frames: the frames, at whatever size is wanted.
        names: the words for each attribute, in the order of their numbers.
        stored: height and width of the video as it was written.
        index: which clip of its source this is.
    """
    what = "labels written by loci"
    content = read_json(path, what)
    T, size = len(frames), (frames.shape[2], frames.shape[3])
    with reading(path, what):
        video = content["videos"][0]
        said = (whole_number(video["height"]), whole_number(video["width"]))
        if said != stored:
            raise ValueError(f"it is about frames of {said[0]}x{said[1]}, the video has {stored[0]}x{stored[1]}")
        things = content["annotations"]
        N = len(things)
        if not N or [thing["id"] for thing in things] != list(range(1, N + 1)):
            raise ValueError("annotations should be numbered 1, 2, 3, ...")
        columns = [_thing(thing, T, N, stored, size) for thing in things]
        tracks = {
            name: torch.from_numpy(np.stack([column[name] for column in columns], 1))[None] for name in columns[0]
        }
        events = [_event(event, N) for event in content["events"]]
        attributes = {
            name: torch.tensor([[_number(thing["attributes"][name], words) for thing in things]])
            for name, words in names.items()
        }
    return Clip(
        frames[None],
        **tracks,
        events=torch.tensor(events, dtype=torch.int64).reshape(1, -1, 5),
        attributes=attributes,
        index=torch.tensor([index]),
    )


def _thing(thing: Any, T: int, N: int, stored: Size, size: Size) -> dict[str, NDArray[Any]]:
    """What is known of one object in each frame."""
    rows, columns = numbers(thing["positions"], (-1, 2))[:T].T
    place = [
        pixel_to_position((axis + 1) / 2 * (old - 1), old, new)
        for axis, old, new in zip((rows, columns), stored, size, strict=True)
    ]
    holders = [-1 if holder is None else whole_number(holder) - 1 for holder in thing["containers"][:T]]
    if not all(-1 <= holder < N for holder in holders):
        raise ValueError(f"containers should be null or from 1 to {N}")
    tracks: dict[str, NDArray[Any]] = {
        "visible": _masks(thing["segmentations"], T, stored, size),
        "whole": _masks(thing["whole"], T, stored, size),
        "position": np.stack(place, 1),
        "share": numbers(thing["shares"], (-1,))[:T].astype(np.float32),
        "state": np.array([choice(state, STATES) for state in thing["states"][:T]], np.uint8),
        "container": np.array(holders, np.int64),
    }
    short = [name for name, track in tracks.items() if len(track) != T]
    if short:
        raise ValueError(f"{short[0]} should be known for {T} frames, not for {len(tracks[short[0]])}")
    return tracks


def _masks(codes: Any, T: int, stored: Size, size: Size) -> NDArray[np.bool_]:
    result = np.zeros((T, *size), np.bool_)
    for t in range(T):
        if codes[t] is not None:
            result[t] = resampled(run_lengths(codes[t], stored), size)
    return result


def _number(word: Any, words: tuple[str, ...]) -> int:
    return -1 if word is None else choice(word, words)


def _event(event: Any, objects: int) -> list[int]:
    one = whole_number(event["object"])
    other = 0 if event["other"] is None else whole_number(event["other"])
    if not (1 <= one <= objects and 0 <= other <= objects):
        raise ValueError(f"an event is about objects {one} and {other}, there are {objects}")
    kind = choice(event["kind"], EVENTS)
    return [kind, whole_number(event["first"]), whole_number(event["last"]), one - 1, other - 1]
