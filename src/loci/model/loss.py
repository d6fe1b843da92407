"""What a prediction is trained by: the reconstruction and the terms that foster object permanence."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from loci.kernels.precision import exact, squared_distance
from loci.model.decoder import Decoder, colours
from loci.model.geometry import centre
from loci.model.seed import difference
from loci.model.state import Code, State, StepOutput, without

FOREGROUND = 0.1
"""tau: what differs from the background by more than this is foreground."""


class Terms(NamedTuple):
    """The named terms of the loss, each a mean, none of them weighted."""

    reconstruction: Tensor
    """L_BCE of the predicted frame."""
    position: Tensor
    """L_p: slots that move."""
    object: Tensor
    """L_o: what an unseen slot would look like now, against when it was seen."""
    time: Tensor
    """L_t: slots that change their looks."""
    supervision: Tensor
    """L_s: where the snitch is."""


def warmup_target(frame: Tensor, background: Tensor) -> Tensor:
    """The foreground alone, on black (Eq. 1)."""
    return frame * (torch.sqrt(difference(frame, background)) > FOREGROUND)


def dawn_target(frame: Tensor, background: Tensor, shown: Tensor) -> Tensor:
    """The foreground as it is, all else as bright as the background is shown in predictions: from Eq. 1 to the frame.

    Ours. In the paper the target turns into the whole frame at once, before a background that is still black.
    """
    return torch.lerp(warmup_target(frame, background), frame, shown)


@exact
def reconstruction(predicted: Tensor, target: Tensor) -> Tensor:
    """L_BCE, pixel by pixel."""
    return F.binary_cross_entropy(predicted.clamp(0, 1), target)


@exact
def position_change(seen: Tensor, before: Code, now: Code) -> Tensor:
    """L_p (Eq. 5), of the slots that have been seen; row, column and sigma."""
    return (seen[..., None] * (now.position - before.position.detach()) ** 2).mean()


def object_permanence(seen: Tensor, visible: Tensor, painted: Tensor, remembered: Tensor) -> Tensor:
    """L_o (Eq. 2), of the slots that were seen and now are not."""
    return ((1 - visible) * seen * squared_distance(painted, remembered.detach())).mean()


def time_persistence(seen: Tensor, before: Code, painted_before: Tensor, now: Code, painted: Tensor) -> Tensor:
    """L_t (Eq. 4): looks at t-1 against t, each brought to the centre of the picture by its own position."""
    old = centre(painted_before, before.position).detach()
    new = centre(painted, now.position.detach())
    return (seen * squared_distance(new, old)).mean()


def supervision(snitch: Tensor, truth: Tensor) -> Tensor:
    """L_s (Eq. 6): where the chosen slot is, against where the snitch is; row and column."""
    return ((snitch - truth) ** 2).mean()


def loss_terms(
    decoder: Decoder,
    state: State,
    output: StepOutput,
    target: Tensor,
    *,
    bootstrapping: bool | Tensor = False,
    snitch: Tensor | None = None,
    regularise: bool = True,
) -> Terms:
    """All terms for one step, from the state and the output that the step returned.

    Args:
        decoder: Paints the slots once more, as they are remembered.
        state: After the step; it knows what was seen and how slots looked then.
        output: Of the step.
        target: [B,3,H,W], the next frame, or its foreground in the warm-up.
        bootstrapping: The regularisers are zero on the first frame's extra steps.
        snitch: [B,2], the truth, if there is supervision.
        regularise: False leaves out the extra decodes (when their weights are zero).
    """
    zero = target.new_zeros(())
    bce = reconstruction(output.frame, target)
    guided = zero if snitch is None or output.snitch is None else supervision(output.snitch, snitch)
    if bootstrapping is True:
        return Terms(bce, zero, zero, zero, guided)
    place = without(bootstrapping, position_change(state.seen, output.searched, output.code))
    if not regularise:
        return Terms(bce, place, zero, zero, guided)
    painted = colours(decoder.paint(output.code) if output.uncovered is None else output.uncovered)
    with torch.no_grad():
        memory = colours(decoder.paint(remembered(state, output.code)))
        before = colours(output.view_logits)
    return Terms(
        reconstruction=bce,
        position=place,
        object=without(bootstrapping, object_permanence(state.seen, state.visible, painted, memory)),
        time=without(bootstrapping, time_persistence(state.seen, output.searched, before, output.code, painted)),
        supervision=guided,
    )


def remembered(state: State, code: Code) -> Code:
    """The slots where they are now, with the looks and the size they had when they were last seen."""
    return state.average._replace(priority=code.priority.detach())


@exact
def object_error(predicted: Tensor, frame: Tensor, background: Tensor) -> Tensor:
    """L2_object, the squared error where the frame differs from the background (Eq. 9), a mean."""
    return (((predicted - frame) * torch.sqrt(difference(frame, background))) ** 2).mean()
