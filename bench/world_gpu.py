"""The worlds on a GPU: fused kernels against their torch twin, and frames per second. Under a minute, no arguments.

    PYTHONPATH=src OUT=/tmp/out python bench/world_gpu.py

Writes world_gpu.json and two PNG (above ours, then the twin's, then 20 times their difference) under $OUT (or here).
Every part stands alone: one that fails is reported with its traceback and the others go on.
"""

from __future__ import annotations

import json
import os
import struct
import time
import traceback
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from loci.worlds.cater import Cater
from loci.worlds.cater_scene import draw
from loci.worlds.clevrer import Clevrer
from loci.worlds.moving_mnist import MovingMnist
from loci.worlds.render import render

DEVICE = "cuda"
OUT = Path(os.environ.get("OUT", "."))
ENDS = time.perf_counter() + 50
"""Repetitions stop here, so that all parts have their turn within a minute."""


def write_png(path: Path, picture: Tensor) -> None:
    """Save [3,H,W] uint8 with nothing but the standard library: the machine may lack all others."""
    rows = picture.permute(1, 2, 0).flatten(1).cpu()
    body = b"".join(b"\0" + bytes(row.tolist()) for row in rows)
    head = struct.pack(">IIBBBBB", picture.shape[2], picture.shape[1], 8, 2, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(body)), (b"IEND", b""))
    chunks = (struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in parts)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunks))


def timed(action: Callable[[], Any], most: int = 10, seconds: float = 2.0) -> dict[str, float]:
    """Warm up once, then repeat: times by the clock, the host's part (until the call returns), peak memory."""
    start = time.perf_counter()
    action()
    torch.cuda.synchronize()
    first = time.perf_counter() - start
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    walls, hosts = [], []
    stop = min(time.perf_counter() + seconds, ENDS)
    while not walls or (len(walls) < most and time.perf_counter() < stop):
        start = time.perf_counter()
        kept = action()
        hosts.append(time.perf_counter() - start)
        torch.cuda.synchronize()
        walls.append(time.perf_counter() - start)
        del kept
    return {
        "first_ms": 1e3 * first,
        "best_ms": 1e3 * min(walls),
        "mean_ms": 1e3 * sum(walls) / len(walls),
        "host_ms": 1e3 * sum(hosts) / len(hosts),
        "repeats": len(walls),
        "peak_mib": (torch.cuda.max_memory_allocated() - before) / 2**20,
    }


