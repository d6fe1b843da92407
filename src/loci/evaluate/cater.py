"""CATER (Table 1): where is the snitch at the end, seen or not?

The network sees a video frame by frame and says after each where it expects the snitch in the next. The answer scored
is the one for the last frame, given before that frame is seen, as the paper's authors do; or, when asked, the one given
after it. The supervised read-out is the network's own head; the unsupervised one is a `cater_readout.Readout`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from loci.data.cater_geometry import unproject
from loci.data.clip import Clip
from loci.data.source import Source
from loci.errors import UserError
from loci.evaluate import figures, metrics, paper
from loci.evaluate import metrics_masks as masks_
from loci.evaluate import metrics_permanence as permanence_
from loci.evaluate.metrics_cater import CaterScores, score_screen
from loci.evaluate.quick import Quick
from loci.evaluate.report import Entry, Pixels, Report, Table
from loci.evaluate.watch import Advance, Disturb, clips_in_batches, quickened, require, silent, watch
from loci.model import Loci, StepOutput

SEEDS = (0, 1, 2, 3, 4)
HOLDS = 0.1
"""Overlap (intersection over union) from which on a slot counts as the snitch's. Less is what the slot of a cone has
that comes down over it and covers the last pixels."""
SUPERVISED, UNSUPERVISED = "Loci supervised", "Loci unsupervised"
"""The paper's two read-outs."""
NAMES = {"top1": "Top 1 (%)", "top5": "Top 5 (%)", "l1": "L1 (grid)", "l2": "L2"}

Locate = Callable[[StepOutput], Tensor]
"""From a network's output to where it expects the snitch, (row, column) [B,2] as CATER's camera has them."""


def by_head(output: StepOutput) -> Tensor:
    """The supervised read-out."""
    if output.snitch is None:
        raise UserError(
            "this network has no head for the snitch (model.snitch is false): use the unsupervised read-out, "
            "`loci reproduce cater-unsupervised`"
        )
    return output.snitch


@dataclass(frozen=True)
class Found:
    """What was said of the snitch, and where it was. S seeds, n clips, T frames.

    Attributes:
        said: [S,n,T,2], (row, column) after each frame, of the next one.
        world: [n,T,3], where it was.
        state: [n,T], as in `Clip`.
        object_error: [S,n], L2_object of the predicted frames, a sum over frames.
        permanence: Of the snitch's slot, over all seeds, in pixels; None where the source has no masks.
    """

    said: Tensor
    world: Tensor
    state: Tensor
    object_error: Tensor
    permanence: permanence_.Permanence | None = None

    def ahead(self) -> Tensor:
        """Distance in the plane [S,n,T-1] for frames 1…T-1, said before each was seen."""
        places = unproject(self.said[:, :, :-1], clip=False)
        return (places[..., :2] - self.world[None, :, 1:, :2]).norm(dim=-1)

    def final(self, sees_last: bool) -> CaterScores:
        """The scores [S,n] of the answer for the last frame."""
        said = self.said[:, :, -1 if sees_last else -2]
        return score_screen(said, self.world[:, -1].expand(len(said), -1, -1))


def snitch_number(clip: Clip, source: Source) -> Tensor:
    """Which object is the snitch, [B]."""
    shapes = source.names.get("shape", ())
    if "spl" not in shapes or "shape" not in clip.attributes:
        raise UserError("this source has no snitch: CATER's scores need `cater` or `cater:FOLDER`")
    is_snitch = clip.attributes["shape"] == shapes.index("spl")
    if not bool(is_snitch.any(1).all()):
        raise UserError(
            f"no snitch in clip {int((~is_snitch.any(1)).nonzero()[0])} of a batch: its scene is incomplete"
        )
    return is_snitch.int().argmax(1)


def snitch_truth(clip: Clip, source: Source) -> tuple[Tensor, Tensor]:
    """Where the snitch is in the world [B,T,3], and its state [B,T]."""
    which = snitch_number(clip, source)[:, None, None].expand(-1, clip.length, 1)
    require(clip, "world", "state")
    assert clip.world is not None
    assert clip.state is not None
    return clip.world.gather(2, which[..., None].expand(-1, -1, -1, 3))[:, :, 0], clip.state.gather(2, which)[:, :, 0]


