"""Rerun the paper's tables with the networks that ship, and put them into docs/results.md.

    python bench/results.py                        # everything, at the counts below
    python bench/results.py moving-mnist cater     # some
    python bench/results.py --share 0.01           # a hundredth of the clips, to see that it works
    python bench/results.py --take OUT/*.zip       # what bench/gpu_evaluate.py brought from another machine

Each experiment has a block between two markers; only the blocks that were rerun change, and with them the table of
targets. A block says command, clips, seed, minutes, device and which network it was. What a block's tables hold is kept
as JSON beside its pictures in docs/results. A network that does not ship is said and passed over.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import shlex
import sys
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from results_targets import targets

from loci.checkpoint import WEIGHTS
from loci.cli import main as loci

DOCS = Path(__file__).parent.parent / "docs"
PAGE = DOCS / "results.md"
KEPT = DOCS / "results"
SHOWN = 1_000_000  # bytes; a larger picture stays where it was saved
ABOUT = "about.json"
TABLES = "tables.json"
SAVED = (".md", ".json", ".png")


@dataclass(frozen=True)
class Run:
    """An experiment as it goes into the page."""

    name: str
    networks: tuple[str, ...]
    """What has to ship for it: the first that does is taken."""
    words: tuple[str, ...]
    """Of the command line, but for the network and the number of clips."""
    count: int
    head: bool = False
    """Whether the network needs its own head for the snitch."""
    counted: str = "--count"
    """The option that says how much."""
    only: str = ""
    """The one report that goes into the page, where the others have a block of their own."""

    @property
    def on(self) -> str | None:
        """The source, where it is said."""
        return self.said("--on")

    @property
    def rival(self) -> str | None:
        """The run of PhyDNet that goes beside the network, where there is to be one."""
        return self.said("--rival")

    def said(self, option: str) -> str | None:
        """What the words say of an option."""
        return self.words[self.words.index(option) + 1] if option in self.words else None

    def amount(self, share: float) -> int:
        """How much of it is a share."""
        return max(1, round(share * self.count))

    def command(self, network: str, share: float) -> list[str]:
        """The words of the command line."""
        kind, *rest = self.words
        if self.networks and kind == "evaluate":
            rest = [network, *rest]
        elif self.networks:
            rest += ["--network", network]
        return [kind, *rest, self.counted, str(self.amount(share))]


DIGITS, SCENES = ("moving_mnist",), ("cater",)
RUNS = (
    Run("moving-mnist", DIGITS, ("reproduce", "moving-mnist"), 10_000),
    Run("phydnet", DIGITS, ("reproduce", "moving-mnist", "--rival", "runs/phydnet"), 1000),
    Run("digits-tracked", DIGITS, ("evaluate", "--on", "moving_mnist"), 1000, only="tracking"),
    Run("cater", ("cater_supervised", *SCENES), ("reproduce", "cater"), 1650, head=True),
    Run("cater-unsupervised", ("cater_unsupervised", *SCENES), ("reproduce", "cater-unsupervised"), 5500),
    Run("cater-tracked", SCENES, ("evaluate", "--on", "cater"), 100, only="tracking"),
    Run("clevr", SCENES, ("reproduce", "clevr"), 1000),
    Run("clevrer", ("clevrer", *SCENES), ("reproduce", "clevrer"), 100),
    Run("aquarium-tracked", ("aquarium", *SCENES), ("evaluate", "--on", "aquarium"), 20),
    Run("lesions", ("cater_supervised", *SCENES), ("reproduce", "lesions"), 100),
    Run("lesions-moving-mnist", DIGITS, ("reproduce", "lesions-moving-mnist"), 1000),
    Run("gestalt", SCENES, ("reproduce", "gestalt"), 100),
    Run("gestalt-moving-mnist", DIGITS, ("reproduce", "gestalt", "--on", "moving_mnist"), 100),
    *(
        Run(name, (), ("reproduce", name, "--train"), 400_000, counted="--frames")
        for name in ("ablations-cell", "ablations-inputs", "ablations-losses", "ablations-credit")
    ),
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


def about(words: list[str], amount: int, seconds: float, network: str, digest: str) -> dict[str, Any]:
    """What a block says of how it was made."""
    import torch

    return {
        "command": f"loci {' '.join(words)}",
        "asked": amount,
        "minutes": seconds / 60,
        "device": machine(),
        "torch": torch.__version__,
        "date": datetime.date.today().isoformat(),
        "network": network,
        "digest": digest,
    }


def pages(name: str, folder: Path, kind: str) -> list[Path]:
    """The saved files of this kind that belong into a block, in the order in which they were made."""
    only = next((run.only for run in RUNS if run.name == name), "")
    files = [path for path in folder.glob(f"{only or '*'}{kind}") if path.name != ABOUT]
    return sorted(files, key=lambda path: (path.stat().st_mtime_ns, path.name))


def block(name: str, folder: Path) -> str:
    """What goes between the markers: how it was made, and the saved tables with their pictures."""
    how = json.loads((folder / ABOUT).read_text())
    whose = f", network {how['network']} ({how['digest'][:12]})" if how["network"] else ""
    lines = [
        f"`{how['command']}`: {how['asked']} asked for, {how['minutes']:.1f} minutes on {how['device']}, "
        f"torch {how['torch']}, {how['date']}{whose}.",
        "",
    ]
    if how["network"] and how["digest"] != shipped_digest(how["network"]):
        lines[1:1] = ["", "**Not the network that ships under this name.**"]
    for page in pages(name, folder, ".md"):
        text = page.read_text()
        for picture in sorted(folder.glob(f"{page.stem}-*.png")):
            if f"]({picture.name})" not in text:
                continue  # another page's, whose name begins alike
            kept = KEPT / name / picture.name
            if picture.stat().st_size > SHOWN:
                text = "\n".join(line for line in text.splitlines() if f"]({picture.name})" not in line)
                continue
            kept.write_bytes(picture.read_bytes())
            text = text.replace(f"]({picture.name})", f"]({KEPT.name}/{name}/{kept.name})")
        # Below the page's own headings.
        lines.append("\n".join(f"##{line}" if line.startswith("#") else line for line in text.splitlines()))
    return "\n".join(lines)


def shipped_digest(network: str) -> str:
    """Of the network that ships under this name, or nothing."""
    from loci.evaluate.networks import digest_of

    path = WEIGHTS / f"{network}.safetensors"
    return digest_of(path) if path.is_file() else ""


def keep(name: str, folder: Path) -> None:
    """What the tables hold, for the table of targets and for whoever wants the figures; what was there before goes."""
    reports = [json.loads(path.read_text()) for path in pages(name, folder, ".json")]
    content = {
        "about": json.loads((folder / ABOUT).read_text()),
        "facts": {report["name"]: report["facts"] for report in reports},
        "tables": [table for report in reports for table in report["tables"]],
    }
    (KEPT / name).mkdir(parents=True, exist_ok=True)
    for old in (KEPT / name).iterdir():
        old.unlink()
    (KEPT / name / TABLES).write_text(json.dumps(content, indent=1) + "\n")


def machine() -> str:
    """What it runs on, in words."""
    import torch

    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    return f"{os.cpu_count()} CPU cores ({platform.machine()}), no GPU"


def put(name: str, folder: Path) -> None:
    """A saved experiment into the page."""
    page = PAGE.read_text() if PAGE.exists() else "# Results\n"
    keep(name, folder)
    page = replaced(page, name, block(name, folder))
    PAGE.write_text(replaced(page, "targets", targets(KEPT)))
    print(f"{name}: in {PAGE}")


def network_for(run: Run) -> str | None:
    """The network that ships for a run; None, and said, if there is none."""
    for name in run.networks:
        path = WEIGHTS / f"{name}.safetensors"
        if not path.is_file():
            continue
        if run.head and not has_head(path):
            print(f"{run.name}: {name} has no head for the snitch")
            continue
        return name
    print(f"{run.name}: passed over, no network {' or '.join(run.networks)} ships that it could use")
    return None


def has_head(path: Path) -> bool:
    """Whether a network says itself where the snitch is."""
    from loci import checkpoint

    return checkpoint.read(path, weights_only=True).config.model.snitch


def rerun(run: Run, share: float, out: Path, device: str, also: str) -> bool:
    """Run an experiment's command here, and put it into the page."""
    network = network_for(run) if run.networks else ""
    if network is None:
        return True
    if run.rival and not Path(run.rival).exists():
        print(f"{run.name}: passed over, there is no {run.rival}: loci train phydnet --out {run.rival}")
        return True
    folder = out / run.name
    for old in folder.glob("*.*"):
        if old.suffix in SAVED:
            old.unlink()
    words = [*run.command(network, share), *shlex.split(also)]
    begun = time.perf_counter()
    folder.mkdir(parents=True, exist_ok=True)
    if loci([*words, "--device", device, "--out", str(folder)]) != 0:
        print(f"{run.name}: failed; its block stays as it was")
        return False
    seconds = time.perf_counter() - begun
    digest = shipped_digest(network) if network else ""
    (folder / ABOUT).write_text(json.dumps(about(words, run.amount(share), seconds, network, digest)))
    put(run.name, folder)
    return True


