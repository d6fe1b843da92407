import gc
import itertools
import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from loci import Loci, presets, random
from loci.config import Config, Stage
from loci.model.loss import object_error, reconstruction, warmup_target
from loci.model.state import tree_map
from loci.train.feed import Batch
from loci.train.loop import Trainer
from loci.train.optimise import GROUPS, Optimisers, group_of
from loci.train.processes import Processes
from loci.train.schedule import Schedule, Settings, Weights, rectification
from loci.train.step import STATISTICS, Learner, Lesson, train_step
from loci.worlds.moving_mnist import MovingMnist

WEIGHTS = Weights(1.0, 0.01, 1.0, 0.1, 0.0)


def plan(**changes):
    settings = Settings(1e-3, 3e-2, True, False, 0.1, 0.5, WEIGHTS, 0.0)
    return replace(settings, **changes)


def make(seed=0, **model):
    torch.manual_seed(seed)
    model = Loci(replace(presets.smoke().model, **model)).train()
    return model, Learner(model), Optimisers(model)


def frames(batch=2, length=4):
    return MovingMnist(size=(32, 32), length=length).clips(range(batch), labels=False).frames


def lesson(clip, at=0, **more):
    return Lesson(clip[:, at], clip[:, at + 1], **more)


def weights_of(model):
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def test_network_follows_torch_radam_and_starts_follow_adam():
    ours, _, optimisers = make()
    theirs, _, _ = make()
    names = [n for n, _ in theirs.named_parameters() if group_of(n) != "start"]
    radam = torch.optim.RAdam([theirs.get_parameter(n) for n in names], lr=1e-3, eps=1e-16)
    adam = torch.optim.Adam(theirs.seed.parameters(), lr=3e-2, betas=(0.9, 0.99))
    for update in range(12):
        for index, (name, p) in enumerate(ours.named_parameters()):
            if group_of(name) == "fine":
                continue  # as in coarse training: no gradient reaches them
            p.grad = random.normal(random.key(update, index), p.shape)
            theirs.get_parameter(name).grad = p.grad.clone()
        optimisers.step(plan(), first=update % 3 == 0, dropped=torch.zeros(()))
        radam.step()
        if update % 3 == 0:
            adam.step()
    for name, p in ours.named_parameters():
        torch.testing.assert_close(p, theirs.get_parameter(name), rtol=1e-5, atol=1e-8, msg=name)
    assert optimisers.counts == {"network": 12, "fine": 0, "background": 12, "start": 4}


def test_every_parameter_is_in_one_group():
    model, _, optimisers = make()
    grouped = [name for group in GROUPS for name, _ in optimisers.named[group]]
    assert sorted(grouped) == sorted(name for name, _ in model.named_parameters())
    assert all(optimisers.named.values())


def test_who_learns_when():
    model, learner, optimisers = make()
    clip = frames()
    state = model.start(2, keys=random.key(0, torch.arange(2)))

    def moved(state, **changes):
        before = weights_of(model)
        state, report, dropped = train_step(learner, model, optimisers, state, [lesson(clip)], plan(**changes))
        assert dropped == 0
        assert report.shape == (len(STATISTICS),)
        return state, {group_of(n) for n, p in model.named_parameters() if not torch.equal(p, before[n])}

    state, who = moved(state, background=False)
    assert who == {"network", "start"}, "the first step of a sequence in the foreground phase"
    state, who = moved(state, background=False)
    assert who == {"network"}
    state, who = moved(state)
    assert who == {"network", "background"}
    fine, learner, optimisers = make(resolution="fine", height=32, width=32)
    state = fine.start(2)
    before = weights_of(fine)
    train_step(learner, fine, optimisers, state, [lesson(clip)], plan())
    assert {group_of(n) for n, p in fine.named_parameters() if not torch.equal(p, before[n])} == set(GROUPS)


@pytest.mark.parametrize("over", [False, True])
def test_the_foreground_phase_teaches_the_foreground_and_then_whole_frames(over):
    model, learner, _ = make()
    scene = torch.full((3, 32, 32), 90, dtype=torch.uint8)
    clip = torch.maximum(frames(length=2), scene)
    state = model.start(2, scene)
    _, output = model.step(clip[:, 0], state)
    whole = clip[:, 1] / 255
    foreground = warmup_target(whole, state.background)
    assert 0.02 < (foreground > 0).float().mean() < 0.5
    loss, _, report = learner(state, [lesson(clip)], plan(background=over, weights=Weights(1.0, 0.0, 0.0, 0.0, 0.0)))
    torch.testing.assert_close(loss, reconstruction(output.frame, whole if over else foreground))
    wrong = reconstruction(output.frame, foreground if over else whole)
    assert not torch.allclose(loss, wrong, rtol=0.01)
    missed = object_error(output.frame, whole, state.background)  # of whole frames in both phases
    torch.testing.assert_close(report[STATISTICS.index("l2_object")], missed)


