"""The model's promises: one recurrence, no hidden state, free batches, clear errors."""

import ast
import copy
import io
import math
import tokenize
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import loci.model
from loci import presets
from loci.config import FEATURES, DecoderConfig, EncoderConfig, ModelConfig, SearchConfig, TransitionConfig
from loci.errors import UserError
from loci.evaluate import metrics
from loci.kernels.shift import Shift
from loci.kernels.stride import mean_of_blocks, pooled_by_4, stride_conv, upsample_conv
from loci.model import Loci, State
from loci.model.blocks import match_channels
from loci.model.encoder import CHANNELS, View, twelve_channels, view_parts
from loci.model.geometry import centre, gaussian, prioritise, soft_argmax
from loci.model.loss import loss_terms, object_error, warmup_target
from loci.model.state import tree_map
from loci.model.transition import soft_binary

TINY = {
    "height": 64,
    "width": 80,
    "resolution": "coarse",
    "slots": 3,
    "gestalt": 12,
    "bootstrap": 2,
    "encoder": EncoderConfig(24, 24, 1),
    "transition": TransitionConfig(heads=2, layers=2),
    "decoder": DecoderConfig(24, 2),
}


def make(dtype=torch.float32, **changes):
    torch.manual_seed(0)
    model = Loci(ModelConfig(**{**TINY, **changes})).to(dtype).eval()
    with torch.no_grad():  # lively: every branch counts, and some masks pass the threshold
        for name, parameter in model.named_parameters():
            if "alpha" in name or name.endswith("_scale"):
                parameter.fill_(0.3)
        model.decoder.mask.coarse.second.weight.mul_(8)
        model.encoder.size_growth.fill_(1)
        model.compose.background_growth.fill_(2)
    return model


