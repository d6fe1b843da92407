"""Clips read one by one, made into a batch."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor
from torch.nn.functional import pad

from loci.data.clip import ABSENT, Clip
from loci.data.source import Source
from loci.errors import UserError

# For each field that has objects (or events): which axis they are on, and what stands for "no such object".
_PADDED = {
    "visible": (2, 0), "whole": (2, 0), "position": (2, 0), "world": (2, 0), "share": (2, 0),
    "state": (2, ABSENT), "container": (2, -1), "events": (1, -1),
}  # fmt: skip


def _widened(value: Tensor, axis: int, count: int, fill: float) -> Tensor:
    short = count - value.shape[axis]
    return pad(value, (0, 0) * (value.dim() - 1 - axis) + (0, short), value=fill) if short else value


def join(clips: Sequence[Clip]) -> Clip:
    """One batch of several, padded to the largest number of objects and events; all know the same things."""
    columns: dict[str, Tensor | None] = {}
    for field in dataclasses.fields(Clip):
        if field.name == "attributes":
            continue
        values = [getattr(clip, field.name) for clip in clips]
        known = [value for value in values if value is not None]
        if len(known) not in (0, len(clips)):
            raise ValueError(f"some clips of a batch know their {field.name} and others do not")
        if field.name in _PADDED and known:
            axis, fill = _PADDED[field.name]
            most = max(value.shape[axis] for value in known)
            known = [_widened(value, axis, most, fill) for value in known]
        columns[field.name] = torch.cat(known) if known else None
    attributes = {}
    for name in clips[0].attributes:
        most = max(clip.attributes[name].shape[1] for clip in clips)
        attributes[name] = torch.cat([_widened(clip.attributes[name], 1, most, -1) for clip in clips])
    return Clip(**columns, attributes=attributes)  # type: ignore[arg-type]


def gather(read: Callable[[int], Clip], indices: Sequence[int], count: int, device: torch.device | str) -> Clip:
    """Read clips (each a batch of one) by several threads, in the order asked for, and put them on a device.

    Decoders work outside of Python's lock, so threads do help.
    """
    wrong = [n for n in indices if not 0 <= n < count]
    if wrong:
        raise UserError(f"there is no clip {wrong[0]}: choose from 0 to {count - 1}")
    if not len(indices):
        raise UserError("no clips were asked for: give at least one index")
    if len(indices) == 1:
        return read(int(indices[0])).to(device)
    with ThreadPoolExecutor(min(len(indices), os.cpu_count() or 1, 16)) as pool:
        return join(list(pool.map(read, map(int, indices)))).to(device)


def readable(
    source: Source, indices: Sequence[int], *, labels: bool = True, device: torch.device | str = "cpu"
) -> tuple[Clip | None, dict[int, str]]:
    """Those of these clips that can be read, and why the others cannot, by their numbers.

    Files that look whole when a source is opened may turn out damaged in the middle; an evaluation goes on without
    them and says so.
    """
    try:
        return source.clips(indices, labels=labels, device=device), {}
    except UserError as error:
        if len(indices) == 1:
            return None, {int(indices[0]): str(error)}
    parts = [readable(source, [n], labels=labels, device=device) for n in indices]
    found = [clip for clip, _ in parts if clip is not None]
    return join(found) if found else None, {n: fault for _, faults in parts for n, fault in faults.items()}