def take(path: Path, out: Path) -> None:
    """What another machine measured: a zip with the saved files, named after the experiment."""
    folder = out / path.stem
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        strange = [name for name in names if Path(name).name != name or Path(name).suffix not in SAVED]
        if strange:
            raise ValueError(f"{path} holds {strange[0]!r}, which is no table and no picture")
        for old in folder.iterdir():
            old.unlink()
        for number, name in enumerate(names):
            (folder / name).write_bytes(archive.read(name))
            os.utime(folder / name, (number, number))  # pages stand in the order in which they were made
    put(path.stem, folder)


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="which; all unless given")
    parser.add_argument("--share", type=float, default=1.0, help="of the clips")
    parser.add_argument("--also", default="", help='more words for the commands, such as "--length 60"')
    parser.add_argument("--out", type=Path, default=Path("results"), help="where tables and pictures are kept")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--take", nargs="+", type=Path, default=[], help="zip files of bench/gpu_evaluate.py")
    asked = parser.parse_args(words)
    known = [run.name for run in RUNS]
    unknown = [name for name in (*asked.names, *(path.stem for path in asked.take)) if name not in known]
    if unknown:
        parser.error(f"no experiment {unknown[0]!r}: choose from {', '.join(known)}")
    for path in asked.take:
        take(path, asked.out)
    if asked.take and not asked.names:
        return 0
    chosen = [run for run in RUNS if not asked.names or run.name in asked.names]
    failed = [run.name for run in chosen if not rerun(run, asked.share, asked.out, asked.device, asked.also)]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
