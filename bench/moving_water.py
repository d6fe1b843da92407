"""How well `loci background` follows moving water: python bench/moving_water.py FOLDER [CLIP] [STEPS] [FRAMES]

Makes a clip of the aquarium (water that rises and falls, wandering caustics, swaying plants, light that changes), has
`loci background` make its still and its moving background from the video alone, and prints how far both are from the
truth where no fish is: the tank without fish and without the camera's noise.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import torch

from loci import cli
from loci.track.background import read_image, write_image
from loci.track.fit import Fit, tensor
from loci.track.learn_background import load
from loci.track.video_in import open_video
from loci.track.video_out import video_out
from loci.worlds.aquarium import Aquarium

SIZE = (60, 80)
FISH = 6


@torch.inference_mode()
def main(folder: str, clip: str = "0", steps: str = "2000", frames: str = "300") -> None:
    """Make, learn, measure, and draw what it looks like."""
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    film, still, moving = (place / f"tank{clip}{ending}" for ending in (".mp4", "_still.png", "_moving.safetensors"))
    tank = Aquarium(split="test", length=int(frames), fish=FISH).clips([int(clip)])
    with video_out(film, 25, quality=12) as write:
        for picture in tank.frames[0].permute(0, 2, 3, 1).numpy():
            write(picture)
    cli.main(["background", str(film), "--out", str(still)])
    begin, size = time.perf_counter(), f"{SIZE[0]}x{SIZE[1]}"
    words = ["--method", "autoencoder", "--size", size, "--steps", steps, "--out", str(moving)]
    with torch.inference_mode(mode=False), torch.enable_grad():
        cli.main(["background", str(film), *words])
    minutes = (time.perf_counter() - begin) / 60
    fit = Fit((240, 320), SIZE)
    alone = [fit.shrink(picture) for picture in tank.background[0].permute(0, 2, 3, 1).numpy()]
    fish = [fit.shrink(mask.numpy().astype(np.uint8) * 255) > 0 for mask in tank.visible[0].any(1)]
    flat = fit.shrink(read_image(still)).astype(float)
    model = load(moving)
    state, errors, rows = model.start(1), [], []
    with open_video(film) as video:
        for frame in video:
            shown = fit.shrink(frame.pixels)
            background, state = model.step(tensor(shown)[None], state)
            said = background[0].permute(1, 2, 0).numpy() * 255
            water = ~fish[frame.index]
            errors.append([np.abs(each - alone[frame.index])[water].mean() for each in (said, flat)])
            if frame.index % (int(frames) // 4) == 10:
                rows.append(np.concatenate((shown, said.astype(np.uint8), flat.astype(np.uint8)), 1))
    write_image(place / f"tank{clip}.png", np.concatenate(rows))
    followed, stood = np.mean(errors, 0)
    print(
        f"clip {clip}: mean absolute error of 255 where no fish is, over {len(errors)} frames: moving {followed:.2f}, "
        f"still {stood:.2f}, ratio {followed / stood:.2f}; learned in {minutes:.1f} minutes"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
