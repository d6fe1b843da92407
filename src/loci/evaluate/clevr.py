"""CLEVR with masks (Table 5): a CATER network looks at a still image thirty times; how well do its masks fit?"""

from __future__ import annotations

import torch
from torch import Tensor

from loci.data.source import Source
from loci.evaluate import figures, paper
from loci.evaluate import metrics_masks as masks_
from loci.evaluate.report import Entry, Pixels, Report, Table
from loci.evaluate.watch import Advance, clips_in_batches, keys_of, quickened, require, silent
from loci.model import Loci

ITERATIONS = 30
COUNT = 1000
_SHOWN = 6


@torch.no_grad()
def evaluate(
    model: Loci,
    source: Source,
    *,
    count: int = COUNT,
    iterations: int = ITERATIONS,
    seed: int = 0,
    scene: Tensor | None = None,
    batch: int | None = None,
    device: torch.device | str = "cpu",
    advance: Advance = silent,
) -> Report:
    """Segment the first frame of every clip."""
    overlap, size, rand = [], [], []
    pictures: list[list[Pixels]] = []
    eyes = quickened(model, source, count, iterations, batch=batch, labels=True, device=device)
    for clip in clips_in_batches(source, count, model=model, batch=batch, device=device, advance=advance):
        require(clip, "visible")
        assert clip.visible is not None
        image, truth = clip.frames[:, 0], masks_.labels_of_objects(clip.visible[:, 0])
        background = scene if clip.background is None else clip.background[:, 0]
        state = eyes.start(clip.batch, background, keys=keys_of(clip, seed))
        for _ in range(iterations):
            state, output = eyes.step(image, state)
        found = masks_.labels_of_slots(output.masks)
        matched = masks_.match(found, truth)
        there = matched.size > 0
        overlap.append(matched.iou[there].cpu())
        size.append(matched.size[there].cpu())
        rand.append(masks_.fg_ari(found, truth).cpu())
        for b in range(min(clip.batch, _SHOWN - len(pictures))):
            pictures.append(_row(image[b], output.masks[b], clip.visible[b, 0], output.frame[b]))
    pooled = masks_.Matched(torch.cat(overlap), torch.cat(size), torch.empty(0))
    mask_average, pixel_average = masks_.mask_average(pooled).item(), masks_.pixel_average(pooled).item()
    rows: list[tuple[Entry, ...]] = [
        (f"network {n} (paper)", mask, pixel, None) for n, (mask, pixel) in enumerate(paper.CLEVR_NETWORKS, start=1)
    ]
    rows.append(("ours", 100 * mask_average, 100 * pixel_average, 100 * torch.cat(rand).nanmean().item()))
    note = f"Paper: {paper.CLEVR}. Each object counts once, or by its size in pixels."
    facts: dict[str, Entry] = {
        "images": len(torch.cat(rand)),
        "objects": len(pooled.iou),
        "iterations": iterations,
        "size": "x".join(map(str, model.size)),
        "seed": seed,
    }
    table = Table(
        "Masks on still images", ("network", "mask avg (%)", "pixel avg (%)", "FG-ARI (%)"), tuple(rows), note
    )
    names = ("image", "slots", "truth", "prediction")
    sheet = figures.strip([list(column) for column in zip(*pictures, strict=True)], names=names, tall=figures.TALL)
    return Report("clevr", facts, (table,), {"masks": sheet})


def _row(image: Tensor, masks: Tensor, visible: Tensor, predicted: Tensor) -> list[Pixels]:
    truth = torch.cat((visible, ~visible.any(0, keepdim=True))).float()
    return [
        figures.pixels(image),
        figures.tinted(image, masks),
        figures.tinted(image, truth),
        figures.pixels(predicted),
    ]
