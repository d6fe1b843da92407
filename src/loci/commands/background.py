"""`loci background`: the scene without its objects, still or moving."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from loci.commands import console
from loci.errors import UserError

EXAMPLES = """
  loci background street.mp4 --out street.png
  loci background tank.mp4 --method autoencoder --weights runs/tank --out tank.safetensors
  loci background tank.mp4 --method autoencoder --size 60x80 --steps 4000 --out tank.safetensors
"""


@dataclass(frozen=True)
class Background:
    """Work out the background of a video, save it, and show it.

    mog2: a still picture, by a mixture of Gaussians for every pixel. autoencoder: a network that follows water, leaves
    and light, learned from the video. Both are what `loci track --background` takes. For the autoencoder a picture is
    saved too: from left to right the video, the moving background, the still one; from top to bottom four moments.
    """

    video: Annotated[str, tyro.conf.Positional]
    """A file or a folder of images."""
    out: Path | None = None
    """What to write: .png for mog2, .safetensors for autoencoder (added where it is missing); unless given,
    background.* here."""
    method: Literal["mog2", "autoencoder"] = "mog2"
    """Still or moving."""
    weights: str | None = None
    """A network, whose size the moving background gets."""
    size: str | None = None
    """HEIGHTxWIDTH of the moving background, in place of --weights."""
    steps: int = 2000
    """How long the moving background is learned."""
    seed: int = 0
    """Of how it starts and what it is shown when."""
    device: str = "auto"
    """cpu or cuda; auto takes a GPU where there is one."""


def main(words: list[str]) -> int:
    """Work it out."""
    asked = console.parse(Background, words, "background", EXAMPLES)
    suffix = ".png" if asked.method == "mog2" else ".safetensors"
    out = asked.out or Path(f"background{suffix}")
    out = out if out.suffix else out.with_suffix(suffix)
    if out.suffix != suffix:
        raise UserError(f"--out {str(out)!r}: --method {asked.method} writes a {suffix} file")
    from loci.track.atomic import writable_folder
    from loci.track.video_in import check

    check(asked.video)
    writable_folder(out.parent)
    if asked.method == "mog2":
        return _still(asked, out)
    return _moving(asked, out)


def _still(asked: Background, out: Path) -> int:
    from loci.track.background import still_background, write_image

    picture = still_background(asked.video)
    write_image(out, picture)
    console.say(f"{out}: {picture.shape[1]} x {picture.shape[0]}")
    return 0


def _moving(asked: Background, out: Path) -> int:
    from loci.commands.evaluate import chosen
    from loci.commands.track import size_of
    from loci.track import learn_background
    from loci.track.background import write_image

    if (asked.weights is None) == (asked.size is None):
        raise UserError("--method autoencoder needs the size of the network: give --weights or --size HEIGHTxWIDTH")
    if asked.steps < 1:
        raise UserError(f"--steps {asked.steps}: take 1 or more; 2000 is a good start")
    if asked.weights is not None:
        from loci.track import network

        size = network(asked.weights, "cpu").size
    else:
        size = size_of(str(asked.size))
    with console.progress("learning", asked.steps) as advance:
        model = learn_background.learn(
            asked.video, size, steps=asked.steps, seed=asked.seed, device=chosen(asked.device),
            told=lambda _step, _loss: advance(),
        )  # fmt: skip
    learn_background.save(out, model)
    shown = out.with_suffix(".png")
    compared = learn_background.compare(asked.video, model)
    write_image(shown, compared.picture)
    console.say(f"{out}: for frames of {size[0]}x{size[1]}; {shown}: what it looks like")
    console.say(f"mean absolute error of 255, typical pixel: moving {compared.moving:.2f}, still {compared.still:.2f}")
    return 0
