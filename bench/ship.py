"""Put a network among those that ship: weights alone, in float32 or rounded, with the config it was trained by.

    python bench/ship.py runs/digits moving_mnist
    python bench/ship.py runs/cater/best.safetensors cater --dtype float16

Says how large the file is (8 MB are allowed) and its digest, which results name. Its card, NAME.md beside it, is
written by hand: what it was trained on and how, what it scores, where it fails.
"""

import argparse
import sys

import torch
from safetensors import safe_open

from loci import checkpoint

LARGEST = 8_000_000


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", help="a file or a run's folder")
    parser.add_argument("name")
    parser.add_argument("--dtype", choices=["float32", "float16", "bfloat16"], default="float32")
    asked = parser.parse_args()
    content = checkpoint.read(checkpoint.find(asked.network), weights_only=True)
    dtype = getattr(torch, asked.dtype)
    tensors = {name: t.to(dtype) if t.dim() > 1 else t for name, t in content.tensors.items() if "/" not in name}
    place = checkpoint.WEIGHTS / f"{asked.name}.safetensors"
    extra = {name: value for name, value in content.extra.items() if name in ("held_out", "minutes")}
    checkpoint.write(place, checkpoint.Content(content.config, content.step, extra, tensors))
    checkpoint.load(asked.name)
    with safe_open(place, "pt") as file:
        digest = file.metadata()["digest"]
    size = place.stat().st_size
    print(f"{place}: {content.step} updates, {size:,} bytes, digest {digest[:12]}")
    if not place.with_suffix(".md").exists():
        print(f"its card is missing: {place.with_suffix('.md')}")
    if size > LARGEST:
        sys.exit(f"larger than {LARGEST:,} bytes: choose another --dtype")
    return 0


if __name__ == "__main__":
    sys.exit(main())
