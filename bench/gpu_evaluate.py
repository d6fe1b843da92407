"""Evaluate a network where there is nothing but torch and the package: on a rented GPU.

    OUT=out PYTHONPATH=src python3 bench/gpu_evaluate.py NETWORK.safetensors moving-mnist
    OUT=out PYTHONPATH=src python3 bench/gpu_evaluate.py src/loci/weights/cater.safetensors cater cater-tracked
    OUT=out PYTHONPATH=src python3 bench/gpu_evaluate.py runs/mine learning

The experiments are those of bench/results.py, without its command line. Each leaves one file in $OUT, EXPERIMENT.zip:
its tables (Markdown, JSON) and pictures (PNG). `python bench/results.py --take EXPERIMENT.zip` puts it into
docs/results.md. The tables are printed, too.

All experiments together stay within --budget seconds: what is left is divided among those to come, and one that runs
out of its share stops after a batch and is scored on what it has seen; its facts say how many clips that was.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import traceback
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import results
import torch

from loci.evaluate import learning, watch
from loci.evaluate.networks import Opened, open_network
from loci.evaluate.report import Report
from loci.evaluate.reproduce import EXPERIMENTS, Asked
from loci.evaluate.suite import Job, evaluate, usual_split
from loci.worlds import render

SHARES = {"codes of the training clips": 0.5, "read-out": 1.0}
"""Of the time that is left, for work after which more is to come; all of it for any other."""
STRETCH = 16_000_000
"""Samples that the renderer works on at once on a GPU: a whole clip of CATER at 60 by 80."""


class Clock:
    """Says to stop when the time is up."""

    def __init__(self, seconds: float) -> None:
        self.end = time.monotonic() + seconds

    @contextmanager
    def __call__(self, what: str, total: int) -> Iterator[Any]:
        begun = time.monotonic()
        end = begun + SHARES.get(what, 1.0) * (self.end - begun)
        done = 0

        def advance(steps: int = 1, note: str = "") -> str | None:
            nonlocal done
            done += steps
            return watch.ENOUGH if time.monotonic() > end else None

        yield advance
        print(f"  {what}: {done} of {total} in {time.monotonic() - begun:.1f} s", flush=True)


def reports(run: results.Run, network: Opened, asked: argparse.Namespace, clock: Clock, out: Path) -> Iterator[Report]:
    """What the run's command would say."""
    kind, name = run.words[0], run.words[1]
    plan = EXPERIMENTS.get(name) if kind == "reproduce" else None
    source = asked.on or run.on or (plan.source if plan else "")
    job = Job(
        network,
        source,
        asked.count or run.amount(asked.share),
        clock,
        seed=asked.seed,
        split=usual_split(source),
        length=asked.length,
        batch=asked.batch,
        device=asked.device,
    )
    return plan.steps(Asked(name, job, out, asked.rival or run.rival)) if plan else evaluate(job)


def words_of(run: results.Run, asked: argparse.Namespace) -> list[str]:
    """The command that does the same, for the page."""
    words = run.command(Path(asked.network).stem, asked.share)
    if asked.count:
        words[-1] = str(asked.count)
    for name in ("seed", "length", "on"):
        words += [f"--{name}", str(getattr(asked, name))] if getattr(asked, name) else []
    return words


def pack(name: str, folder: Path, out: Path) -> Path:
    """Tables and pictures as one file; not what was kept for later."""
    path = out / f"{name}.zip"
    files = [file for file in folder.iterdir() if file.suffix in results.SAVED]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(files, key=lambda file: (file.stat().st_mtime_ns, file.name)):
            archive.write(file, file.name)
    return path


def one(name: str, asked: argparse.Namespace, seconds: float, out: Path) -> None:
    """An experiment from its network to its zip."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        begun = time.monotonic()
        if name == "learning":
            learning.report({Path(asked.network).name: Path(asked.network)}).save(folder)
        else:
            run = next(run for run in results.RUNS if run.name == name)
            network = open_network(asked.network, asked.device)
            for report in reports(run, network, asked, Clock(seconds), folder):
                print(report.markdown(), flush=True)
                report.save(folder)
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            took = time.monotonic() - begun
            amount = asked.count or run.amount(asked.share)
            how = results.about(words_of(run, asked), amount, took, Path(asked.network).stem, network.digest)
            (folder / results.ABOUT).write_text(json.dumps(how))
        print(f"{name}: {time.monotonic() - begun:.1f} s, {pack(name, folder, out)}", flush=True)


def main(words: list[str] | None = None) -> int:
    names = [run.name for run in results.RUNS if run.networks]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", help="a file, a run's folder or the name of a network that ships")
    parser.add_argument("names", nargs="+", choices=[*names, "learning"], metavar="experiment", help=", ".join(names))
    parser.add_argument("--share", type=float, default=1.0, help="of the clips that the paper's table takes")
    parser.add_argument("--count", type=int, help="clips, instead")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--length", type=int, help="frames of a clip, where that can be chosen")
    parser.add_argument("--batch", type=int, help="clips side by side, instead of what memory holds")
    parser.add_argument("--on", help="another source")
    parser.add_argument("--rival", help="moving-mnist: a PhyDNet")
    parser.add_argument("--budget", type=float, default=500.0, help="seconds for all of it")
    parser.add_argument("--plain", action="store_true", help="without recorded steps")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    asked = parser.parse_args(words)
    out = Path(os.environ.get("OUT", "bench/out"))
    out.mkdir(parents=True, exist_ok=True)
    if asked.plain:
        watch.WORTH = sys.maxsize
    if asked.device.startswith("cuda"):
        render.SAMPLES_AT_ONCE = STRETCH
    begun, failed = time.monotonic(), 0
    for number, name in enumerate(asked.names):
        left = asked.budget - (time.monotonic() - begun)
        try:
            one(name, asked, left / (len(asked.names) - number), out)
        except Exception:
            traceback.print_exc()
            print(f"{name}: failed", flush=True)
            failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
