"""Along a line, a step on a CPU says what the plain step says."""

import logging
from dataclasses import replace

import pytest
import torch

from loci.config import SearchConfig, TransitionConfig
from loci.errors import UserError
from loci.kernels import fast
from loci.kernels.fast import FastWatch
from loci.kernels.line import Line
from loci.kernels.record import leaves
from test_fast import TINY, frames, lively

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="lines are for CPUs")
COARSE = replace(TINY, height=128, width=128, resolution="coarse")
VARIANTS = {
    "fine": TINY,
    "coarse, bfloat16": COARSE,
    "snitch": replace(COARSE, snitch=True),
    "LSTM, always searching": replace(
        COARSE,
        transition=TransitionConfig(heads=1, layers=1, cell="lstm"),
        search=SearchConfig(invisible=True),
    ),
}


def agree(ours, theirs, **tolerance):
    for one, two in zip(leaves(ours), leaves(theirs), strict=True):
        torch.testing.assert_close(one, two, **tolerance)


@pytest.fixture
def hasty(monkeypatch):
    monkeypatch.setattr(fast, "PATIENCE", 1)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_line_says_what_the_step_says(variant, hasty):
    precision = "bfloat16" if "bfloat16" in variant else "float32"
    model = lively(VARIANTS[variant]).eval()
    video = frames(model, 6)
    quick, plain = (FastWatch(model, precision=precision, wanted=wanted) for wanted in (True, False))
    one = two = model.start(2, video[0, 0])
    with torch.inference_mode():  # as the tracker does
        for frame in video:
            one, noticed = quick.step(frame, one)
            two, seen = plain.step(frame, two)
            agree((one, noticed), (two, seen), rtol=1e-5, atol=1e-6)
    assert quick.off is None
    assert [type(line) for line in quick.recordings.values()] == [Line]


def test_imagining_along_a_line_can_branch(hasty):
    model = lively(COARSE).eval()
    video = frames(model, 3).transpose(0, 1)
    quick = FastWatch(model)
    state, _ = quick.observe(video, quick.start(2, video[0, 0]))
    with torch.no_grad():
        _, dreamt = model.imagine(state, 4)
    for _ in range(2):
        _, imagined = quick.imagine(state, 4)
        agree(imagined, dreamt, rtol=1e-5, atol=1e-6)
    assert len(quick.recordings) == 2


def test_a_line_is_recorded_after_some_patience_and_anew_when_weights_have_changed(hasty):
    model = lively(COARSE).eval()
    quick, video = FastWatch(model), frames(model, 2)
    state, _ = quick.step(video[0], model.start(2, video[0, 0]))
    for lines in (0, 1, 1):
        quick.step(video[1], state)
        assert len(quick.recordings) == lines
    with torch.no_grad():
        model.transition.priority_scale.mul_(2)
    for lines in (0, 1):
        _, noticed = quick.step(video[1], state)
        with torch.no_grad():
            _, seen = model.step(video[1], state)
        agree(noticed, seen, rtol=1e-5, atol=1e-6)
        assert len(quick.recordings) == lines


def test_what_depends_on_weights_alone_is_worked_out_once():
    weight = torch.full((3,), 2.0)
    unread = torch.ones(3)

    def work(arguments):
        _ = arguments[0] + unread
        return (arguments[0] * (weight.exp() + torch.linspace(0, 1, 3)).flip(0),)

    line = Line(work, (torch.ones(3),), [weight])
    assert [str(node.target) for node in line.line.graph.nodes if node.op == "call_function"] == ["aten.mul.Tensor"]
    x = torch.randn(3)
    assert torch.equal(line((x,))[0], work((x,))[0])


def test_constants_that_are_written_to_start_anew_each_time():
    def work(arguments):
        return (torch.zeros(3).add_(arguments[0]),)

    line = Line(work, (torch.ones(3),), [])
    for _ in range(2):
        assert torch.equal(line((torch.ones(3),))[0], torch.ones(3))


def test_frames_that_do_not_fit_are_refused_after_recording_too(hasty):
    model = lively(COARSE).eval()
    quick, video = FastWatch(model), frames(model, 4)
    state = model.start(2, video[0, 0])
    for frame in video:
        state, _ = quick.step(frame, state)
    assert quick.recordings
    with pytest.raises(UserError, match="1 entries"):
        quick.step(video[0, :1], state)
    with pytest.raises(UserError, match="background"):
        quick.step(video[0], state, background=video[0, :1])


def test_where_no_line_can_be_recorded_plain_steps_go_on(hasty, monkeypatch, caplog):
    def refuse(*_):
        raise RuntimeError("no such operator")

    monkeypatch.setattr("loci.kernels.line._pack", refuse)
    model = lively(COARSE).eval()
    quick, video = FastWatch(model), frames(model, 3)
    state = plain = model.start(2, video[0, 0])
    with caplog.at_level(logging.WARNING), torch.no_grad():
        for frame in video:
            state, noticed = quick.step(frame, state)
            plain, seen = model.step(frame, plain)
    agree(noticed, seen, rtol=0, atol=0)
    assert "no such operator" in quick.off
    assert "no such operator" in caplog.text
