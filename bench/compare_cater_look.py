"""Draw the scenes of a folder like cater_look from their JSON and compare with its videos and masks.

    python bench/compare_cater_look.py /work/shared/data/cater_look --every 10 --picture docs/img/cater_look.jpg

Prints the mean absolute difference (of 1) of the empty floor and of whole frames, and each object's mask IoU.
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
        return torch.from_numpy(np.stack([f.to_ndarray(format="rgb24") for f in file.decode(video=0)])).permute(
            0, 3, 1, 2
        )


def difference(a: torch.Tensor, b: torch.Tensor) -> float:
    return ((a.float() - b.float()).abs().mean() / 255).item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--every", type=int, default=10, help="compare every n-th frame")
    parser.add_argument("--picture", type=Path, help="write both side by side")
    parser.add_argument("--frames", type=int, nargs="+", default=[0, 60, 150, 230], help="frames of the picture")
    parser.add_argument("--scale", type=int, default=1)
    parser.add_argument("--clips", type=int, nargs="+", default=[0, 1, 2, 3])
    words = parser.parse_args()
    torch.set_num_threads(1)
    wanted = Image.open(words.folder / "background.png").convert("RGB")
    floor = torch.from_numpy(np.array(wanted)).permute(2, 0, 1)
    size = (floor.shape[1], floor.shape[2])
    rows, ious, moving, differences = [], {}, {}, []
    for name in sorted(path.stem for path in (words.folder / "scenes").glob("*.json")):
        if int(name[-6:]) not in words.clips:
            continue
        script = from_json(json.loads((words.folder / "scenes" / f"{name}.json").read_text()))
        real = video(words.folder / "videos" / f"{name}.avi")
        ids = torch.from_numpy(np.load(words.folder / "masks" / f"{name}.npz")["ids"])
        keep = torch.arange(0, len(real), words.every)
        scene = draw([script])
        part = scene.during(slice(None))
        for field in ("position", "rotation", "present", "shown"):
            object.__setattr__(part, field, getattr(scene, field)[:, keep])
        drawn = render(part, size)
        frames = drawn.frames[0]
        differences.append(difference(frames, real[keep]))
        print(f"{name}: frames {differences[-1]:.4f}  empty floor {difference(drawn.background[0, 0], floor):.4f}")
        for n, thing in enumerate(script.things):
            ours, theirs = drawn.visible[0, :, n], ids[keep] == n + 1
            # Objects that were ever turned stand tilted ever after: "turned" from their first _rotate on.
            first = min((m.start for m in script.moves[n] if m.kind == "_rotate"), default=len(real))
            for at in range(len(keep)):
                if theirs[at].sum() > SMALLEST:
                    score = (ours[at] & theirs[at]).sum().item() / (ours[at] | theirs[at]).sum().item()
                    (moving if keep[at] > first else ious).setdefault((name, thing.instance), []).append(score)
        if words.picture:
            drawn = render(draw([script]).during(slice(0, None)) if False else part, size)
            index = [int((keep - f).abs().argmin()) for f in words.frames]
            row = torch.cat([torch.cat((real[keep[i]], frames[i]), 1) for i in index], 2)
            rows.append(row)
    for title, table, bound in (("not turned", ious, 0.85), ("turned", moving, 0.75)):
        means = {key: (np.mean(v), np.min(v), len(v)) for key, v in table.items()}
        print(
            f"{title}: objects {len(means)}, mean IoU {np.mean([m[0] for m in means.values()]):.3f},"
            f" worst object {min(m[0] for m in means.values()):.3f}, worst frame {min(m[1] for m in means.values()):.3f}"
        )
        for key, (mean, low, count) in sorted(means.items(), key=lambda item: item[1])[:8]:
            print(
                f"  {key[0][-1]} {key[1]:26s} mean {mean:.3f} min {low:.3f} frames {count}{'  BELOW' if mean < bound else ''}"
            )
    print(f"mean of frames {np.mean(differences):.4f}")
    if words.picture:
        array = torch.cat(rows, 1).permute(1, 2, 0).numpy()
        image = Image.fromarray(array)
        image.resize((image.width * words.scale, image.height * words.scale), Image.Resampling.NEAREST).save(
            words.picture, quality=92
        )


if __name__ == "__main__":
    main()
