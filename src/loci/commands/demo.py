"""`loci demo`: make two clips, track them with the networks that ship, and say how good that was."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loci.commands import console

EXAMPLES = """
  loci demo
  loci demo --out demo --clip 7
"""
PARTS = ("moving_mnist", "cater")


@dataclass(frozen=True)
class Demo:
    """Make one clip of Moving MNIST and one of CATER that no network was trained on, track both, score them, show it.

    Open OUT/report.html in a browser.
    """

    out: Path = Path("demo")
    """The folder to write to."""
    clip: int = 0
    """Which clip of the test split; any number is another one."""


def main(words: list[str]) -> int:
    """Play the demo."""
    asked = console.parse(Demo, words, "demo", EXAMPLES)
    import time

    from loci.errors import UserError
    from loci.track.atomic import writable_folder

    start = time.perf_counter()
    if asked.clip < 0:
        raise UserError(f"--clip {asked.clip}: it must be 0 or more")
    missing = [name for name in PARTS if not shipped(name)]
    if missing:
        raise UserError(
            f"no network ships for {' and '.join(missing)}: src/loci/weights/{missing[0]}.safetensors is not there; "
            f"train one (loci train {missing[0]}) and copy its best.safetensors there"
        )
    from loci.track.demo import play, write_report

    writable_folder(asked.out)
    played = []
    for part in parts(asked.clip):
        console.say(f"{part.name}: making clip {asked.clip} of the test split, then tracking it")
        with console.progress(part.name, part.source.length) as advance:
            played.append(play(part, asked.out / part.name, lambda frame, go=advance: go(1)))  # type: ignore[misc]
    write_report(asked.out / "report.html", played)
    names = list(dict.fromkeys(row.name for each in played for row in each.rows))
    values = [{row.name: row.value for row in each.rows} for each in played]
    rows = [[name, *(value.get(name, "-") for value in values)] for name in names]
    rows.append(["frames, objects found", *(f"{each.summary.frames}, {each.summary.ids}" for each in played)])
    console.table("Clips no network was trained on", ["", *(each.name for each in played)], rows)
    console.say(f"{time.perf_counter() - start:.0f} s; open {(asked.out / 'report.html').resolve()}")
    return 0


def parts(clip: int) -> list[Any]:
    """The clips; CATER is made at the size its network takes, which is where the time goes."""
    from loci.track import network
    from loci.track.demo import Play
    from loci.worlds.cater import Cater
    from loci.worlds.moving_mnist import MovingMnist

    size = network("cater", "cpu").size
    return [
        Play("moving_mnist", MovingMnist(split="test", length=100), clip, 10, trim=True),
        Play("cater", Cater(split="test", size=(max(size[0], 120), max(size[1], 160))), clip, 24),
    ]


def shipped(name: str) -> bool:
    """Whether the package has this network."""
    from loci.checkpoint import WEIGHTS

    return (WEIGHTS / f"{name}.safetensors").is_file()