def frames(model, batch=2, time=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(batch, time, 3, *model.size, generator=generator, dtype=model.dtype)


def leaves(tree):
    found = []
    tree_map(lambda x: (found.append(x), x)[1], tree)
    return found


def assert_same(a, b, tolerance=0.0):
    for x, y in zip(leaves(a), leaves(b), strict=True):
        assert x.shape == y.shape
        if tolerance:
            torch.testing.assert_close(x, y, atol=tolerance, rtol=tolerance)
        else:
            assert torch.equal(x, y)


@pytest.mark.parametrize("resolution", ["coarse", "fine"])
@pytest.mark.parametrize("cell", ["gatelord", "lstm"])
def test_observe_is_a_step_for_every_frame(resolution, cell):
    model = make(resolution=resolution, transition=TransitionConfig(heads=2, layers=2, cell=cell))
    video = frames(model)
    with torch.no_grad():
        start = model.bootstrap(video[:, 0], model.start(2, seed=1))
        one, outputs = model.observe(video, start, noise=True)
        two = start
        for t in range(4):
            two, output = model.step(video[:, t], two, noise=True)
            assert torch.equal(output.frame, outputs.frame[:, t])
            assert torch.equal(output.code.gestalt, outputs.code.gestalt[:, t])
    assert_same(one, two)


def test_a_batch_is_its_entries():
    model = make(torch.float64)
    video = frames(model, batch=4)
    with torch.no_grad():
        start = model.start(4, seed=5)
        together, _ = model.observe(video, model.bootstrap(video[:, 0], start))
        for b in range(4):
            alone = model.bootstrap(video[b : b + 1, 0], start.gather([b]))
            alone, _ = model.observe(video[b : b + 1], alone)
            assert_same(alone, together.gather([b]), 1e-9)


def test_entries_leave_and_join_between_two_steps():
    model = make(torch.float64)
    video = frames(model, batch=3, time=3)
    with torch.no_grad():
        state = model.bootstrap(video[:, 0], model.start(3, seed=2))
        state, _ = model.step(video[:, 0], state)
        whole, _ = model.step(video[:, 1], state)
        kept, _ = model.step(video[[2, 0], 1], state.gather([2, 0]))
        assert_same(kept, whole.gather([2, 0]), 1e-9)
        newcomer = model.start(1, seed=9)
        joined, _ = model.step(video[:2, 1], State.join([state.gather([0]), newcomer]))
        assert_same(joined.gather([0]), whole.gather([0]), 1e-9)
        fresh, _ = model.step(video[1:2, 1], newcomer)
        assert_same(joined.gather([1]), fresh, 1e-9)


def test_join_fills_missing_traces_with_zeros():
    model = make().train()
    video = frames(model)
    old, _ = model.step(video[:, 0], model.start(2))
    joined = State.join([old, model.start(1)])
    assert joined.cells[0].traces.weight.shape[0] == 3
    assert not joined.cells[0].traces.weight[2].any()
    model.step(frames(model, batch=3)[:, 0], joined)


def attributes(value):
    """What a module has, hooks and registries included, as something that can be compared later."""
    if isinstance(value, torch.Tensor):
        return (id(value), value.detach().clone().flatten().tolist())
    if isinstance(value, dict):
        return {key: attributes(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [attributes(item) for item in value]
    return id(value) if isinstance(value, torch.nn.Module) else copy.deepcopy(value)


def snapshot(model):
    return {name: attributes(vars(module)) for name, module in model.named_modules()}


@pytest.mark.parametrize("cell", ["gatelord", "lstm"])
def test_nothing_changes_in_a_module(cell):
    model = make(snitch=True, transition=TransitionConfig(heads=2, layers=2, cell=cell)).train()
    video = frames(model)
    before = snapshot(model)
    state = model.bootstrap(video[:, 0], model.start(2))
    state, _ = model.observe(video, state)
    _, out = model.step(video[:, 1], state, background=video[:, 0])
    loss_terms(model.decoder, state, out, video[:, 1], snitch=torch.zeros(2, 2))
    with torch.no_grad():
        model.imagine(state, 2)
    model.eval().train()
    assert snapshot(model) == before


@pytest.mark.parametrize("kind", ["a new attribute", "a hidden one", "a buffer", "a list that grows"])
def test_a_module_that_keeps_something_is_noticed(kind):
    model = make()
    model.encoder._kept, model.encoder.seen = 0, []

    def keep(module, *_):
        if kind == "a new attribute":
            module.last = torch.zeros(1)
        elif kind == "a hidden one":
            module._kept += 1
        elif kind == "a buffer":
            module.kept.add_(1)
        else:
            module.seen.append(1)

    model.encoder.register_forward_hook(keep)
    before = snapshot(model)
    with torch.no_grad():
        model.step(frames(model)[:, 0], model.start(2))
    assert snapshot(model) != before


def test_without_gradients_there_are_no_traces():
    model = make()
    video = frames(model)
    with torch.no_grad():
        state, _ = model.step(video[:, 0], model.start(2))
    assert all(cell.traces is None for cell in state.cells)
    state, _ = model.step(video[:, 0], model.start(2))
    assert all(cell.traces is not None for cell in state.cells)


def test_what_is_handed_on_is_cut_from_the_graph_except_cells_under_bptt():
    for credit, attached in (("eprop", False), ("bptt", True)):
        model = make(transition=TransitionConfig(heads=1, layers=1, credit=credit)).train()
        state, out = model.step(frames(model)[:, 0], model.start(2))
        assert out.frame.requires_grad
        assert not any(x.requires_grad for x in leaves(state._replace(cells=())))
        if attached:
            assert state.cells[0].hidden.requires_grad
            assert not any(x.requires_grad for x in leaves(state.detach()))


def test_back_propagation_carries_credit_and_one_step_does_not():
    for window, expects in ((2, True), (1, False)):
        model = make(transition=TransitionConfig(heads=1, layers=1, credit="bptt")).train()
        video = frames(model)
        state, _ = model.step(video[:, 0], model.start(2), noise=False)
        kept = state.cells[0].hidden
        kept.retain_grad()
        state = state.detach() if window == 1 else state
        _, out = model.step(video[:, 1], state, noise=False)
        out.frame.sum().backward()
        assert (kept.grad is not None and bool(kept.grad.abs().sum() > 0)) == expects


@pytest.mark.parametrize(("cell", "bias", "share"), [("gatelord", -9, 0), ("gatelord", 9, 1), ("lstm", 0, 0.5)])
def test_gates_say_how_much_the_memories_change(cell, bias, share):
    """GateL0RD: the share of gates that are open at all; LSTM: one minus the forget gate."""
    model = make(transition=TransitionConfig(heads=1, layers=1, cell=cell))
    weights = model.transition.recurrence[0].cell
    with torch.no_grad():
        for parameter in weights.parameters():
            parameter.zero_()
        if cell == "gatelord":
            weights.state_bias[0] = bias
        _, out = model.step(frames(model)[:, 0], model.start(2))
    assert torch.equal(out.gates, torch.full((2, 3), float(share)))


def test_noise_is_on_in_training_off_otherwise_and_repeats():
    model = make()
    video = frames(model)
    with torch.no_grad():
        start = model.start(2, seed=3)
        quiet = model.step(video[:, 0], start)[1]
        loud = model.step(video[:, 0], start, noise=True)[1]
        trained = model.train().step(video[:, 0], start)[1]
    assert not torch.equal(quiet.code.gestalt, loud.code.gestalt)
    assert torch.equal(loud.code.gestalt, trained.code.gestalt)
    assert not torch.equal(quiet.code.priority, loud.code.priority)


def test_every_step_and_every_video_draws_its_own_numbers():
    model = make(torch.float64)
    state = model.start(2, seed=3)
    now, later = model.draw(state, True), model.draw(state._replace(time=state.time + 1), True)
    for name in ("places", "gestalt"):
        drawn = getattr(now, name)
        assert not torch.isin(drawn, getattr(later, name)).any()
        assert not torch.isin(drawn[0], drawn[1]).any()
    for one, two in zip(now.noise, later.noise, strict=True):
        assert not torch.isin(one, two).any()
        assert not torch.isin(one[0], one[1]).any()
    assert not torch.isin(now.gestalt, now.noise.gestalt).any()
    assert not torch.isin(now.noise.priority, now.noise.choice).any()


def test_seeds_and_generators_decide_the_search():
    model = make()
    one, two = model.start(2, seed=1), model.start(2, seed=1)
    assert torch.equal(one.key, two.key)
    assert not torch.equal(one.key, model.start(2, seed=2).key)
    g = torch.Generator().manual_seed(4)
    h = torch.Generator().manual_seed(4)
    assert torch.equal(model.start(2, generator=g).key, model.start(2, generator=h).key)


def test_any_number_of_slots():
    model = make()
    video = frames(model)
    with torch.no_grad():
        for slots in (1, 2, 7):
            _, out = model.observe(video[:, :1], model.start(2, slots=slots))
            assert out.masks.shape[2] == slots + 1
            torch.testing.assert_close(out.masks.sum(2), torch.ones_like(out.masks[:, :, 0]))


def only(feature, view):
    """The view of a single slot, changed in one feature and in no other."""
    shared, own, colours = (part.clone() for part in view)
    edits = {
        "frame": [(shared, slice(0, 3))],
        "error": [(shared, slice(3, 4))],
        "background_mask": [(shared, slice(4, 5))],
        "own_mask": [(own[:, 0], slice(0, 1)), (shared, slice(5, 6))],
        "other_masks": [(shared, slice(5, 6))],
        "own_colours": [(colours[:, 0], slice(0, 3))],
        "own_position": [(own[:, 0], slice(1, 2))],
        "other_positions": [(shared, slice(6, 7))],
    }
    for part, channels in edits[feature]:
        part[:, channels] += 1
    return View(shared, own, colours)


@pytest.mark.parametrize("feature", FEATURES)
def test_a_zeroed_feature_is_not_seen(feature):
    model, blind = make(torch.float64), make(torch.float64, zeroed=(feature,))
    state = model.start(1, slots=1)
    masks, logits = torch.rand(1, 2, *model.size).double(), torch.rand(1, 1, 3, *model.size).double()
    view = view_parts(frames(model, 1)[:, 0], state.frame[:, :1], masks, logits, state.code)
    before, after = (twelve_channels(v) for v in (view, only(feature, view)))
    first, count = sum(list(CHANNELS.values())[: FEATURES.index(feature)]), CHANNELS[feature]
    changed = {c for c in range(12) if not torch.allclose(before[:, :, c], after[:, :, c])}
    assert changed == set(range(first, first + count))
    with torch.no_grad():
        for other in FEATURES:
            same = torch.allclose(blind.encoder(only(other, view)).gestalt, blind.encoder(view).gestalt, atol=1e-9)
            assert same == (other == feature), other
            assert not torch.allclose(model.encoder(only(other, view)).gestalt, model.encoder(view).gestalt, atol=1e-9)


def test_search_moves_slots_that_never_claimed_and_leaves_the_others():
    model = make()
    state = model.start(1, slots=2)._replace(
        claimed=torch.tensor([[0.9, 0.2]]),
        visible=torch.tensor([[0.1, 0.2]]),
        time=torch.tensor([5]),
        fresh=False,
    )
    with torch.no_grad():
        _, out = model.step(frames(model, batch=1)[:, 0], state)
        assert torch.equal(out.searched.position[0, 0], state.code.position[0, 0])
        assert not torch.equal(out.searched.position[0, 1], state.code.position[0, 1])
        model = make(search=SearchConfig(invisible=True))
        _, out = model.step(frames(model, batch=1)[:, 0], state)
        assert not torch.equal(out.searched.position[0, 0], state.code.position[0, 0])


def test_guided_search_lands_on_the_error_and_the_papers_does_not():
    for guided in (True, False):
        model = make(search=SearchConfig(guided=guided))
        frame = torch.zeros(1, 3, *model.size)
        frame[:, :, 5:9, 12:17] = 1
        with torch.no_grad():
            _, out = model.step(frame.expand(20, -1, -1, -1), model.start(20))
        row, column = ((out.searched.position[..., :2] + 1) / 2 * torch.tensor([15, 19])).unbind(-1)
        hits = int(((row > 4) & (row < 10) & (column > 11) & (column < 18)).sum())  # of 20 videos with 3 slots
        assert hits > 30 if guided else hits < 15, hits


def test_imagine_sees_its_own_prediction_and_no_error():
    model = make()
    video = frames(model)
    with torch.no_grad():
        state, _ = model.observe(video, model.start(2))
        _, dreams = model.imagine(state, 3)
        assert not dreams.error.any()
        assert dreams.frame.shape == (2, 3, 3, *model.size)
    with pytest.raises(UserError, match="seen a frame"):
        model.imagine(model.start(2), 3)


def test_coarse_and_fine_share_weights():
    fine, coarse = make(resolution="fine"), make()
    coarse.load_state_dict(fine.state_dict())
    assert fine.size == (64, 80)
    assert coarse.size == (16, 20)


def test_the_warm_up_teaches_the_foreground_on_black():
    background = torch.full((1, 3, 4, 4), 0.5)
    frame = background.clone()
    frame[:, :, 0, 0] = 0.9
    frame[:, :, 0, 1] = 0.55  # shadows and noise are no foreground
    frame[:, 0, 0, 2] = 0.7  # in one colour alone: root of 0.04 / 3 is 0.115
    frame[:, 0, 0, 3] = 0.65  # root of 0.0225 / 3 is 0.087
    target = warmup_target(frame, background)
    kept = (target != 0).any(1)[0]
    assert kept.nonzero().tolist() == [[0, 0], [0, 2]]
    assert torch.equal(target[:, :, kept], frame[:, :, kept])
    model = make()
    model.compose.background_growth.zero_()
    model.compose.background_logit.data.fill_(50)
    with torch.no_grad():
        _, out = model.step(torch.ones(1, 3, *model.size), model.start(1, torch.ones(3, *model.size)))
    assert out.frame.max() < 1e-6, "black where only the background would be"
    torch.testing.assert_close(out.error, torch.ones_like(out.error))  # it is missed all the same


def test_the_object_error_is_the_papers_formula():
    predicted, frame, background = torch.rand(3, 2, 3, 5, 7, dtype=torch.float64)
    weight = ((frame - background) ** 2).sum(1, keepdim=True) / 3
    theirs = (((predicted - frame) * weight.sqrt()) ** 2).sum()
    torch.testing.assert_close(object_error(predicted, frame, background) * predicted.numel(), theirs)
    torch.testing.assert_close(metrics.l2_object(predicted, frame, background).sum(), theirs)


def test_losses_are_silent_in_the_bootstrap_and_count_afterwards():
    model = make(torch.float32).train()
    video = frames(model)
    state, out = model.step(video[:, 0], model.start(2), bootstrapping=True)
    terms = loss_terms(model.decoder, state, out, video[:, 0], bootstrapping=True)
    assert terms.position == terms.object == terms.time == 0
    for t in range(3):
        state, out = model.step(video[:, t], state)
    terms = loss_terms(model.decoder, state, out, video[:, 1])
    assert min(terms.reconstruction, terms.position, terms.object, terms.time) > 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda f: f[0], "3 dimensions"),
        (lambda f: f[:, :2], "2 channels"),
        (lambda f: f[..., :-1], "16x19"),
        (lambda f: f[:1], "1 entries, the state 2"),
        (lambda f: f.long(), "int64"),
        (lambda f: f * 3, "batch entry 0"),
        (lambda f: torch.cat((f[:1], f[1:] * float("nan"))), "a NaN in batch entry 1"),
        (lambda f: f - 0.5, "values from"),
        (lambda f: f.numpy(), "not a tensor"),
    ],
)
def test_wrong_frames_are_refused_by_name(change, words):
    model = make()
    with pytest.raises(UserError, match=words):
        model.step(change(frames(model)[:, 0]), model.start(2))


