"""The fast path changes nothing but time. Its motions are rehearsed on the CPU; on a GPU they are the real ones."""

import logging
from dataclasses import replace

import pytest
import torch

from loci import presets
from loci.config import DecoderConfig, EncoderConfig, ModelConfig, TransitionConfig
from loci.kernels.fast import FastWatch
from loci.kernels.record import Recorded, leaves
from loci.model import Loci
from loci.train.fast import FastStep
from loci.train.optimise import Optimisers
from loci.train.schedule import Schedule
from loci.train.step import Learner, Lesson, train_step

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
STEPS = 30
IN_SOFTMAX = ("position_head.1.second.bias", "attention.0.project_in.weight", "attention.0.project_in.bias")
"""What some of is added to every score of a softmax: its gradient is rounding, which Adam turns into steps."""
TINY = ModelConfig(
    height=64,
    width=64,
    slots=2,
    gestalt=8,
    bootstrap=2,
    encoder=EncoderConfig(24, 24, 1),
    transition=TransitionConfig(heads=1, layers=1),
    decoder=DecoderConfig(12, 1),
)


def lively(config=TINY):
    torch.manual_seed(0)
    model = Loci(config).train().to(DEVICE)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "alpha" in name or name.endswith("_scale"):
                parameter.fill_(0.3)
    return model


def frames(model, count, batch=2):
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, 256, (count, batch, 3, *model.size), dtype=torch.uint8, generator=generator).to(DEVICE)


def run(fast, sequences=2):
    """Sequences with a bootstrap step each, through a change of the schedule; the background starts to learn midway."""
    model = lively()
    config = replace(presets.smoke(), model=TINY)
    config = replace(config, train=replace(config.train, foreground=8))
    schedule, optimisers, learner = Schedule(config), Optimisers(model), Learner(model)
    step = FastStep(learner, model, optimisers, rehearse=DEVICE.type == "cpu") if fast else None
    reports, update, length = [], 0, STEPS // sequences
    for sequence in range(sequences):
        video = frames(model, length + 1)
        state = model.start(2, video[0, 0], seed=sequence)
        for t in range(length):
            lessons = [Lesson(video[t], video[t + 1], bootstrapping=t < 3)]
            settings = schedule.settings(update, 0)
            call = (state, lessons, settings)
            state, report, _ = step(*call) if step else train_step(learner, model, optimisers, *call)
            reports.append(report.clone())
            update += 1
    return model, optimisers, state, torch.stack(reports), step


def test_thirty_fast_updates_are_thirty_plain_ones():
    model, optimisers, state, reports, _ = run(fast=False)
    quick, optimisers_2, state_2, reports_2, step = run(fast=True)
    assert step.off is None
    # Before and after the background learns (its first updates are plain), and the second sequence's start.
    assert len(step.recordings) == 3
    torch.testing.assert_close(reports_2, reports, rtol=1e-4, atol=1e-6)
    for (name, ours), theirs in zip(quick.named_parameters(), model.parameters(), strict=True):
        limit = 2e-3 if name.endswith(IN_SOFTMAX) else 1e-6
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=limit, msg=name)
    for ours, theirs in zip(leaves(state_2), leaves(state), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    assert optimisers_2.counts == optimisers.counts


def test_watching_fast_is_watching():
    model = lively().eval()
    video = frames(model, 8)
    watch = FastWatch(model, rehearse=DEVICE.type == "cpu")
    one = two = model.start(2, video[0, 0])
    for frame in video:
        with torch.no_grad():
            one, seen = model.step(frame, one)
        two, noticed = watch.step(frame, two)
        torch.testing.assert_close(noticed.frame, seen.frame, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(noticed.percept.position, seen.percept.position, rtol=1e-4, atol=1e-5)
    assert len(watch.recordings) == 1


def test_imagining_fast_is_imagining_and_can_branch():
    model = lively().eval()
    video = frames(model, 6).transpose(0, 1)
    watch = FastWatch(model, rehearse=DEVICE.type == "cpu")
    with torch.no_grad():
        plain = model.bootstrap(video[:, 0], model.start(2, video[0, 0]))
        plain, seen = model.observe(video, plain)
        plain, dreamt = model.imagine(plain, 3)
    state = watch.bootstrap(video[:, 0], watch.start(2, video[0, 0]))
    state, noticed = watch.observe(video, state)
    for _ in range(2):  # the state is still what it was after the first branch
        _, imagined = watch.imagine(state, 3)
        torch.testing.assert_close(imagined.frame, dreamt.frame, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(noticed.masks, seen.masks, rtol=1e-4, atol=1e-5)


def test_a_recording_leaves_what_it_changes_until_it_is_called():
    total = torch.zeros(3, device=DEVICE)

    def work(x):
        total.add_(x[0])
        return x[0] * 2

    place = torch.ones(3, device=DEVICE)
    recorded = Recorded(work, (place,), preserve=[total])
    assert not total.any()
    assert torch.equal(recorded((torch.full_like(place, 5),)), torch.full_like(place, 10))
    assert torch.equal(total, torch.full_like(place, 5))
    assert torch.equal(recorded((place,)), torch.full_like(place, 10))  # what is in its place already is not copied


def test_what_cannot_be_recorded_falls_back_and_says_why(caplog, monkeypatch):
    monkeypatch.setattr(
        "loci.kernels.record.Recorded.__init__", lambda *_: (_ for _ in ()).throw(RuntimeError("no room"))
    )
    with caplog.at_level(logging.WARNING):
        model, _, _, _, step = run(fast=True, sequences=1)
    assert "no room" in step.off
    assert "no room" in caplog.text
    plain = run(fast=False, sequences=1)[0]
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.skipif(DEVICE.type == "cuda", reason="with a GPU there is a fast path")
def test_without_a_gpu_steps_are_plain_and_the_log_says_so(caplog):
    model = lively()
    with caplog.at_level(logging.INFO):
        step = FastStep(Learner(model), model, Optimisers(model))
    assert "this is cpu" in caplog.text
    assert step.learner is step.plain
