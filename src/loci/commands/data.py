"""`loci data make` writes labelled video in the layouts of the real data sets; `loci data show` draws its labels."""

from __future__ import annotations

import dataclasses
import json
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from loci.commands import console
from loci.errors import UserError, near

if TYPE_CHECKING:
    from loci.data.source import Source, Split
    from loci.data.write import Layout

World = Literal["moving_mnist", "cater", "clevrer", "aquarium"]
SplitName = Literal["train", "val", "test"]
Name = Annotated[World, tyro.conf.Positional]

MAKE = """
  loci data make moving_mnist --count 10000 --length 20 --out mnist
  loci data make cater --count 5500 --seed 1 --out CATER
  loci data make cater --count 10 --size 120 160 --option jitter=true --out small
"""
SHOW = """
  loci data show cater --seed 3 --out look
  loci data show moving_mnist --option digits=3 protocol=ink --out look
"""
_EXAMPLES = {bool: "true or false", int: "a whole number such as 3", float: "a number such as 2.5"}
USAGE = """usage: loci data {make,show} WORLD [options]

  make  write clips of a world with their labels, in the real data set's layout
  show  a contact sheet and a video with the labels drawn in

`loci data make --help` and `loci data show --help` have the options and examples."""


@dataclass(frozen=True)
class Make:
    """Write labelled clips of a world, in the layout of the real data set.

    cater: MJPEG, scenes, lists (and masks in labels/). clevrer: mp4, annotations, proposals. moving_mnist:
    mnist_test_seq.npy, png, masks in labels/. aquarium: mp4 and COCO run lengths as JSON. A second call goes on where
    one was stopped, and may ask for more clips.
    """

    world: Name
    """Which world."""
    count: int
    """How many clips there shall be."""
    out: Path
    """The folder, new or made by the same call."""
    seed: int = 0
    """Another seed, other clips."""
    split: SplitName | None = None
    """Clips of one split only. Otherwise as the real data set is divided (cater 70:30, clevrer by number), test for
    moving_mnist, train for aquarium."""
    size: tuple[int, int] | None = None
    """Height and width; the real data set's unless given."""
    length: int | None = None
    """Frames in a clip; as many as in the real data set unless given."""
    option: tuple[str, ...] = ()
    """More options of the world, such as digits=3 protocol=box."""
    device: str = "cpu"
    """Where clips are computed: cpu or cuda."""


@dataclass(frozen=True)
class Show:
    """Write a contact sheet (WORLD.png) and a video (WORLD.mp4) of some clips with their labels drawn in."""

    world: Name
    """Which world."""
    out: Path = Path("shown")
    """The folder to write to."""
    seed: int = 0
    """Another seed, other clips."""
    split: SplitName = "train"
    """Which split the clips are of."""
    count: int = 4
    """How many clips."""
    first: int = 0
    """The first of them."""
    size: tuple[int, int] | None = None
    """Height and width; the real data set's unless given."""
    length: int | None = None
    """Frames in a clip; as many as in the real data set unless given."""
    option: tuple[str, ...] = ()
    """More options of the world, such as digits=3 protocol=box."""
    device: str = "cpu"
    """Where clips are computed: cpu or cuda."""


def main(words: list[str]) -> int:
    """Make or show."""
    if not words or words[0] in ("-h", "--help"):
        console.say(USAGE)
        return 0 if words else 2
    if words[0] == "make":
        return make(console.parse(Make, words[1:], "data make", MAKE))
    if words[0] == "show":
        return show(console.parse(Show, words[1:], "data show", SHOW))
    raise UserError(f"no such thing as `data {words[0]}`{near(words[0], ('make', 'show'))}: make or show")