@torch.no_grad()
def follow(
    model: Loci,
    source: Source,
    locate: Locate = by_head,
    *,
    count: int,
    seeds: Sequence[int] = SEEDS,
    scene: Tensor | None = None,
    disturb: Disturb | None = None,
    batch: int | None = None,
    device: torch.device | str = "cpu",
    advance: Advance = silent,
) -> Found:
    """Watch clips once for every seed."""
    parts = []
    eyes = quickened(model, source, count * len(seeds), source.length, batch=batch, labels=True, device=device)
    for clip in clips_in_batches(source, count, model=model, batch=batch, device=device, advance=advance):
        world, state = snitch_truth(clip, source)
        which = snitch_number(clip, source)
        runs = [follow_clip(eyes, clip, locate, seed, scene, disturb, which) for seed in seeds]
        said, error, held = zip(*runs, strict=True)
        kept = [part for part in held if part is not None]
        pooled = permanence_.pooled(kept) if kept else None
        parts.append(Found(torch.stack(said).cpu(), world.cpu(), state.cpu(), torch.stack(error).cpu(), pooled))
    return joined(parts)


def joined(parts: Sequence[Found]) -> Found:
    """Several batches of clips as one."""
    said, world, state, error = zip(*((p.said, p.world, p.state, p.object_error) for p in parts), strict=True)
    kept = [p.permanence for p in parts if p.permanence is not None]
    permanence = permanence_.pooled(kept) if kept else None
    return Found(torch.cat(said, 1), torch.cat(world), torch.cat(state), torch.cat(error, 1), permanence)


def follow_clip(
    model: Loci | Quick,
    clip: Clip,
    locate: Locate,
    seed: int,
    scene: Tensor | None = None,
    disturb: Disturb | None = None,
    which: Tensor | None = None,
) -> tuple[Tensor, Tensor, permanence_.Permanence | None]:
    """What is said of the snitch [B,T,2], and L2_object [B] of the frames predicted inside the clip.

    Where masks are known, and `which` object [B] is the snitch, also what became of its slot.
    """
    said, places, slots = [], [], []
    error = torch.zeros(clip.batch, device=clip.frames.device)
    entries = torch.arange(clip.batch, device=clip.frames.device)
    for t, (state, output) in enumerate(watch(model, clip, seed, scene=scene, disturb=disturb)):
        said.append(locate(output).clone())
        if t + 1 == clip.length:
            break
        error += metrics.l2_object(output.frame, clip.frames[:, t + 1], state.background)
        if which is not None and clip.visible is not None:
            places.append(output.code.position[..., :2].clone())
            slots.append(slot_of(clip.visible[entries, t + 1, which], output.masks))
    held = None if which is None or not slots else _held(clip, which, torch.stack(places, 1), torch.stack(slots, 1))
    return torch.stack(said, 1), error, held


def slot_of(visible: Tensor, masks: Tensor) -> Tensor:
    """The slot that overlaps best with an object's visible pixels [B,H,W], or -1, [B]; without asking the device."""
    labels = masks_.labels_of_slots(masks).flatten(1)
    seen = visible.flatten(1).float()
    empty = seen.new_zeros(len(seen), masks.shape[1])
    shared = empty.scatter_add(1, labels, seen)
    area = empty.scatter_add(1, labels, torch.ones_like(seen))
    overlap = shared / (area + seen.sum(1, keepdim=True) - shared).clamp(min=1)
    best, slot = overlap[:, 1:].max(1)
    return torch.where(best >= HOLDS, slot, -1)