def kernel_times(action: Callable[[], Any]) -> dict[str, float]:
    """Milliseconds on the device by kernel, the ten that take longest, and all together."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        action()
        torch.cuda.synchronize()
    spent = {event.key[:60]: event.self_device_time_total / 1e3 for event in profiler.key_averages()}
    most = sorted(spent, key=lambda name: -spent[name])[:10]
    return {"all": sum(spent.values())} | {name: spent[name] for name in most}


def moving_mnist() -> dict[str, Any]:
    world = MovingMnist()
    result: dict[str, Any] = {}
    for labels in (False, True):
        spent = timed(lambda labels=labels: world.clips(range(64), labels=labels, device=DEVICE), most=50)
        result["labels" if labels else "plain"] = spent
    result["wanted_ms"] = 5
    result["device_ms"] = kernel_times(lambda: world.clips(range(64), labels=False, device=DEVICE))
    here, there = (world.clips(range(4), device=d) for d in ("cpu", DEVICE))
    result["equals_cpu"] = all(
        torch.equal(getattr(here, name), getattr(there, name).cpu()) for name in ("frames", "visible", "whole")
    )
    return result


def agreement(size: tuple[int, int], every: int) -> dict[str, Any]:
    """Two clips by kernels and by the torch twin, both on the GPU; of their frames every so many."""
    scene = draw(Cater(size=size).scripts([3, 4]), DEVICE)
    scene = type(scene)(
        **{
            name: value[:, ::every] if name in ("position", "rotation", "present", "shown") else value
            for name, value in vars(scene).items()
        }
    )
    ours, twin = render(scene, size, fused=True), render(scene, size, fused=False)
    pictures = [x.frames[0, [0, scene.length // 2, -1]] for x in (ours, twin)]
    rows = [torch.cat(tuple(picture), 2) for picture in pictures]
    rows.append((rows[0].int() - rows[1].int()).abs().mul(20).clamp(max=255).to(torch.uint8))
    write_png(OUT / f"world_gpu_{size[0]}.png", torch.cat(rows, 1))
    off = (ours.frames.int() - twin.frames.int()).abs()
    result: dict[str, Any] = {
        "frames": 2 * scene.length,
        "largest": off.max().item(),
        "mean": off.float().mean().item(),
    }
    result["share_above_2"] = (off > 2).float().mean().item()
    result["background_largest"] = (ours.background.int() - twin.background.int()).abs().max().item()
    for name in ("visible", "whole"):
        a, b = getattr(ours, name), getattr(twin, name)
        result[f"{name}_iou"] = ((a & b).sum() / (a | b).sum()).item()
        result[f"{name}_worst_iou"] = _worst(a, b)
    result["twin_on_gpu"] = timed(lambda: render(scene, size, fused=False, labels=False), most=1)
    return result


def _worst(a: Tensor, b: Tensor) -> float:
    """The lowest IoU of a mask of more than 60 pixels."""
    meet, join = (a & b).sum((-1, -2)), (a | b).sum((-1, -2))
    return (meet / join.clamp(min=1))[join > 60].min().item()


def cater(size: tuple[int, int], clips: int, labels: bool, length: int = 301) -> dict[str, Any]:
    world = Cater(size=size, length=length)
    numbers = list(range(100, 100 + clips))
    result: dict[str, Any] = {"clips": clips, "length": length}
    start = time.perf_counter()
    scripts = world.scripts(numbers)
    result["script_ms_per_clip"] = 1e3 * (time.perf_counter() - start) / clips
    start = time.perf_counter()
    scene = draw(scripts, DEVICE)
    torch.cuda.synchronize()
    result["scene_ms_per_clip"] = 1e3 * (time.perf_counter() - start) / clips
    result["render"] = timed(lambda: render(scene, size, labels=labels))
    result["render_frames_per_s"] = clips * length / result["render"]["best_ms"] * 1e3
    result["world"] = timed(lambda: world.clips(numbers, labels=labels, device=DEVICE), most=3, seconds=2)
    result["world_frames_per_s"] = clips * length / result["world"]["best_ms"] * 1e3
    result["clip_mib"] = (frames_bytes := clips * length * 3 * size[0] * size[1]) / 2**20
    if labels:
        result["clip_mib"] = (frames_bytes + 2 * scene.present.numel() * size[0] * size[1]) / 2**20
    result["device_ms"] = kernel_times(lambda: render(scene, size, labels=labels))
    return result


def clevrer() -> dict[str, Any]:
    result: dict[str, Any] = {}
    for size, clips in (((64, 96), 32), ((320, 480), 4)):
        world = Clevrer(size=size)
        spent = timed(lambda world=world, clips=clips: world.clips(range(clips), device=DEVICE), most=2, seconds=3)
        spent["frames_per_s"] = clips * world.length / spent["best_ms"] * 1e3
        result[f"{size[0]}x{size[1]}, {clips} clips, labels"] = spent
    return result


def main() -> None:
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "agreement 60x80": lambda: agreement((60, 80), 10),
        "agreement 240x320": lambda: agreement((240, 320), 50),
        "cater 60x80": lambda: cater((60, 80), 64, False),
        "cater 60x80 labels": lambda: cater((60, 80), 16, True),
        "cater 240x320": lambda: cater((240, 320), 8, False),
        "cater 240x320 labels": lambda: cater((240, 320), 4, True),
        "moving_mnist": moving_mnist,
        "clevrer": clevrer,
    }
    torch.empty(1, device=DEVICE)
    results: dict[str, Any] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    for name, part in parts.items():
        start = time.perf_counter()
        try:
            results[name] = part()
        except Exception:  # reported, so that one failure does not hide the others
            results[name] = {"failed": traceback.format_exc()}
        results[name]["seconds"] = time.perf_counter() - start
        text = json.dumps(results[name], indent=1)
        print(name, text.replace("\\n", "\n"), flush=True)
        (OUT / "world_gpu.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
