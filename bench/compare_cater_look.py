"""Draw the scenes of a folder like cater_look from their JSON and compare with its videos and masks.

    python bench/compare_cater_look.py ../shared/data/cater_look --every 10 --picture docs/img/cater_look.jpg

Prints the mean absolute difference (of 1) of the empty floor and of whole frames, and each object's mask IoU over the
frames in which more than 60 of its pixels are seen. "Turned" are objects from their first `_rotate` on.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import av
import numpy as np
import torch
from PIL import Image

from loci.worlds.cater_scene import draw, from_json
from loci.worlds.render import render

SMALLEST = 60


def video(path: Path) -> torch.Tensor:
    with av.open(str(path)) as file:
        frames = [frame.to_ndarray(format="rgb24") for frame in file.decode(video=0)]
    return torch.from_numpy(np.stack(frames)).permute(0, 3, 1, 2)


def difference(a: torch.Tensor, b: torch.Tensor) -> float:
    return ((a.float() - b.float()).abs().mean() / 255).item()


def report(title: str, scores: dict[tuple[str, str], list[float]], bound: float) -> None:
    means = {key: float(np.mean(values)) for key, values in scores.items()}
    worst = min(min(values) for values in scores.values())
    count = sum(map(len, scores.values()))
    print(
        f"{title}: {len(means)} objects, {count} masks; mean IoU {np.mean([*means.values()]):.3f},"
        f" worst object {min(means.values()):.3f} (wanted {bound}), worst single mask {worst:.3f}"
    )
    for name, instance in sorted(means, key=means.__getitem__)[:6]:
        values = scores[name, instance]
        print(f"  clip {name[-1]} {instance:24s} mean {np.mean(values):.3f} worst {min(values):.3f} of {len(values)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--every", type=int, default=10, help="compare every n-th frame")
    parser.add_argument("--picture", type=Path, help="write theirs above ours for each clip")
    parser.add_argument("--frames", type=int, nargs="+", default=[0, 60, 150, 240], help="frames of the picture")
    words = parser.parse_args()
    torch.set_num_threads(1)
    floor = torch.from_numpy(np.array(Image.open(words.folder / "background.png").convert("RGB"))).permute(2, 0, 1)
    size = (floor.shape[1], floor.shape[2])
    rows, differences = [], []
    still: dict[tuple[str, str], list[float]] = {}
    turned: dict[tuple[str, str], list[float]] = {}
    for path in sorted((words.folder / "scenes").glob("*.json")):
        name = path.stem
        script = from_json(json.loads(path.read_text()))
        kept = slice(None, None, words.every)
        real = video(words.folder / "videos" / f"{name}.avi")[kept]
        ids = torch.from_numpy(np.load(words.folder / "masks" / f"{name}.npz")["ids"])[kept]
        drawn = render(draw([script]).during(kept), size)
        frames = drawn.frames[0]
        differences.append(difference(frames, real))
        print(f"{name}: frames {differences[-1]:.4f}  empty floor {difference(drawn.background[0, 0], floor):.4f}")
        for n, thing in enumerate(script.things):
            first = min((m.start for m in script.moves[n] if m.kind == "_rotate"), default=10**6)
            for at, theirs in enumerate(ids == n + 1):
                if theirs.sum() > SMALLEST:
                    ours = drawn.visible[0, at, n]
                    scores = turned if at * words.every > first else still
                    overlap = (ours & theirs).sum().item() / (ours | theirs).sum().item()
                    scores.setdefault((name, thing.instance), []).append(overlap)
        chosen = [frame // words.every for frame in words.frames]
        rows.append(torch.cat([torch.cat((real[i], frames[i]), 1) for i in chosen], 2))
    print(f"mean of frames {np.mean(differences):.4f}")
    report("not turned", still, 0.85)
    report("turned", turned, 0.75)
    if words.picture:
        Image.fromarray(torch.cat(rows, 1).permute(1, 2, 0).numpy()).save(words.picture, quality=92)


if __name__ == "__main__":
    main()
