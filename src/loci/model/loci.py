"""Loci: the flow of one frame. State goes in and comes out; the modules keep none."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from loci import random
from loci.config import Config, ModelConfig
from loci.errors import UserError
from loci.model.compose import Compose
from loci.model.decoder import Decoder
from loci.model.encoder import Encoder, view_parts
from loci.model.frames import as_frame, check_frame, check_state
from loci.model.seed import Seed, difference, error_map
from loci.model.state import Code, State, StepOutput, stack, without
from loci.model.transition import Noise, Transition


class Draws(NamedTuple):
    """Every random number of one step."""

    places: Tensor
    """[B,K,N,2] where search may look, uniform in [-1, 1)."""
    gestalt: Tensor
    """[B,K,D] standard normal, for slots that start."""
    noise: Noise | None
    """For the transition; None switches it off."""


class Loci(nn.Module):
    """The network. `start`, then `bootstrap` on the first frame, then `step`, `observe` or `imagine`."""

    def __init__(self, config: ModelConfig | Config) -> None:
        """Build it, with weights drawn from torch's generator; of a run's config, the network's part is taken."""
        super().__init__()
        self.config = config = config.model if isinstance(config, Config) else config
        self.size = config.size
        self.seed = Seed(config.gestalt, config.search)
        self.encoder = Encoder(config)
        self.transition = Transition(config)
        self.decoder = Decoder(config)
        self.compose = Compose(config)

    @property
    def dtype(self) -> torch.dtype:
        """Of the weights, hence of the state."""
        return self.compose.background_logit.dtype

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.compose.background_logit.device

    def start(
        self,
        batch: int = 1,
        background: Tensor | None = None,
        *,
        seed: int = 0,
        slots: int | None = None,
        keys: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> State:
        """A state that has seen nothing.

        Args:
            batch: How many videos.
            background: The scene without objects, [3,H,W] or [B,3,H,W]; None is black.
            seed: Where all randomness of these videos comes from; entry b has the key (seed, b).
            slots: How many objects at most; None is the config's number.
            keys: A key for each entry, [B] int64, in place of the seed.
            generator: Draws the keys, in place of the seed.
        """
        slots = self.config.slots if slots is None else slots
        if batch < 1 or slots < 1:
            raise UserError(f"start(batch={batch}, slots={slots}): both must be 1 or more")
        if keys is None:
            if generator is not None:
                drawn = torch.randint(-(2**62), 2**62, (batch,), generator=generator, device=generator.device)
                keys = drawn.to(self.device)
            else:
                keys = random.key(seed, "state", torch.arange(batch, device=self.device), device=self.device)
        if keys.shape != (batch,):
            raise UserError(f"keys have shape {tuple(keys.shape)}; expected ({batch},), one for each video")
        scene = torch.zeros(3, *self.size) if background is None else background
        if isinstance(scene, Tensor) and scene.dim() == 3:
            scene = scene[None].expand(batch, -1, -1, -1)
        check_frame(scene, self.size, batch, "background")
        scene = as_frame(scene, self.dtype, self.device)
        zeros = scene.new_zeros(batch, slots)
        code = Code(scene.new_zeros(batch, slots, 3), scene.new_zeros(batch, slots, self.config.gestalt), zeros)
        return State(
            code=code,
            frame=scene,
            masks=scene.new_zeros(batch, slots + 1, *self.size),
            background=scene,
            cells=self.transition.start(batch, slots),
            claimed=zeros,
            seen=zeros,
            visible=zeros,
            average=code,
            time=torch.zeros(batch, dtype=torch.int64, device=self.device),
            key=keys,
            fresh=True,
        )

    def bootstrap(self, frame: Tensor, state: State, *, noise: bool | None = None) -> State:
        """Show the first frame the configured number of times, so that objects find their slots."""
        for _ in range(self.config.bootstrap):
            state, _ = self.step(frame, state, noise=noise, bootstrapping=True)
        return state

    def step(
        self,
        frame: Tensor,
        state: State,
        *,
        noise: bool | None = None,
        bootstrapping: bool | Tensor = False,
        background: Tensor | None = None,
        blind: Tensor | None = None,
        disturb: Callable[[Code], Code] | None = None,
        draws: Draws | None = None,
    ) -> tuple[State, StepOutput]:
        """Perceive a frame and predict the next one.

        Args:
            frame: [B,3,H,W], float in [0, 1] or uint8.
            state: What `start` or the last step gave.
            noise: On the Gestalt and the priorities; None is on in training mode and off otherwise.
            bootstrapping: Whether this is one of the steps on the first frame before the sequence; a tensor where one
                recording is to do for both.
            background: The scene without objects from now on, for one that moves.
            blind: [B] bool, which videos see their own prediction in place of the frame, as in `imagine`.
            disturb: Changes the encoder's code before the transition sees it (lesions).
            draws: The random numbers, in place of those that follow from the state's key and time.
        """
        batch = state.time.shape[0]
        check_state(state, self.config)
        check_frame(frame, self.size, batch, "frame")
        frame = as_frame(frame, self.dtype, self.device)
        if background is not None:
            check_frame(background, self.size, batch, "background")
            state = state._replace(background=as_frame(background, self.dtype, self.device))
        if blind is not None:
            frame = torch.where(blind[:, None, None, None], state.frame, frame)  # and there is no error then
        with_noise = self.training if noise is None else noise
        draws = self.draw(state, with_noise) if draws is None else draws
        error = error_map(frame, state.frame, state.background)
        return self._flow(frame, error, state, draws, bootstrapping, disturb)

    def _flow(
        self,
        frame: Tensor,
        error: Tensor,
        state: State,
        draws: Draws,
        bootstrapping: bool | Tensor = False,
        disturb: Callable[[Code], Code] | None = None,
    ) -> tuple[State, StepOutput]:
        """The main loop's body (Algorithm 1, lines 5-27); the one recurrence that everything uses."""
        if state.fresh:
            shown = torch.sqrt(difference(frame, state.background * self.compose.shown().detach()))
            error = torch.where((state.time == 0)[:, None, None, None], shown, error)
        search = self.seed.searching(state.claimed, state.visible)
        searched = self.seed(state.code, search, error, draws.places, draws.gestalt)
        if state.fresh:
            state = self._first_masks(state, searched)

        view_logits = self.decoder.paint(searched)
        view = view_parts(frame, error, state.masks, view_logits, searched)
        percept = self.encoder(view)
        sensed = percept if disturb is None else disturb(percept)
        code, cells, gates, choice = self.transition(sensed, state.cells, draws.noise)
        learning = torch.is_grad_enabled() and (isinstance(bootstrapping, Tensor) or not bootstrapping)
        layers, uncovered = self.decoder.both(code) if learning else (self.decoder(code), None)
        predicted, masks, painted = self.compose(layers, state.background)

        state = self._advance(state, code, cells, predicted, masks, bootstrapping)
        snitch = None if choice is None else (choice[..., None] * code.position[..., :2]).sum(1)
        return state, StepOutput(
            frame=predicted,
            masks=masks,
            colours=painted,
            code=code,
            percept=percept,
            searched=searched,
            view_logits=view_logits,
            uncovered=uncovered,
            visible=state.visible,
            claimed=state.claimed > self.seed.threshold,
            error=error,
            gates=gates.detach(),
            snitch=snitch,
            choice=choice,
        )

    def _first_masks(self, state: State, searched: Code) -> State:
        """On the very first step the masks are those of the slots as they start."""
        with torch.no_grad():
            first = self.compose.masks(self.decoder(searched).mask_logits)
        new = (state.time == 0)[:, None, None, None]
        return state._replace(masks=torch.where(new, first, state.masks))

    def _advance(
        self, state: State, code: Code, cells: tuple, predicted: Tensor, masks: Tensor, bootstrapping: bool | Tensor
    ) -> State:
        """What is handed to the next step, cut from the graph; only the cells carry credit through time."""
        code, masks = Code(*(part.detach() for part in code)), masks.detach()
        visible = masks[:, :-1].amax((2, 3))
        first = state.time == 0
        share = torch.where(first[:, None], 1, visible)[..., None]
        sigma = share * code.position[..., 2:] + (1 - share) * state.average.position[..., 2:]
        average = Code(
            torch.cat((code.position[..., :2], sigma), 2),
            share * code.gestalt + (1 - share) * state.average.gestalt,
            code.priority,
        )
        return State(
            code=code,
            frame=predicted.detach(),
            masks=masks,
            background=state.background,
            cells=cells,
            claimed=torch.maximum(state.claimed, visible),
            seen=torch.maximum(without(bootstrapping, state.seen), visible),
            visible=visible,
            average=average,
            time=state.time + 1,
            key=state.key,
            fresh=False,
        )

    def observe(self, frames: Tensor, state: State, *, noise: bool | None = None) -> tuple[State, StepOutput]:
        """A `step` for every frame of [B,T,3,H,W]; the outputs have time in dimension 1."""
        if not isinstance(frames, Tensor) or frames.dim() != 5 or frames.shape[1] < 1:
            came = f"shape {tuple(frames.shape)}" if isinstance(frames, Tensor) else f"type {type(frames).__name__}"
            raise UserError(f"frames have {came}; expected a tensor [B,T,3,H,W] with T of 1 or more")
        outputs = []
        for time, frame in enumerate(frames.unbind(1)):
            try:
                state, output = self.step(frame, state, noise=noise)
            except UserError as error:
                raise UserError(f"at time {time}: {error}") from error
            outputs.append(output)
        return state, stack(outputs)

    def imagine(self, state: State, steps: int, *, noise: bool = False) -> tuple[State, StepOutput]:
        """Run on in closed loop: the model sees its own prediction and no error."""
        if steps < 1:
            raise UserError(f"imagine {steps} steps: it must be 1 or more")
        if state.fresh:
            raise UserError("imagine needs a state that has seen a frame: call bootstrap, step or observe first")
        outputs = []
        for _ in range(steps):
            state, output = self.dream(state, noise)
            outputs.append(output)
        return state, stack(outputs)

    def dream(self, state: State, noise: bool = False) -> tuple[State, StepOutput]:
        """One step in closed loop."""
        return self._flow(state.frame, torch.zeros_like(state.frame[:, :1]), state, self.draw(state, noise))

    def paint(self, code: Code, background: Tensor, *, ordered: bool = True) -> tuple[Tensor, Tensor, Tensor]:
        """Any code as a frame [B,3,H,W], masks [B,K+1,H,W] and colours [B,K,3,H,W]."""
        return self.compose(self.decoder(code, ordered), background)

    def draw(self, state: State, noise: bool) -> Draws:
        """The random numbers of the next step: a pure function of each entry's key and time."""
        keys = random.fold(state.key, state.time)
        slots, gestalt = state.slots(), self.config.gestalt
        places = random.uniform(random.fold(keys, "places"), (slots, self.config.search.candidates, 2), self.dtype)

        def normals(purpose: str, *shape: int) -> Tensor:
            return random.normal(random.fold(keys, purpose), shape, self.dtype)

        drawn = None
        if noise:
            drawn = Noise(
                normals("gestalt noise", slots, gestalt),
                normals("priority noise", slots),
                normals("choice noise", slots),
            )
        return Draws(2 * places - 1, normals("start", slots, gestalt), drawn)