def test_what_is_wrong_with_a_video_is_named_with_its_time():
    model = make()
    video = frames(model)
    video[1, 2, 0, 3, 3] = math.nan
    with pytest.raises(UserError, match="at time 2: frame has a NaN in batch entry 1"):
        model.observe(video, model.start(2))
    with pytest.raises(UserError, match="frames have type ndarray"):
        model.observe(video.numpy(), model.start(2))
    with pytest.raises(UserError, match="background is a ndarray"):
        model.start(2, video[0, 0].numpy())


def test_states_of_other_networks_are_refused():
    model, other = make(), make(gestalt=6, resolution="fine")
    with pytest.raises(UserError, match=r"frames of 64x80, here frames of 16x20; a Gestalt of 6, here"):
        model.step(frames(model)[:, 0], other.start(2))
    with pytest.raises(UserError, match="2 slots, Gestalt 12, frames 16x20, 3 slots, Gestalt 12"):
        State.join([model.start(1), model.start(1, slots=2)])
    with pytest.raises(UserError, match="these are: none"):
        State.join([])
    assert model.start(3).gather([]).time.shape == (0,)


def test_a_whole_config_gives_its_network():
    config = presets.smoke()
    assert Loci(config).config == config.model


def test_bytes_and_floats_are_the_same_picture():
    model = make(torch.float32)
    picture = torch.randint(0, 256, (2, 3, *model.size), dtype=torch.uint8)
    with torch.no_grad():
        a = model.step(picture, model.start(2))[1]
        b = model.step(picture.float() / 255, model.start(2))[1]
    assert torch.equal(a.frame, b.frame)


