"""Time, memory, launches and the share of what the machine can do."""

from __future__ import annotations

import itertools
import resource
import statistics
import time
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from loci.bench.parts import PARTS, Clock, Counter, Load, watched
from loci.bench.work import Kind, Work
from loci.kernels.record import Recorded


def timed(work: Work, repeats: int) -> dict[str, Any]:
    """Milliseconds of steps that follow each other; on a GPU by its own clock."""
    device = work.model.device
    for _ in range(work.warm_up):
        work.step()
    wall, busy = [], time.process_time()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
        marks[0].record()
        for mark in marks[1:]:
            work.step()
            mark.record()
        torch.cuda.synchronize(device)
        wall = [begin.elapsed_time(end) for begin, end in itertools.pairwise(marks)]
    else:
        for _ in range(repeats):
            begin = time.perf_counter()
            work.step()
            wall.append(1e3 * (time.perf_counter() - begin))
    busy = time.process_time() - busy
    quarter = max(1, repeats // 4)
    ordered = sorted(wall)
    return {
        "ms_per_step": statistics.median(wall),
        "ms_fastest": ordered[0],
        "ms_quartiles": [ordered[quarter - 1], ordered[-quarter]],
        "ms_last_to_first": statistics.median(wall[-quarter:]) / statistics.median(wall[:quarter]),
        "processor_ms_per_step": 1e3 * busy / repeats,
    }


def beside_plain(work: Work, plain: Work, repeats: int) -> dict[str, float]:
    """The step and the plain one in turns, so that whatever else the machine does slows both."""
    spent: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats):
        for times, one in zip(spent, (work, plain), strict=True):
            begin = time.perf_counter()
            one.step()
            if one.model.device.type == "cuda":
                torch.cuda.synchronize(one.model.device)
            times.append(1e3 * (time.perf_counter() - begin))
    fast, slow = (statistics.median(times) for times in spent)
    return {"plain_ms_per_step": slow, "times_faster_than_plain": slow / fast}


def peak_memory(work: Work) -> dict[str, float]:
    """What a step needs, in MiB: of a GPU the most that tensors take, and what is held for that; of a CPU the process.

    A replayed recording allocates nothing: what it needs was seen in its last rehearsal.
    """
    device = work.model.device
    if device.type == "cuda":
        needed = [r.memory for r in work.path.recordings.values() if isinstance(r, Recorded)]
        most = max(needed, default=torch.cuda.max_memory_allocated(device))
        return {"peak_memory_mib": most / 2**20, "held_memory_mib": torch.cuda.memory_reserved(device) / 2**20}
    return {"peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def launches(work: Work) -> int | None:
    """Kernels that one step runs on a GPU, by the profiler; None on a CPU, which has none."""
    if work.model.device.type != "cuda":
        return None
    with profile(activities=[ProfilerActivity.CUDA]) as record:
        work.step()
        torch.cuda.synchronize()
    return sum(event.device_type.name == "CUDA" for event in record.events() or ())


def loads(work: Work, kind: Kind) -> dict[str, Load]:
    """What one plain step asks for, by part."""
    clock = Clock(work.model.device, "backward" if kind == "train" else "other")
    with watched(clock, work.methods), Counter(clock) as counter:
        work.step()
    return {part: counter.loads[part] for part in PARTS if part in counter.loads}


def breakdown(work: Work, kind: Kind, repeats: int) -> dict[str, float]:
    """Milliseconds of one plain step by part, the median over repeats."""
    found = []
    for _ in range(repeats):
        clock = Clock(work.model.device, "backward" if kind == "train" else "other")
        with watched(clock, work.methods):
            work.step()
        found.append(clock.spent())
    return {part: statistics.median(one[part] for one in found) for part in PARTS}


def peak_flops(device: torch.device, precision: torch.dtype) -> float:
    """Operations a second in a large matrix product of random numbers, the best of a few."""
    side = 8192 if device.type == "cuda" else 1024
    generator = torch.Generator(device).manual_seed(0)
    a = torch.randn(side, side, generator=generator, device=device).to(precision)
    best = float("inf")
    for _ in range(8):
        if device.type == "cuda":
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            a @ a
            end.record()
            torch.cuda.synchronize(device)
            best = min(best, 1e-3 * begin.elapsed_time(end))
        else:
            start = time.perf_counter()
            a @ a
            best = min(best, time.perf_counter() - start)
    return 2.0 * side**3 / best


def report(work: Work, kind: Kind, batch: int, repeats: int) -> dict[str, Any]:
    """Everything that is measured without taking the step apart."""
    device = work.model.device
    times = timed(work, repeats)
    result: dict[str, Any] = dict(times) | peak_memory(work)
    ceiling = peak_flops(device, torch.bfloat16)
    result["frames_per_second"] = 1e3 * batch / times["ms_per_step"]
    result["kernels_per_step"] = launches(work)
    result["bfloat16_peak_tflops"] = ceiling / 1e12
    return result
