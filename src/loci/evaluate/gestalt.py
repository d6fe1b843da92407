"""What the Gestalt codes look like from inside (appendix, fig:cluster_analysis).

450 codes of slots that see an object; clusters by a Gaussian mixture; a map by t-SNE; the main axes of variance of
every cluster by PCA, and what walking along them does to the decoded object: to its colour, and to its shape. Where the
source knows what the objects are, clusters are compared with it; the clustering itself never sees it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from loci import random
from loci.data.clip import Clip
from loci.data.source import Source
from loci.errors import UserError
from loci.evaluate import figures, gestalt_bits
from loci.evaluate import metrics_masks as masks_
from loci.evaluate.report import Entry, Pixels, Report, Table
from loci.evaluate.watch import Advance, clips_in_batches, silent, watch
from loci.model import Code, Loci

CODES = 450
CLUSTERS = 8
AXES = 6
"""Axes of each cluster that are looked at."""
STEPS = 9
"""Pictures along a walk."""
_VISIBLE = 0.8
_EVERY = 10  # frames between two looks: neighbours have the same codes


@dataclass
class Codes:
    """Codes of slots that see an object [n,D], their sizes [n,1], and what the object is (-1 where unknown) [n]."""

    gestalt: list[Tensor] = field(default_factory=list)
    sigma: list[Tensor] = field(default_factory=list)
    kinds: dict[str, list[Tensor]] = field(default_factory=dict)

    def __len__(self) -> int:
        return sum(map(len, self.gestalt))


@torch.no_grad()
def collect(
    model: Loci,
    source: Source,
    *,
    codes: int = CODES,
    clips: int = 100,
    seed: int = 0,
    scene: Tensor | None = None,
    device: torch.device | str = "cpu",
    advance: Advance = silent,
) -> Codes:
    """Watch clips until there are enough codes; a slot is asked where its mask is nearly opaque."""
    kept = Codes()
    share = max(1, codes // 20)  # of one clip, so that many objects are among them
    for clip in clips_in_batches(source, clips, batch=1, device=device):
        before = len(kept)
        for t, (_, output) in enumerate(watch(model, clip, seed, scene=scene)):
            if t % _EVERY or t + 1 == clip.length:
                continue
            chosen = (output.visible[0] > _VISIBLE) & output.claimed[0]
            kept.gestalt.append(output.code.gestalt[0, chosen].cpu())
            kept.sigma.append(output.code.position[0, chosen, 2:].cpu())
            for name, kind in _kinds(clip, t + 1, output.masks).items():
                kept.kinds.setdefault(name, []).append(kind[chosen].cpu())
            if len(kept) - before >= share:
                break
        advance(min(len(kept), codes) - min(before, codes))
        if len(kept) >= codes:
            break
    if len(kept) < 2 * CLUSTERS:
        raise UserError(
            f"only {len(kept)} codes of visible objects in {clips} clips: this network hardly sees any (is it "
            "trained?), or give more clips with --count"
        )
    return kept


def _kinds(clip: Clip, time: int, masks: Tensor) -> dict[str, Tensor]:
    """For every slot, the attributes of the object its mask fits best, or -1; [K] each."""
    if clip.visible is None:
        return {}
    matched = masks_.match(
        masks_.labels_of_slots(masks), masks_.labels_of_objects(clip.visible[:, time]), objects=clip.visible.shape[2]
    )
    slots = masks.shape[1] - 1
    owner = torch.full((slots + 1,), -1, device=masks.device)
    sure = matched.iou[0].nan_to_num() > 0.3
    owner[torch.where(sure, matched.slot[0], slots)] = torch.arange(len(sure), device=masks.device)
    owner = owner[:slots]
    return {
        name: torch.where(owner >= 0, values[0, owner.clamp(min=0)], -1) for name, values in clip.attributes.items()
    }


@torch.no_grad()
def paint(model: Loci, gestalt: Tensor, sigma: Tensor) -> tuple[Tensor, Tensor]:
    """Codes [n,D] as objects in the middle of a gray frame [n,3,H,W], and their masks [n,H,W]."""
    n = len(gestalt)
    position = torch.cat((torch.zeros(n, 2, device=sigma.device), sigma), 1)[:, None].to(model.device)
    code = Code(position, gestalt[:, None].to(model.device), torch.zeros(n, 1, device=model.device))
    gray = torch.full((n, 3, *model.size), 0.5, device=model.device)
    frame, masks, _ = model.paint(code, gray)
    return frame, masks[:, 0]


@dataclass(frozen=True)
class Walk:
    """From a cluster's code along one of its main axes of variance."""

    cluster: int
    axis: int
    direction: NDArray[np.float64]
    """[D], one standard deviation long."""
    colour: float
    """How far the object's mean colour changes from end to end."""
    shape: float
    """How much of the mask changes from end to end: 1 - IoU, with sizes brought to the same place."""


