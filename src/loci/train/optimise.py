"""The optimisers: RAdam for the network, Adam for the start of a slot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from loci.errors import UserError
from loci.model import Loci
from loci.train.schedule import BETAS, PLAIN, Settings, rectification

GROUPS = ("network", "fine", "background", "start")
"""Parameters that learn at different times; `fine` are those that only fine frames pass through."""
START_BETAS = (0.9, 0.99)
EPSILON = 1e-16
MOMENTS = ("step", "exp_avg", "exp_avg_sq")


def group_of(name: str) -> str:
    """Which group a parameter of the network belongs to."""
    if name.startswith("seed."):
        return "start"
    if name == "compose.background_logit":
        return "background"
    return "fine" if any(part.startswith("fine") for part in name.split(".")) else "network"


class Optimisers:
    """RAdam is Adam whose rate is multiplied by the rectification, after five updates along the mean gradient.

    So torch's fused Adam does the work, in one launch for each group, and can leave out an update whose gradient is not
    finite without asking the device. Each group counts its own updates, as it would with a RAdam of its own.
    """

    def __init__(self, model: Loci) -> None:
        self.named = {group: list(_members(model, group)) for group in GROUPS}
        self.counts = dict.fromkeys(GROUPS, 0)
        self.adams = {
            group: torch.optim.Adam(
                [parameter for _, parameter in members],
                lr=torch.zeros((), device=model.device),
                betas=START_BETAS if group == "start" else BETAS,
                eps=1e-8 if group == "start" else EPSILON,
                fused=True,
            )
            for group, members in self.named.items()
        }

    def step(self, settings: Settings, *, first: bool, dropped: Tensor) -> None:
        """One update with the gradients at hand, which are then cleared.

        Args:
            settings: The rates, and whether the background learns yet.
            first: Whether this is the first step of a sequence, the only one that teaches slots how to start.
            dropped: 1 where the update is to be left out, else 0; a number on the device.
        """
        self._update("network", settings, dropped)
        self._update("fine", settings, dropped)
        if settings.background:
            self._update("background", settings, dropped)
        if first:
            self._update("start", settings, dropped)
        for adam in self.adams.values():
            adam.zero_grad(set_to_none=True)

    def advance(self, group: str, settings: Settings) -> int:
        """Count an update of a group and set its rate; 0 in RAdam's first updates, which are of another kind."""
        self.counts[group] += 1
        count = self.counts[group]
        rate = settings.start_rate if group == "start" else settings.rate * (count > PLAIN) * rectification(count)
        self.adams[group].param_groups[0]["lr"].fill_(rate)
        return count

    def complete(self, group: str) -> None:
        """Give moments to those parameters of a group that have not learned yet, as Adam does when they begin."""
        for _, parameter in self.named[group]:
            if parameter not in self.adams[group].state:
                self.adams[group].state[parameter] = {
                    "step": torch.zeros((), device=parameter.device),
                    "exp_avg": torch.zeros_like(parameter),
                    "exp_avg_sq": torch.zeros_like(parameter),
                }

    def _update(self, group: str, settings: Settings, dropped: Tensor) -> None:
        adam = self.adams[group]
        learning = [p for _, p in self.named[group] if p.grad is not None]
        if not learning:
            return
        count = self.advance(group, settings)
        adam.found_inf = dropped  # type: ignore[attr-defined]
        adam.step()
        if group != "start" and count <= PLAIN:
            scale = (dropped - 1) * (settings.rate / (1 - BETAS[0] ** count))
            for parameter in learning:
                average: Tensor = adam.state[parameter]["exp_avg"]
                parameter.detach().addcmul_(average, scale.to(average.dtype))

    def tensors(self) -> dict[str, Tensor]:
        """Everything a checkpoint needs, by name."""
        return {
            f"{name}/{moment}": adam.state[parameter][moment]
            for group, adam in self.adams.items()
            for name, parameter in self.named[group]
            if parameter in adam.state
            for moment in MOMENTS
        }

    def restore(self, tensors: Mapping[str, Tensor], counts: Mapping[str, int]) -> None:
        """Go on from what `tensors` gave and from `counts`."""
        self.counts = {group: int(counts[group]) for group in GROUPS}
        for group, adam in self.adams.items():
            for name, parameter in self.named[group]:
                if f"{name}/step" not in tensors:
                    continue
                found = {moment: tensors[f"{name}/{moment}"] for moment in MOMENTS}
                if found["exp_avg"].shape != parameter.shape:
                    raise UserError(f"the optimiser's {name} has shape {tuple(found['exp_avg'].shape)}")
                adam.state[parameter] = {
                    moment: torch.empty_like(tensor, device=parameter.device).copy_(tensor)
                    for moment, tensor in found.items()
                }


def _members(model: Loci, group: str) -> Iterator[tuple[str, nn.Parameter]]:
    return ((name, p) for name, p in model.named_parameters() if group_of(name) == group)