def test_start_refuses_nonsense():
    model = make()
    with pytest.raises(UserError, match="must be 1 or more"):
        model.start(0)
    with pytest.raises(UserError, match="background"):
        model.start(2, torch.zeros(3, 5, 5))
    with pytest.raises(UserError, match=r"keys have shape \(3,\); expected \(2,\)"):
        model.start(2, keys=torch.arange(3))
    with pytest.raises(UserError, match="expected"):
        model.observe(frames(model)[:, 0], model.start(2))


# Geometry and blocks, against their definitions.

positions = st.floats(-1.4, 1.4)


@settings(deadline=None, max_examples=25)
@given(positions, positions, st.floats(-0.2, 1.3), st.integers(3, 40), st.integers(3, 40))
def test_gaussian_is_the_formula(row, column, sigma, height, width):
    ours = gaussian(torch.tensor([row, column, sigma], dtype=torch.float64), (height, width))
    r = torch.linspace(-1, 1, height, dtype=torch.float64)[:, None]
    c = torch.linspace(-1, 1, width, dtype=torch.float64)[None]
    row, column, sigma = max(-1, min(1, row)), max(-1, min(1, column)), max(0, min(1, sigma))
    spread_r, spread_c = ((1 + max(height, width) * sigma) / n for n in (height, width))
    theirs = torch.exp(-((r - row) ** 2) / (2 * spread_r**2) - (c - column) ** 2 / (2 * spread_c**2))
    torch.testing.assert_close(ours, theirs)