def walk_codes(start: Tensor, *directions: NDArray[np.float64], reach: float = 3.0) -> Tensor:
    """Codes [STEPS,D] from one end of the walk to the other, in [0,1] as the decoder knows them."""
    along = torch.linspace(-reach, reach, STEPS, dtype=torch.float64)[:, None]
    step = torch.from_numpy(np.sum(directions, axis=0))[None]
    return (start.double() + along * step).clamp(0, 1).float()


def walks(model: Loci, codes: NDArray[np.float64], sigma: Tensor, cluster: NDArray[np.int64]) -> list[Walk]:
    """All axes of all clusters, and what each changes."""
    from sklearn.decomposition import PCA

    found = []
    for number in np.unique(cluster):
        members = codes[cluster == number]
        if len(members) < 3:
            continue
        pca = PCA(min(AXES, len(members) - 1, members.shape[1]), svd_solver="full").fit(members)
        start = torch.from_numpy(members[_central(members)])
        size = sigma[torch.from_numpy(cluster == number)].mean(0, keepdim=True)
        for axis, (part, variance) in enumerate(zip(pca.components_, pca.explained_variance_, strict=True)):
            direction = part * variance**0.5
            frames, masks = paint(model, walk_codes(start, direction), size.expand(STEPS, -1))
            found.append(Walk(int(number), axis, direction, *_changes(frames, masks)))
    return found


def _central(members: NDArray[np.float64]) -> int:
    """The member nearest to the mean."""
    return int(np.linalg.norm(members - members.mean(0), axis=1).argmin())


def _changes(frames: Tensor, masks: Tensor) -> tuple[float, float]:
    """Colour and shape at one end of a walk against the other."""
    weight = masks[[0, -1], None]
    colour = (frames[[0, -1]] * weight).sum((2, 3)) / weight.sum((2, 3)).clamp(min=1e-6)
    first, last = masks[0] > 0.5, masks[-1] > 0.5
    union = (first | last).sum()
    overlap = ((first & last).sum() / union).item() if union else 1.0
    return (colour[0] - colour[1]).norm().item(), 1 - overlap


def report(model: Loci, kept: Codes, names: dict[str, tuple[str, ...]], *, codes: int = CODES, seed: int = 0) -> Report:
    """Clusters, map and walks."""
    from sklearn.manifold import TSNE
    from sklearn.mixture import GaussianMixture

    gestalt = torch.cat(kept.gestalt)[:codes]
    sigma = torch.cat(kept.sigma)[:codes]
    kinds = {name: torch.cat(values)[:codes] for name, values in kept.kinds.items()}
    values = gestalt.double().numpy()
    mixture = GaussianMixture(CLUSTERS, covariance_type="diag", reg_covar=1e-3, n_init=3, random_state=seed)
    cluster = mixture.fit_predict(values).astype(np.int64)
    spread = TSNE(perplexity=min(30, (len(values) - 1) / 3), init="pca", random_state=seed).fit_transform(values)
    steps = walks(model, values, sigma, cluster)
    facts: dict[str, Entry] = {"codes": len(values), "clusters": CLUSTERS, "seed": seed}
    pictures = {"map": _map(spread, cluster, kinds, names)}
    if steps:
        pictures["walks"] = _walks(model, values, sigma, cluster, steps)
    known = {name: kind for name, kind in kinds.items() if len(names.get(name, ())) > 1}
    tables = (gestalt_bits.table(gestalt, known), _clusters(cluster, kinds, names), _axes(steps))
    return Report("gestalt", facts, tables, pictures)