@pytest.mark.parametrize(("growth", "shown"), [(0.0, 0.0), (1.0, 0.4621172), (40.0, 1.0)])
def test_at_dawn_targets_are_as_bright_as_the_background_is_shown(growth, shown):
    model, learner, _ = make()
    scene = torch.full((3, 32, 32), 90, dtype=torch.uint8)
    clip = torch.maximum(frames(length=2), scene)
    state = model.start(2, scene)
    model.compose.background_growth.fill_(growth)
    _, output = model.step(clip[:, 0], state)
    whole = clip[:, 1] / 255
    foreground = warmup_target(whole, state.background)
    target = torch.where(foreground > 0, foreground, shown * whole)
    only = Weights(1.0, 0.0, 0.0, 0.0, 0.0)
    loss, _, _ = learner(state, [lesson(clip)], plan(dawn=True, weights=only))
    torch.testing.assert_close(loss, reconstruction(output.frame, target))
    before, _, _ = learner(state, [lesson(clip)], plan(background=False, dawn=True, weights=only))
    assert torch.allclose(loss, before) == (growth == 0)  # nothing jumps when the foreground phase ends


def test_what_each_time_teaches():
    """The frame and a moving background as they are now; the next frame, and where the snitch is in it."""
    video = torch.arange(4, dtype=torch.uint8)[None, :, None, None, None].expand(2, 4, 3, 8, 8)
    where = torch.arange(4.0)[None, :, None].expand(2, 4, 2)
    moving = Batch(video, video + 100, where)
    for time, now, following in ((-1, 0, 0), (0, 0, 1), (2, 2, 3)):
        taught = moving.lesson(time)
        assert taught.bootstrapping == (time < 0)
        assert (taught.frame == now).all()
        assert (taught.target == following).all()
        assert (taught.background == now + 100).all()
        assert (taught.snitch == following).all()
    still = Batch(video, video[:, :1], None).lesson(2)
    assert still.background is None
    assert still.snitch is None


def test_a_moving_background_is_the_one_of_each_frame():
    model, learner, optimisers = make()
    clip, state = frames(length=3), model.start(2)
    for t in range(2):
        scene = torch.full_like(clip[:, 0], 50 + t)
        taught = lesson(clip, t, background=scene)
        state, _, _ = train_step(learner, model, optimisers, state, [taught], plan())
        torch.testing.assert_close(state.background, scene / 255)


def test_everything_handed_on_is_detached_and_growth_is_written():
    model, learner, optimisers = make()
    state, _, _ = train_step(learner, model, optimisers, model.start(2), [lesson(frames())], plan())
    assert state.cells[0].traces is not None
    attached = []
    tree_map(lambda tensor: attached.append(tensor.requires_grad) or tensor, state)
    assert len(attached) > 10
    assert not any(attached)
    assert model.encoder.size_growth.item() == pytest.approx(0.1)
    assert model.compose.background_growth.item() == pytest.approx(0.5)


@pytest.mark.parametrize("first", [True, False])
def test_an_update_that_is_not_finite_leaves_everything_as_it_was(first):
    model, learner, optimisers = make()
    clip, state = frames(), model.start(2)
    if not first:
        state, _, _ = train_step(learner, model, optimisers, state, [lesson(clip)], plan())
    before, moments = weights_of(model), {k: v.clone() for k, v in optimisers.tensors().items()}
    poisoned = state._replace(frame=torch.full_like(state.frame, math.nan), code=state.code)
    if first:
        poisoned = state._replace(background=torch.full_like(state.background, math.nan))
    after, report, dropped = train_step(learner, model, optimisers, poisoned, [lesson(clip, 1)], plan())
    assert dropped == 1
    assert not report.any()
    assert all(torch.equal(p, before[n]) for n, p in model.named_parameters())
    assert all(torch.equal(v, moments[k]) for k, v in optimisers.tensors().items() if k in moments)
    assert all(torch.isfinite(v).all() for v in optimisers.tensors().values())
    assert torch.equal(after.time, poisoned.time + 1)
    torch.testing.assert_close(after.claimed, state.claimed)
    assert all(torch.isfinite(c.traces.weight).all() for c in after.cells)


def test_clipping_shortens_the_step():
    lengths = []
    for clip in (0.0, 1e-3):
        model, learner, optimisers = make()
        before = weights_of(model)
        _, report, _ = train_step(learner, model, optimisers, model.start(2), [lesson(frames())], plan(clip=clip))
        moved = [p - before[n] for n, p in model.named_parameters() if group_of(n) == "network"]
        lengths.append((report[-1].item(), torch.nn.utils.get_total_norm(moved).item()))
    assert lengths[0][0] == lengths[1][0] > 1e-3
    assert lengths[1][1] < lengths[0][1] * 1.1e-3 / lengths[0][0]


