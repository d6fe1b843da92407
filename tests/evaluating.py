"""Stand-ins for a network that know the truth, so that a harness that is off by a frame is found out."""

from types import SimpleNamespace
from typing import NamedTuple

import torch
from torch.nn import functional as F

from loci.config import DecoderConfig, EncoderConfig, ModelConfig, TransitionConfig
from loci.model import Code, Loci
from loci.model.state import tree_map


def tiny(size=(32, 32), slots=2, **more):
    """An untrained network, the same each time."""
    config = ModelConfig(
        height=size[0],
        width=size[1],
        slots=slots,
        gestalt=8,
        bootstrap=2,
        encoder=EncoderConfig(channels=12, fine_channels=12, layers=0),
        transition=TransitionConfig(heads=1, layers=1),
        decoder=DecoderConfig(channels=12, layers=1),
        **more,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Loci(config).eval()


class Seer:
    """Says of the next frame what is true: its picture, masks, places, and where the snitch is.

    With `late` it says of pictures and snitch what was true so many frames before; with `late_places`, of places.
    """

    def __init__(self, source, late=0, late_places=0):
        self.source, self.late, self.late_places = source, late, late_places
        self.size, self.config = source.size, SimpleNamespace(snitch=True, slots=4)
        self.starts = 0

    def start(self, batch=1, background=None, *, seed=0, keys=None):
        self.starts += 1
        return SimpleNamespace(time=-1, frame=None, background=torch.zeros(batch, 3, *self.size), clip=None)

    def bootstrap(self, frame, state):
        return state

    def known(self, frame):
        """The clips that begin with these frames."""
        found = []
        for first in frame:
            for n in range(20):
                clip = self.source.clips([n])
                if torch.equal(clip.frames[0, 0], first):
                    found.append(n)
                    break
        assert len(found) == len(frame)
        return self.source.clips(found)

    def step(self, frame, state, *, background=None, disturb=None):
        clip = self.known(frame) if state.clip is None else state.clip
        time = state.time + 1
        state = SimpleNamespace(time=time, frame=None, background=clip.background[:, 0].float() / 255, clip=clip)
        state.frame = clip.frames[:, min(max(time + 1 - self.late, 0), clip.length - 1)].float() / 255
        return state, self.output(clip, time, state.frame)

    def output(self, clip, time, frame):
        batch, _, objects = clip.share.shape
        masks = clip.visible[:, min(time + 1, clip.length - 1)].float()
        masks = torch.cat((masks, 1 - masks.sum(1, keepdim=True)), 1)
        place = F.pad(clip.position[:, min(max(time + 1 - self.late_places, 0), clip.length - 1)], (0, 1))
        code = Code(place, torch.zeros(batch, objects, 8), torch.zeros(batch, objects))
        snitch = clip.position[:, min(max(time + 1 - self.late, 0), clip.length - 1), 0]
        return SimpleNamespace(
            frame=frame, masks=masks, code=code, snitch=snitch, claimed=torch.ones(batch, objects, dtype=torch.bool)
        )

    def observe(self, frames, state):
        outputs = []
        for frame in frames.unbind(1):
            state, output = self.step(frame, state)
            outputs.append(output)
        return state, stacked(outputs)

    def imagine(self, state, steps):
        return self.observe(torch.zeros(1, steps, 3, *self.size), state)


class Said(NamedTuple):
    """Outputs with time in dimension 1: a tree of tensors, as a network's are."""

    frame: torch.Tensor
    masks: torch.Tensor
    code: Code


def stacked(outputs):
    code = Code(*(torch.stack(values, 1) for values in zip(*(o.code for o in outputs), strict=True)))
    return Said(torch.stack([o.frame for o in outputs], 1), torch.stack([o.masks for o in outputs], 1), code)


class Overwriting:
    """As recorded steps are: what a step returned is gone with the next one. On a CPU, by the plain steps."""

    def __init__(self, model):
        self.model, self.last, self.calls = model, [], 0

    def bootstrap(self, frame, state):
        return self.model.bootstrap(frame, state)

    def step(self, frame, state, **more):
        from loci.kernels.record import leaves

        state, output = tree_map(torch.clone, self.model.step(frame, state, **more))
        for tensor in self.last:
            tensor.fill_(7)
        self.last[:] = leaves((state, output))
        self.calls += 1
        return state, output

    def imagine(self, state, steps):
        self.calls += steps
        return tree_map(torch.clone, self.model.imagine(state, steps))