def _clusters(cluster: NDArray[np.int64], kinds: dict[str, Tensor], names: dict[str, tuple[str, ...]]) -> Table:
    """How large each cluster is, its commonest objects, and at the end how well clusters and kinds agree."""
    known = [name for name in kinds if len(names.get(name, ())) > 1]
    rows: list[tuple[Entry, ...]] = []
    for number in range(CLUSTERS):
        inside = torch.from_numpy(cluster == number)
        rows.append((number, int(inside.sum()), *(_commonest(kinds[name][inside], names[name]) for name in known)))
    labels = torch.from_numpy(cluster)
    agreement = []
    for name in known:
        sure = kinds[name] >= 0
        agreement.append(masks_.ari(labels[sure], kinds[name][sure], shared=1).item() if bool(sure.any()) else None)
    rows.append(("agreement (adjusted Rand)", len(cluster), *agreement))
    return Table("Clusters of Gestalt codes", ("cluster", "codes", *known), tuple(rows))


def _commonest(kind: Tensor, names: tuple[str, ...]) -> str | None:
    kind = kind[kind >= 0]
    if not len(kind):
        return None
    count = kind.bincount()
    return f"{names[int(count.argmax())]} ({100 * int(count.max()) // len(kind)}%)"


def _axes(steps: list[Walk]) -> Table:
    rows = tuple((w.cluster, w.axis, float(np.linalg.norm(w.direction)), w.colour, w.shape) for w in steps)
    header = ("cluster", "axis", "standard deviation", "change of colour", "change of shape (1 - IoU)")
    return Table("Main axes of variance, three deviations to either side", header, rows)


def disentangled(steps: list[Walk]) -> tuple[Walk, Walk]:
    """The axis that changes colour but not shape, and the one that changes shape but not colour, of one cluster.

    The cluster is the one in which the two together stand out most.
    """

    def purity(change: float, other: float) -> float:
        return change / (change + other + 0.05)

    best: tuple[float, Walk, Walk] | None = None
    for number in {w.cluster for w in steps}:
        mine = [w for w in steps if w.cluster == number]
        hue = max(mine, key=lambda w: w.colour * purity(w.colour, w.shape))
        form = max(
            (w for w in mine if w is not hue or len(mine) == 1), key=lambda w: w.shape * purity(w.shape, w.colour)
        )
        gain = hue.colour * purity(hue.colour, hue.shape) * form.shape * purity(form.shape, form.colour)
        if best is None or gain > best[0]:
            best = (gain, hue, form)
    assert best is not None
    return best[1], best[2]


def _walks(
    model: Loci, codes: NDArray[np.float64], sigma: Tensor, cluster: NDArray[np.int64], steps: list[Walk]
) -> Pixels:
    """Along the axis of colour, along that of shape, and along both at once."""
    hue, form = disentangled(steps)
    inside = cluster == hue.cluster
    members, sizes = codes[inside], sigma[torch.from_numpy(inside)]
    chosen = int(random.integers(random.key("gestalt walk", hue.cluster), len(members), (1,)))
    start, size = torch.from_numpy(members[chosen]), sizes[chosen : chosen + 1].expand(STEPS, -1)
    rows = []
    for directions in ((hue.direction,), (form.direction,), (hue.direction, form.direction)):
        frames, _ = paint(model, walk_codes(start, *directions), size)
        rows.append([_middle(figures.pixels(frame)) for frame in frames])
    return figures.strip(rows, names=("colour axis", "shape axis", "both"), tall=figures.TALL)


def _middle(picture: Pixels) -> Pixels:
    """The square in the middle that an object fills."""
    height, width = picture.shape[:2]
    half = min(height, width) // 3
    return picture[height // 2 - half : height // 2 + half, width // 2 - half : width // 2 + half]


def _map(
    spread: NDArray[np.float64], cluster: NDArray[np.int64], kinds: dict[str, Tensor], names: dict[str, tuple[str, ...]]
) -> Pixels:
    """The t-SNE map, in the colours of the clusters and of what the source knows."""
    views: dict[str, NDArray[Any]] = {"cluster": cluster}
    views |= {name: kind.numpy() for name, kind in kinds.items() if 1 < len(names.get(name, ())) <= 12}

    def draw(*axes: Any) -> None:
        for ax, (title, values) in zip(axes, views.items(), strict=True):
            for number in np.unique(values):
                label = names[title][number] if title in names and number >= 0 else ("?" if number < 0 else str(number))
                ax.scatter(
                    *spread[values == number].T, s=8, label=label, color=f"C{int(number) % 10}" if number >= 0 else "k"
                )
            ax.set(title=title, xticks=[], yticks=[])
            ax.legend(fontsize=6, markerscale=1.5)

    return figures.figure(draw, columns=len(views), size=(4, 4))