def make(asked: Make) -> int:
    """Write clips until there are as many as asked for."""
    from loci.data.source import SPLITS
    from loci.data.write import claim, write_clips

    if asked.count < 1:
        raise UserError(f"--count {asked.count}: ask for at least 1 clip")
    sources: dict[Split, Source] = {split: _world(asked, split) for split in SPLITS}
    layout, divided = _layout(asked)
    layout.place(asked.count - 1)
    device = _device(asked.device)
    described = {"world": asked.world, **dataclasses.asdict(sources["train"]), "split": divided}  # type: ignore[call-overload]
    claim(asked.out, described)
    there = sum(map(layout.done, range(asked.count)))
    with console.progress(f"{asked.world} to {asked.out}", asked.count) as advance:
        advance(there)
        try:
            made = write_clips(layout, sources, asked.count, device=device, advance=advance)
        except KeyboardInterrupt:
            there = sum(map(layout.done, range(asked.count)))
            console.warn(f"{there} of {asked.count} clips are written; the same command goes on from there")
            raise
    console.say(f"{asked.out}: {asked.count} clips of {asked.world}, {made} of them new")
    return 0


def show(asked: Show) -> int:
    """Draw some clips."""
    from loci.data.write_picture import draw_all, write_drawn, write_sheet

    if asked.count < 1 or asked.first < 0:
        raise UserError(f"--count {asked.count} --first {asked.first}: ask for at least 1 clip, from 0 on")
    source = _world(asked, asked.split)
    device, drawn = _device(asked.device), []
    numbers = range(asked.first, asked.first + asked.count)
    # One clip at a time: its masks take much more room than the pictures drawn from them.
    for number in console.over(numbers, f"drawing {asked.world}"):
        drawn.append(draw_all(source.clips([number], device=device).to("cpu"), source))
    sheet, video = asked.out / f"{asked.world}.png", asked.out / f"{asked.world}.mp4"
    write_sheet(sheet, drawn)
    write_drawn(video, drawn)
    console.say(f"{sheet}\n{video}")
    return 0


def _world(asked: Make | Show, split: Split) -> Source:
    from loci.worlds.open import open_world

    given = {"seed": asked.seed, "size": asked.size, "length": asked.length}
    more = _options(asked)
    twice = [name for name in more if name in given or name == "split"]
    if twice:
        raise UserError(f"--option {twice[0]}=...: write --{twice[0]} instead")
    return open_world(asked.world, split=split, **given, **more)


def _options(asked: Make | Show) -> dict[str, Any]:
    """The words name=value, each value as its world's option has it."""
    from loci.worlds.open import world_class

    kinds = typing.get_type_hints(world_class(asked.world)) if asked.option else {}
    result: dict[str, Any] = {}
    for word in asked.option:
        name, equals, text = word.partition("=")
        if not equals:
            raise UserError(f"--option {word}: write NAME=VALUE")
        if name in result:
            raise UserError(f"--option {word}: {name} is given twice; give it once")
        result[name] = _value(word, text, kinds.get(name, str))
    return result


def _value(word: str, text: str, kind: Any) -> Any:
    choices = [choice for choice in (kind, *typing.get_args(kind)) if choice in (bool, int, float)]
    if not choices:
        return text
    wanted = f"{text!r} is no {choices[0].__name__}, write {_EXAMPLES[choices[0]]}"
    try:
        value = json.loads(text.lower())
    except json.JSONDecodeError as error:
        raise UserError(f"--option {word}: {wanted}") from error
    if choices[0] is float and type(value) is int:
        return float(value)
    if type(value) is not choices[0]:
        raise UserError(f"--option {word}: {wanted}")
    return value


def _layout(asked: Make) -> tuple[Layout, str]:
    """How the folder is laid out, and which splits are in it."""
    if asked.world == "cater":
        from loci.data.write_cater import CaterFolder

        return CaterFolder(asked.out, asked.split), asked.split or "all"
    if asked.world == "clevrer":
        from loci.data.write_clevrer import ClevrerFolder

        return ClevrerFolder(asked.out, asked.split), asked.split or "all"
    if asked.world == "moving_mnist":
        from loci.data.write_moving_mnist import MovingMnistFolder

        return MovingMnistFolder(asked.out, asked.split or "test"), asked.split or "test"
    from loci.data.write_labels import LabelledFolder

    return LabelledFolder(asked.out, asked.split or "train"), asked.split or "train"


def _device(name: str) -> str:
    import torch

    try:
        if torch.device(name).type not in ("cpu", "cuda"):
            raise RuntimeError("clips are made on cpu or cuda")
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"--device {name}: not to be had here ({str(error).splitlines()[0]}); try cpu") from error
    return name
