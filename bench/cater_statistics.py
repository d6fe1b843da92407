"""What a thousand CATER stories are like, and what the script's rules predict. No pictures are drawn.

python bench/cater_statistics.py --count 1000
"""

from __future__ import annotations

import argparse
from collections import Counter

import numpy as np
import torch

from loci.data.cater_geometry import snitch_class
from loci.worlds.cater_scene import holders
from loci.worlds.cater_script import write


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    words = parser.parse_args()
    objects, kinds, moves, rounds = Counter(), Counter(), [], []
    ends, ever, hidden, nested, classes = [], [], [], [], []
    for n in range(words.count):
        script = write(words.seed, "test", n)
        held = holders(script)
        objects[len(script.things)] += 1
        kinds.update(move.kind for own in script.moves for move in own)
        moves.append(sum(move.kind != "_no_op" for own in script.moves for move in own))
        rounds.append(sum(move.kind == "_contain" for own in script.moves for move in own))
        ends.append(held[-1, 0] >= 0)
        ever.append((held[:, 0] >= 0).any())
        hidden.append((held[:, 0] >= 0).mean())
        outer = np.where(held >= 0, np.take_along_axis(held, held.clip(0), 1), -1)
        nested.append((outer >= 0).any())
        classes.append(int(snitch_class(torch.from_numpy(script.places[0, -1]))))
    total = words.count
    print(f"{total} scripts, seed {words.seed}")
    print("objects per clip:", ", ".join(f"{k}: {v / total:.3f}" for k, v in sorted(objects.items())))
    print(f"moves per clip: mean {np.mean(moves):.1f}, {np.min(moves)} to {np.max(moves)}")
    print("of each kind per clip:", ", ".join(f"{k} {v / total:.2f}" for k, v in kinds.most_common()))
    print(f"contains per clip: mean {np.mean(rounds):.2f}")
    print(f"snitch contained at the end: {np.mean(ends):.3f} ± {np.std(ends) / total**0.5:.3f}")
    print(f"snitch ever contained: {np.mean(ever):.3f}; share of frames contained: {np.mean(hidden):.3f}")
    print(f"clips with a cone over a holding cone: {np.mean(nested):.3f}")
    histogram = np.bincount(classes, minlength=36).reshape(6, 6)
    print("snitch at the end, cells (rows y -3..2, columns x -3..2):")
    for row in histogram:
        print("  " + " ".join(f"{value:4d}" for value in row))
    expected = total / 36
    print(f"cells: {histogram.min()} to {histogram.max()}, uniform would be {expected:.1f} ± {expected**0.5:.1f};"
          f" chi² {((histogram - expected) ** 2 / expected).sum():.1f} of 35 degrees of freedom")  # fmt: skip


if __name__ == "__main__":
    main()