def test_the_higher_priority_wins():
    position = torch.tensor([[[0.0, 0, 0.1], [0.0, 0, 0.1], [1.0, 1.0, 0.1]]])
    maps = gaussian(position, (17, 17))
    left = prioritise(maps, torch.tensor([[50.0, 0.0, 25.0]]))
    torch.testing.assert_close(left[0, 0], maps[0, 0], atol=1e-2, rtol=0)
    assert left[0, 1].max() < 1e-3
    torch.testing.assert_close(left[0, 2, 16, 16], maps[0, 2, 16, 16], atol=1e-2, rtol=0)


def test_soft_argmax_finds_the_peak():
    scores = torch.zeros(1, 7, 9)
    scores[0, 5, 2] = 80
    torch.testing.assert_close(soft_argmax(scores), torch.tensor([[2 * 5 / 6 - 1, 2 * 2 / 8 - 1]]))


@settings(deadline=None, max_examples=20)
@given(positions, positions)
def test_centre_is_a_shifted_grid_sample(row, column):
    images = torch.rand(2, 3, 12, 17, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    position = torch.tensor([[row, column], [-column, row]], dtype=torch.float64)
    theta = torch.zeros(2, 2, 3, dtype=torch.float64)
    theta[:, 0, 0] = theta[:, 1, 1] = 1
    theta[:, 0, 2], theta[:, 1, 2] = position[:, 1], position[:, 0]
    grid = torch.nn.functional.affine_grid(theta, [2, 3, 12, 17], align_corners=False)
    theirs = torch.nn.functional.grid_sample(images, grid, align_corners=False)
    torch.testing.assert_close(centre(images, position), theirs, atol=1e-9, rtol=1e-9)


def test_a_shift_by_reads_is_a_shift_by_products():
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(2, 3, 3, 12, 17, dtype=torch.float64, generator=generator, requires_grad=True)
    position = 1.2 * torch.randn(2, 3, 3, dtype=torch.float64, generator=generator)
    position[0, :2] = torch.tensor([[1.0, -1, 0], [0, 0, 0]])
    ours, theirs = Shift.apply(images, position), centre(images, position)
    torch.testing.assert_close(ours, theirs)
    signal = torch.randn(ours.shape, dtype=torch.float64, generator=generator)
    mine, other = (torch.autograd.grad(x, images, signal)[0] for x in (ours, theirs))
    torch.testing.assert_close(mine, other)
    assert torch.isfinite(Shift.apply(images, torch.full_like(position, 1e30))).all()


@settings(deadline=None, max_examples=10)
@given(st.integers(1, 5), st.integers(1, 4), st.integers(2, 6), st.integers(2, 6))
def test_upsampling_is_a_transposed_convolution(inputs, outputs, height, width):
    layer = torch.nn.ConvTranspose2d(inputs, outputs, 12, stride=4, padding=4).double()
    x = torch.rand(2, inputs, height, width, dtype=torch.float64)
    torch.testing.assert_close(upsample_conv(x, layer.weight, layer.bias), layer(x))


@settings(deadline=None, max_examples=10)
@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 4), st.integers(1, 4))
def test_a_stride_of_four_is_that_of_a_convolution(inputs, outputs, height, width):
    layer = torch.nn.Conv2d(inputs, outputs, 11, stride=4, padding=5).double()
    x = torch.rand(2, inputs, 4 * height, 4 * width, dtype=torch.float64)
    torch.testing.assert_close(stride_conv(x, layer.weight, layer.bias), layer(x))


