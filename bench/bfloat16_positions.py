"""How far positions in bfloat16 are from those in float32, in pixels, over one long CATER clip, frame after frame.

python bench/bfloat16_positions.py cater          (a network that ships, or a file)
python bench/bfloat16_positions.py cater_fine     (a preset: a network as it starts; --lively opens its branches)
"""

from __future__ import annotations

import argparse

import torch

import loci
from loci import presets
from loci.kernels.fast import FastWatch
from loci.model import Loci
from loci.worlds.cater import Cater


def network(name: str, lively: bool) -> Loci:
    if name not in presets.PRESETS or name == "cater":
        return loci.load(name).eval()
    torch.manual_seed(0)
    model = Loci(presets.PRESETS[name]().model).eval()
    if lively:
        with torch.no_grad():
            for key, parameter in model.named_parameters():
                if "alpha" in key or key.endswith("_scale"):
                    parameter.fill_(0.3)
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network")
    parser.add_argument("--lively", action="store_true")
    parser.add_argument("--frames", type=int, default=300)
    parser.add_argument("--clip", type=int, default=0)
    words = parser.parse_args()
    model = network(words.network, words.lively)
    clip = Cater("test", size=model.size, length=words.frames).clips([words.clip], labels=False)
    scale = (torch.tensor(model.size) - 1) / 2
    watches = [FastWatch(model), FastWatch(model, precision="bfloat16")]
    states = [model.start(1, clip.background[0, 0]) for _ in watches]
    states = [watch.bootstrap(clip.frames[:, 0], state) for watch, state in zip(watches, states, strict=True)]
    far, known = [], []
    for frame in clip.frames.unbind(1):
        places = []
        for n, watch in enumerate(watches):
            states[n], out = watch.step(frame, states[n])
            places.append(out.percept.position[0, :, :2] * scale)
            known.append(out.claimed[0]) if n == 0 else None
        far.append((places[1] - places[0]).abs().amax(-1))
    apart, claimed = torch.stack(far), torch.stack(known)
    print(f"{words.network}, {model.size[0]}x{model.size[1]}, {words.frames} frames, {apart.shape[1]} slots")
    for what, some in (("all slots", apart.flatten()), ("slots with an object", apart[claimed])):
        if some.numel():
            print(
                f"{what} ({some.numel()}): largest {some.max():.4f} px, 99 % within {some.quantile(0.99):.4f},"
                f" median {some.median():.4f}"
            )


if __name__ == "__main__":
    main()