def test_a_window_reaches_back_in_time():
    """The gradient of the last frame's loss with respect to the recurrent weights depends on the first frame."""
    clip = frames(length=4)
    found = {}
    for window in (1, 3):
        model, learner, _ = make()
        model = Loci(replace(model.config, transition=replace(model.config.transition, credit="bptt"))).train()
        torch.manual_seed(0)
        for p in model.parameters():
            if p.numel() == 1 and p.item() < 1e-3:
                p.data.fill_(0.5)
        learner, state = Learner(model), model.start(2)
        lessons = [lesson(clip, t) for t in range(3)]
        total = {}
        for begin in range(0, 3, window):
            loss, state, _ = learner(state, lessons[begin : begin + window], plan())
            (loss * window).backward()
        total = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
        found[window] = total
    name = "transition.recurrence.0.cell.state_weight"
    assert not torch.allclose(found[1][name], found[3][name], rtol=1e-3)


@pytest.mark.parametrize(
    "off", [(), ("position",), ("object",), ("time",), ("object", "time"), ("position", "object", "time")]
)
def test_a_regulariser_that_is_off_teaches_nothing(off):
    """The loss is the sum of the others, and so is its gradient."""
    clip = frames(length=6)
    weights = replace(WEIGHTS, **dict.fromkeys(off, 0.0))
    model, learner, optimisers = make()
    with torch.no_grad():
        model.decoder.mask.coarse.second.weight.add_(0.05)  # slots are seen, so that all terms count
        model.compose.background_logit.fill_(-5)
    state = model.start(2)
    for t in range(4):
        state, report, dropped = train_step(learner, model, optimisers, state, [lesson(clip, t)], plan(weights=weights))
        assert not dropped
    found = dict(zip(STATISTICS, report.tolist(), strict=True))
    expected = sum(getattr(weights, name) * found[name] for name in Weights.__dataclass_fields__)
    assert found["loss"] == pytest.approx(expected, rel=1e-5)
    assert found["position"] > 0
    computed = {"object", "time"} if len({"object", "time"} - set(off)) else set()
    assert {name for name in ("object", "time") if found[name] > 0} == computed
    loss, _, _ = learner(state, [lesson(clip, 4)], plan(weights=weights))
    ours = torch.autograd.grad(loss, model.decoder.colour.coarse.second.weight)[0]
    full, _, _ = learner(state, [lesson(clip, 4)], plan())
    whole = torch.autograd.grad(full, model.decoder.colour.coarse.second.weight)[0]
    assert torch.equal(ours, whole) == (not off)


@pytest.mark.parametrize(("credit", "window"), [("eprop", 1), ("bptt", 1), ("bptt", 3)])
@pytest.mark.parametrize("cell", ["gatelord", "lstm"])
def test_memory_does_not_grow_with_the_length_of_a_sequence(cell, credit, window):
    """After an update no cell's graph is left, and the state is as large as it was."""
    model, _, _ = make()
    transition = replace(model.config.transition, credit=credit, cell=cell)
    model = Loci(replace(model.config, transition=transition)).train()
    learner, optimisers = Learner(model), Optimisers(model)
    clip, state, sizes = frames(length=window + 1), model.start(2), []

    def graphs():
        gc.collect()
        return sum(type(thing).__name__ in ("GateL0RDStepBackward", "LSTMStepBackward") for thing in gc.get_objects())

    lessons = [lesson(clip, t) for t in range(window)]
    loss, _, _ = learner(state, lessons, plan())
    assert graphs() == window, "the graph is noticed while it is there"
    del loss
    for _ in range(3):
        state, _, _ = train_step(learner, model, optimisers, state, lessons, plan())
        assert graphs() == 0
        total = []
        tree_map(lambda x: total.append(x.numel()) or x, state)  # noqa: B023
        sizes.append(sum(total))
    assert len(set(sizes)) == 1


def test_supervision_moves_the_snitch_head():
    model, learner, optimisers = make(snitch=True)
    clip = frames()
    state, _, _ = train_step(learner, model, optimisers, model.start(2), [lesson(clip)], plan())
    before = weights_of(model)
    taught = plan(weights=replace(WEIGHTS, supervision=0.1))
    where = torch.tensor([[0.5, -0.5], [0.1, 0.9]])
    for _ in range(8):
        state, report, _ = train_step(learner, model, optimisers, state, [lesson(clip, snitch=where)], taught)
    assert report[STATISTICS.index("supervision")] > 0
    name = "transition.snitch.layers.0.first.weight"
    assert not torch.equal(model.get_parameter(name), before[name])


# The schedule


