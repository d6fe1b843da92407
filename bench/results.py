"""Rerun the paper's tables with the networks that ship, and put them into docs/results.md.

    python bench/results.py                        # everything, at the counts below
    python bench/results.py moving-mnist cater     # some
    python bench/results.py --share 0.01           # a hundredth of the clips, to see that it works

Each experiment has a block between two markers; only the blocks that were rerun change. A network that does not ship
is said and passed over.
"""

from __future__ import annotations

import argparse
import datetime
import platform
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from loci.checkpoint import WEIGHTS
from loci.cli import main as loci

DOCS = Path(__file__).parent.parent / "docs"
PAGE = DOCS / "results.md"
PICTURES = DOCS / "img"
SHOWN = 1_000_000  # bytes; a larger picture stays where it was saved


@dataclass(frozen=True)
class Run:
    """An experiment as it goes into the page."""

    name: str
    network: str
    """What has to ship for it."""
    words: tuple[str, ...]
    """Of the command line, but for the number of clips."""
    count: int

    def command(self, share: float) -> list[str]:
        return [*self.words, "--count", str(max(1, round(share * self.count)))]


RUNS = (
    Run("moving-mnist", "moving_mnist", ("reproduce", "moving-mnist"), 10_000),
    Run("digits-tracked", "moving_mnist", ("evaluate", "moving_mnist", "--on", "moving_mnist"), 100),
    Run("cater", "cater", ("reproduce", "cater"), 1650),
    Run("cater-tracked", "cater", ("evaluate", "cater", "--on", "cater"), 100),
    Run("cater-unsupervised", "cater_unsupervised", ("reproduce", "cater-unsupervised"), 5500),
    Run("clevr", "cater", ("reproduce", "clevr"), 1000),
    Run("clevrer", "clevrer", ("reproduce", "clevrer"), 100),
    Run("aquarium-tracked", "aquarium", ("evaluate", "aquarium", "--on", "aquarium"), 20),
    Run("lesions", "cater", ("reproduce", "lesions"), 100),
    Run("lesions-moving-mnist", "moving_mnist", ("reproduce", "lesions-moving-mnist"), 1000),
    Run("gestalt", "cater", ("reproduce", "gestalt"), 100),
)


def replaced(page: str, name: str, block: str) -> str:
    """The page with this experiment's block in it: in the place of the old one, or at the end."""
    begin, end = f"<!-- results:{name} -->", f"<!-- /results:{name} -->"
    new = f"{begin}\n{block.strip()}\n{end}"
    before, found, rest = page.partition(begin)
    if not found:
        return f"{page.rstrip()}\n\n{new}\n".lstrip()
    _, closed, after = rest.partition(end)
    if not closed:
        raise ValueError(f"{begin} has no {end} after it")
    return f"{before}{new}{after}"


def block(run: Run, words: list[str], folder: Path, minutes: float) -> str:
    """What goes between the markers: the command, where and when, and the saved tables with their pictures."""
    when, where = datetime.date.today().isoformat(), machine()
    lines = [f"`loci {' '.join(words)}` ({when}, {where}, {minutes:.1f} minutes)", ""]
    for page in sorted(folder.glob("*.md"), key=lambda path: path.stat().st_mtime_ns):
        text = page.read_text()
        for picture in sorted(folder.glob(f"{page.stem}-*.png")):
            kept = PICTURES / f"{run.name}-{picture.name}"
            if picture.stat().st_size > SHOWN:
                text = "\n".join(line for line in text.splitlines() if f"]({picture.name})" not in line)
                continue
            PICTURES.mkdir(exist_ok=True)
            kept.write_bytes(picture.read_bytes())
            text = text.replace(f"]({picture.name})", f"]({PICTURES.name}/{kept.name})")
        # One level down, below the page's own headings.
        lines.append("\n".join(f"#{line}" if line.startswith("#") else line for line in text.splitlines()))
    return "\n".join(lines)


def machine() -> str:
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else f"{platform.processor() or 'CPU'}, no GPU"


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="which; all unless given")
    parser.add_argument("--share", type=float, default=1.0, help="of the clips")
    parser.add_argument("--out", type=Path, default=Path("results"), help="where tables and pictures are kept")
    parser.add_argument("--device", default="auto")
    asked = parser.parse_args(words)
    known = [run.name for run in RUNS]
    unknown = [name for name in asked.names if name not in known]
    if unknown:
        parser.error(f"no experiment {unknown[0]!r}: choose from {', '.join(known)}")
    failed = 0
    for run in RUNS:
        if asked.names and run.name not in asked.names:
            continue
        if not (WEIGHTS / f"{run.network}.safetensors").is_file():
            print(f"{run.name}: passed over, no network {run.network} ships")
            continue
        folder = asked.out / run.name
        for old in folder.glob("*.md"):
            old.unlink()
        words = run.command(asked.share)
        begun = time.perf_counter()
        if loci([*words, "--device", asked.device, "--out", str(folder)]) != 0:
            print(f"{run.name}: failed; its block stays as it was")
            failed += 1
            continue
        text = block(run, words, folder, (time.perf_counter() - begun) / 60)
        PAGE.write_text(replaced(PAGE.read_text() if PAGE.exists() else "# Results\n", run.name, text))
        print(f"{run.name}: in {PAGE}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