def test_channel_skips():
    x = torch.arange(6.0).view(1, 6, 1, 1)
    assert match_channels(x, 6) is x
    assert match_channels(x, 3).flatten().tolist() == [0.5, 2.5, 4.5]
    assert match_channels(x, 12).flatten().tolist() == [i // 2 for i in range(12)]
    assert match_channels(x, 4).flatten().tolist() == [1, 1, 4, 4]


def test_the_network_starts_as_the_notes_say():
    """ReZero's scales, GateL0RD's and the attention's weights, the slots' start, the background's logit."""
    torch.manual_seed(0)
    model = Loci(presets.cater().model)
    found = {}
    for name, p in model.named_parameters():
        if p.numel() == 1 and name.split(".")[-1] in ("alpha", "fine_scale", "sigma_scale"):
            found.setdefault(round(math.log10(p.item())), set()).add(name)
    tiny = {
        f"transition.{part}.alpha"
        for part in ("enter", "leave", "attention.0", "attention.1", "recurrence.0", "recurrence.1")
    }
    tiny |= {
        f"encoder.{part}.alpha"
        for part in ("fine_down", "down", "gestalt_head.0", *(f"fine_blocks.{i}" for i in range(3)))
    }
    tinier = {
        f"decoder.{part}"
        for part in ("mask.coarse.alpha", "mask.fine_scale", "colour.coarse.alpha", "colour.fine_scale")
    }
    one = {f"decoder.{branch}.fine.{i}.alpha" for branch in ("mask", "colour") for i in (2, 3)}
    assert found == {-12: tiny, -16: tinier | {"transition.sigma_scale"}, 0: one}
    assert (model.transition.priority_scale.item(), model.transition.index_scale.item()) == (1, 1)
    cell, width = model.transition.recurrence[0].cell, 200
    for weight in (cell.state_weight, cell.output_weight):
        for part, bound in ((weight[..., :width], (6 / 400) ** 0.5), (weight[..., width:], (3 / 200) ** 0.5)):
            assert 0.99 * bound < part.abs().max() <= bound
            assert part.std().item() == pytest.approx(bound / 3**0.5, rel=0.02)
    assert not cell.state_bias.any()
    assert not cell.output_bias.any()
    theirs = torch.nn.MultiheadAttention(200, 2, batch_first=True)
    bound = (6 / (200 + 600)) ** 0.5  # torch's own start of that layer
    assert 0.99 * bound < theirs.in_proj_weight.abs().max() <= bound
    assert 0.99 * bound < model.transition.attention[0].project_in.weight.abs().max() <= bound
    assert not model.transition.attention[0].project_in.bias.any()
    assert not model.seed.gestalt_mean.any()
    assert (model.seed.gestalt_std == 1).all()
    assert model.seed.sigma.item() == 0
    assert (model.compose.background_logit == 1).all()


def test_noises_have_the_papers_size():
    model = Loci(ModelConfig(**TINY)).double()
    normals = torch.randn(4000, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    still = model.transition.order(torch.zeros(4000, 3, dtype=torch.float64), None)
    noisy = model.transition.order(torch.zeros(4000, 3, dtype=torch.float64), normals)
    assert torch.equal(still[0], torch.tensor([0.0, 25.0, 50.0]).double())
    torch.testing.assert_close(noisy - still, 25 * 0.1 * normals)
    p = torch.tensor([0.0, 0.2, 0.5, 1.0], dtype=torch.float64)
    torch.testing.assert_close(soft_binary(p, torch.full((4,), 2.0).double()), torch.tensor([0, 0.52, 1.0, 1]).double())
    assert soft_binary(p, None) is p


def code_lines(path):
    """Lines that say something to the machine: neither empty, nor comment, nor docstring."""
    text = path.read_text()
    strings = [node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Expr)]
    quoted = {n for s in strings if isinstance(s, ast.Constant) for n in range(s.lineno, s.end_lineno + 1)}
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    tokens = [token for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type not in skipped]
    return len({n for token in tokens for n in range(token.start[0], token.end[0] + 1)} - quoted)


def test_the_core_can_be_read_in_one_go():
    files = list(Path(loci.model.__file__).parent.glob("*.py"))
    assert sum(map(code_lines, files)) < 1200
    assert max(len(file.read_text().splitlines()) for file in files) < 300


def test_the_presets_build():
    for name, preset in presets.PRESETS.items():
        config = preset().model
        assert config.size[0] * config.size[1] > 0, name
    assert sum(p.numel() for p in Loci(presets.smoke().model).parameters()) < 600_000


def test_pooling_is_the_mean_of_blocks():
    x = torch.rand(2, 3, 5, 8, 12, dtype=torch.float64)
    torch.testing.assert_close(pooled_by_4(x), mean_of_blocks(x))
    torch.testing.assert_close(pooled_by_4(x[0]), mean_of_blocks(x)[0])