def _held(clip: Clip, which: Tensor, places: Tensor, slots: Tensor) -> permanence_.Permanence:
    """The snitch's slot while it is hidden and when it is back, in pixels; frames 1 to T-1."""
    assert clip.position is not None
    assert clip.state is not None
    entries = torch.arange(clip.batch, device=which.device)
    step = places.new_tensor([(n - 1) / 2 for n in clip.frames.shape[-2:]])
    truth = clip.position[entries, 1:, which][:, :, None] * step
    state = clip.state[entries, 1:, which][:, :, None]
    part = permanence_.permanence(places * step, truth, state, slots[:, :, None])
    return permanence_.Permanence(*(value.cpu() for value in part))


def score_rows(scores: CaterScores, seeds: Sequence[int], kind: str = SUPERVISED) -> tuple[Table, Table]:
    """A row for each seed; and minimum, mean, deviation and maximum over the seeds beside the paper's of this kind."""
    told, where = paper.CATER_STATISTICS, f"{paper.CATER_SPREAD}; supervised."
    if kind == UNSUPERVISED:  # of which there are means alone
        told, where = paper.CATER_UNSUPERVISED, f"{paper.CATER}; unsupervised, without a spread."
    means = {name: getattr(scores, name).double().mean(1) for name in NAMES}
    means = {name: values * (100 if name.startswith("top") else 1) for name, values in means.items()}
    rows = tuple((seed, *(means[name][n].item() for name in NAMES)) for n, seed in enumerate(seeds))
    spread: list[tuple[Entry, ...]] = []
    for name, label in NAMES.items():
        values = means[name]
        deviation = values.std().item() if len(values) > 1 else None
        ours = (values.min().item(), values.mean().item(), deviation, values.max().item())
        spread += [(label, "paper", *told[label]), (label, "ours", *ours)]
    header = ("metric", "whose", "min", "mean", "std", "max")
    return (
        Table("Each evaluation seed", ("seed", *NAMES.values()), rows),
        Table("Over the seeds", header, tuple(spread), f"Paper: {where}"),
    )


def beside_paper(scores: CaterScores, parameters: int, name: str) -> Table:
    """The paper's table with our row at its end."""
    ours = [
        getattr(scores, metric).double().mean().item() * (100 if metric.startswith("top") else 1) for metric in NAMES
    ]
    header = ("method", "parameters (M)", *NAMES.values())
    rows = (*paper.CATER_METHODS, (f"{name} (ours)", parameters / 1e6, *ours))
    return Table("CATER snitch localisation", header, rows, f"Paper: {paper.CATER}.")


def report(name: str, found: Found, parameters: int, seeds: Sequence[int], sees_last: bool, kind: str) -> Report:
    """Table 1 and the appendix's tables, of one read-out."""
    scores = found.final(sees_last)
    facts: dict[str, Entry] = {
        "clips": found.world.shape[0],
        "frames": found.world.shape[1],
        "seeds": " ".join(map(str, seeds)),
        "last frame": "seen" if sees_last else "not seen, as in the paper",
    }
    return Report(name, facts, (beside_paper(scores, parameters, kind), *score_rows(scores, seeds, kind)))


@torch.no_grad()
def pictures(
    model: Loci,
    source: Source,
    locate: Locate = by_head,
    *,
    clips: int = 2,
    columns: int = 6,
    seed: int = 0,
    scene: Tensor | None = None,
    device: torch.device | str = "cpu",
) -> Pixels:
    """Frames with the slots in colour, the snitch's place as said (ring) and as it is (cross)."""
    rows, times = [], list(range(1, source.length, max(1, (source.length - 1) // columns)))[:columns]
    for clip in clips_in_batches(source, clips, batch=1, device=device):
        require(clip, "position")
        assert clip.position is not None
        truth = clip.position[0, :, int(snitch_number(clip, source)[0])]
        row = []
        for t, (_, output) in enumerate(watch(model, clip, seed, scene=scene)):
            if t + 1 in times:
                picture = figures.enlarged(figures.tinted(clip.frames[0, t + 1], output.masks[0]), figures.TALL)
                row.append(figures.marked(picture, ring=locate(output)[0], cross=truth[t + 1]))
        rows.append(row)
    return figures.strip(rows, [f"t={t}" for t in times], tall=figures.TALL)
