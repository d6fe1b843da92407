"""Where `loci track` spends its time: python bench/track_speed.py VIDEO WEIGHTS [VIDEO WEIGHTS ...]

All files are written. Time is that of the processor, all threads together, so that a machine that others use gives the
same figures; on idle cores the clock on the wall shows no more than this.
"""

import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import torch

from loci.track import open_tracking, tracker
from loci.track.outputs import Outputs, save


def main(*words: str) -> None:
    tracker.time = SimpleNamespace(perf_counter=time.process_time)
    print(f"{torch.get_num_threads()} threads")
    for video, weights in zip(words[::2], words[1::2], strict=True):
        with tempfile.TemporaryDirectory() as folder, open_tracking(video, weights, device="cpu") as tracking:
            tracking.clock.spent.clear()
            begin = time.process_time()
            frames = save(tracking, Path(folder), Outputs(), {}, notes=[]).frames
            whole = time.process_time() - begin
            facts, size = tracking.facts, tracking.fit.network
        spent = {name: seconds for name, seconds in tracking.clock.spent.items() if name != "background"}
        spent["encoding and the rest"] = whole - sum(spent.values())
        shares = ", ".join(f"{name} {seconds / whole:.0%}" for name, seconds in spent.items())
        print(
            f"{Path(video).name}: {facts.size[1]}x{facts.size[0]}, {frames} frames, network {size[1]}x{size[0]} with "
            f"{tracking.slots} slots: {frames / whole:.1f} frames a second; {shares}"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
