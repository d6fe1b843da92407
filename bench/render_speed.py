"""How fast CATER clips are drawn and how much memory that takes.

    python bench/render_speed.py --size 60 80 --frames 301 --processes 2

Each process draws one clip on one thread. Frames per second are given by the wall clock and by the processor's time:
on a busy machine only the latter says what the renderer needs.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import time

import torch


def draw(job: tuple[int, tuple[int, int], int, bool, str]) -> tuple[float, float, float, float]:
    index, size, frames, labels, device = job
    torch.set_num_threads(1)
    from loci.worlds.cater import Cater

    world = Cater(size=size, length=frames)
    world.clips([index], length=2, device=device)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    wall, cpu = time.perf_counter(), time.process_time()
    clip = world.clips([index], labels=labels, device=device)
    if device != "cpu":
        torch.cuda.synchronize()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    fields = (getattr(clip, name) for name in ("frames", "visible", "whole"))
    kept = sum(field.nbytes for field in fields if field is not None)
    return wall, cpu, (peak - before) / 1024, kept / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, nargs=2, default=(60, 80))
    parser.add_argument("--frames", type=int, default=301)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--labels", action="store_true")
    parser.add_argument("--device", default="cpu")
    words = parser.parse_args()
    jobs = [(n, tuple(words.size), words.frames, words.labels, words.device) for n in range(words.processes)]
    with multiprocessing.get_context("spawn").Pool(words.processes) as pool:
        results = pool.map(draw, jobs)
    wall, cpu = max(r[0] for r in results), sum(r[1] for r in results)
    frames = words.frames * words.processes
    print(
        f"{words.size[1]}x{words.size[0]}, {words.processes} process(es) of {words.frames} frames,"
        f" labels {words.labels}: {frames / wall:.1f} frames/s by the clock,"
        f" {frames / cpu:.1f} per core by processor time; memory grew by {max(r[2] for r in results):.0f} MiB,"
        f" of which the clip itself {results[0][3]:.0f} MiB"
    )


if __name__ == "__main__":
    main()
