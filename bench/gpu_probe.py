"""One kind of step on this machine: its time, its kernels, and which of them take longest.

    PYTHONPATH=src python3 bench/gpu_probe.py train moving_mnist 64 bfloat16 [--set model.slots=2 ...] [--repeats 50]

A row of JSON goes to $OUT/probe.jsonl, the kernels to the screen. A first call on a fresh machine compiles; calls side
by side compile side by side, and a second call finds what the first has compiled.
"""

import argparse
import json
import logging
import os
import sys
import time
from collections import defaultdict
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from loci import presets
from loci.bench import measure
from loci.bench.work import tracking, training
from loci.evaluate.ablations import changed


def kernels(work, steps=3):
    """Time, number and share of every kernel of a step."""
    with profile(activities=[ProfilerActivity.CUDA]) as record:
        for _ in range(steps):
            work.step()
        torch.cuda.synchronize()
    total = defaultdict(lambda: [0.0, 0])
    for event in record.events() or ():
        if event.device_type.name == "CUDA":
            total[event.name][0] += event.device_time / steps
            total[event.name][1] += 1
    return sorted(((t, n / steps, name) for name, (t, n) in total.items()), reverse=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=["train", "infer"])
    parser.add_argument("preset")
    parser.add_argument("batch", type=int)
    parser.add_argument("precision", choices=["float32", "bfloat16"])
    parser.add_argument("--set", nargs="*", default=[])
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--top", type=int, default=25)
    parser.add_argument("--plain", action="store_true")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    changes = dict(word.split("=", 1) for word in options.set)
    config = changed(presets.PRESETS[options.preset](), {k: json.loads(v) for k, v in changes.items()})
    torch.manual_seed(0)
    began = time.perf_counter()
    make = training if options.kind == "train" else tracking
    work = make(config, options.batch, device, options.precision, not options.plain)
    row = measure.timed(work, options.repeats)
    seconds = time.perf_counter() - began
    what = {"work": options.kind, "preset": options.preset, "batch": options.batch, "precision": options.precision}
    what |= {
        "set": options.set,
        "ms": row["ms_per_step"],
        "fastest": row["ms_fastest"],
        "quartiles": row["ms_quartiles"],
    }
    what |= measure.peak_memory(work) | {"set_up_s": seconds, "off": work.off}
    if device.type == "cuda":
        found = kernels(work)
        what |= {"kernels": sum(n for _, n, _ in found), "kernel_ms": sum(t for t, _, _ in found) / 1e3}
        for microseconds, number, name in found[: options.top]:
            print(f"{microseconds:8.1f} us {number:6.1f} x  {name[:150]}")
    print(json.dumps(what), flush=True)
    with (Path(os.environ.get("OUT", ".")) / "probe.jsonl").open("a") as file:
        file.write(json.dumps(what) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