def test_ramps_have_the_published_pace():
    config = Config()
    schedule = Schedule(config)
    for update, expected in ((100, 19), (1000, 449), (10_000, 8970)):
        assert schedule.grown(update, 0) / 1e-4 == pytest.approx(expected, rel=0.015)
        assert schedule.grown(30_000 + update, 30_000) / 1e-4 == pytest.approx(expected, rel=0.015)
    assert schedule.grown(30_000, 30_000) == 0


def test_rectification_is_that_of_torch_radam():
    parameter = torch.nn.Parameter(torch.zeros((), dtype=torch.float64))
    radam = torch.optim.RAdam([parameter], lr=1.0, eps=1e-16)
    for update in range(1, 300):
        before = parameter.item()
        parameter.grad = -torch.ones((), dtype=torch.float64)
        radam.step()
        assert parameter.item() - before == pytest.approx(rectification(update), rel=1e-9)


@given(st.lists(st.integers(1, 50_000), min_size=1, max_size=4), st.integers(0, 150_000), st.integers(0, 40_000))
@settings(deadline=None, max_examples=30)
def test_growth_never_falls_and_stages_do_not_matter_to_it_at_one_rate(lengths, update, since):
    config = Config(train=replace(Config().train, stages=tuple(Stage(n) for n in lengths)))
    one = Config(train=replace(Config().train, stages=(Stage(sum(lengths)),)))
    ours, plain = Schedule(config), Schedule(one)
    assert ours.grown(update, since) == pytest.approx(plain.grown(update, since), rel=1e-6, abs=1e-12)
    assert ours.grown(update + 1, since) >= ours.grown(update, since) - 1e-12


def test_stages_follow_each_other_and_the_last_one_lasts():
    stages = (Stage(10, "coarse", 1e-4, 0.01), Stage(20, "coarse", 3e-5, 0.1), Stage(5, "fine", 1e-5, 0.3))
    model = replace(presets.smoke().model, snitch=True)
    schedule = Schedule(Config(model=model, train=replace(Config().train, stages=stages, updates=100)))
    assert [schedule.stage_number(n) for n in (0, 9, 10, 29, 30, 34, 99)] == [0, 0, 1, 1, 2, 2, 2]
    assert schedule.total == 100
    assert [schedule.resolution(n) for n in range(3)] == ["coarse", "coarse", "fine"]
    settings = schedule.settings(12, 1)
    assert settings.rate == pytest.approx(3e-5)
    assert settings.start_rate == pytest.approx(9e-4)
    assert settings.weights.supervision == 0.1
    assert not settings.background


def test_the_background_is_let_in_after_the_foreground_phase():
    schedule = Schedule(Config())
    before, after = (schedule.settings(update, 0) for update in (29_999, 30_000))
    assert (before.background, after.background) == (False, True)
    assert before.background_growth == after.background_growth == 0
    assert schedule.settings(30_001, 0).background_growth > 0
    assert after.size_growth > before.size_growth > 0


def test_rate_warms_up_and_falls():
    stage = Stage(100, rate=1.0, warm_up=10, final=0.1)
    schedule = Schedule(Config(train=replace(Config().train, stages=(stage,))))
    rates = [schedule.settings(n, 0).rate for n in range(100)]
    assert rates[0] == pytest.approx(0.1)
    assert max(rates) == pytest.approx(rates[9], abs=0.01)
    assert all(later <= earlier for earlier, later in itertools.pairwise(rates[10:]))
    assert rates[-1] == pytest.approx(0.1, abs=0.01)


def test_who_is_blind_learns_from_its_own_prediction():
    """A blind entry does what `imagine` does; the others see the frame."""
    torch.manual_seed(0)
    model = Loci(presets.smoke().model).eval()
    clip = torch.randint(0, 256, (2, 3, 3, *model.size), dtype=torch.uint8)
    with torch.no_grad():
        state, _ = model.step(clip[:, 0], model.start(2))
        _, seen = model.step(clip[:, 1], state)
        _, dreamt = model.imagine(state, 1)
        _, mixed = model.step(clip[:, 1], state, blind=torch.tensor([True, False]))
    torch.testing.assert_close(mixed.frame[0], dreamt.frame[0, 0])
    torch.testing.assert_close(mixed.frame[1], seen.frame[1])
    assert not mixed.error[0].any()
    assert mixed.error[1].any()


def test_the_blind_share_of_a_stage_follows_the_frames_given():
    config = presets.smoke()
    train = replace(config.train, given=3, stages=(Stage(10, blind=0.5),), evaluate_every=0, picture_every=0)
    trainer = Trainer(replace(config, train=train), Processes(0, 1, torch.device("cpu")))
    try:
        assert [int(trainer._blind(time).sum()) for time in (-1, 0, 2, 3, 6)] == [0, 0, 0, 2, 2]
    finally:
        trainer.close()
