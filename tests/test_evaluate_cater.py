from types import SimpleNamespace

import numpy as np
import pytest
import torch

from evaluating import Seer, tiny
from loci import random
from loci.data.cater_geometry import project
from loci.data.clip import CARRIED, CONTAINED, OCCLUDED, VISIBLE, Clip
from loci.errors import UserError
from loci.evaluate import cater, cater_readout, containment
from loci.evaluate import metrics_permanence as permanence
from loci.evaluate.cater import Found
from loci.evaluate.cater_readout import Latents, Readout
from loci.model import Code
from loci.worlds.cater import Cater
from loci.worlds.moving_mnist import MovingMnist

SIZE = (24, 32)


class Scripted(Cater):
    """CATER's scenes without the work of drawing them: a frame shows nothing but its clip's and its own number."""

    def clips(self, indices, *, labels=True, device="cpu", length=None):
        from loci.data.clip import Clip
        from loci.worlds.cater import truth
        from loci.worlds.render import Rendering

        scripts = self.scripts(indices)
        most = max(len(script.things) for script in scripts)
        frames = torch.zeros(len(indices), self.length, 3, *self.size, dtype=torch.uint8)
        frames[:, :, 0, 0, 0] = torch.tensor(list(indices), dtype=torch.uint8)[:, None]
        frames[:, :, 1, 0, 0] = torch.arange(self.length).to(torch.uint8)
        masks = torch.zeros(len(indices), self.length, most, *self.size, dtype=torch.bool)
        masks[..., 1, 1] = True
        drawn = Rendering(frames, frames[:, :1] * 0, masks, masks)
        return Clip(frames, drawn.background, index=torch.tensor(list(indices)), **truth(scripts, drawn, "cpu"))


SOURCE = Scripted(split="test", size=SIZE, length=60)


def test_one_that_knows_the_future_is_always_right():
    found = cater.follow(Seer(SOURCE), SOURCE, count=6, seeds=(0, 1), batch=4)
    assert found.said.shape == (2, 6, 60, 2)
    scores = found.final(sees_last=False)
    assert scores.top1.mean() == 1
    assert scores.l1.max() == 0
    # The way back from the screen takes the snitch to lie at rest; one that is carried through the air does not.
    resting = (found.world[:, 1:, 2] - 0.3421).abs() < 1e-3
    assert found.ahead()[:, resting].max() < 1e-3
    assert (found.object_error == 0).all()


def test_the_answer_counts_before_the_last_frame_is_seen():
    """One that is a frame late is right only if it may see the last frame."""
    late = cater.follow(Seer(SOURCE, late=1), SOURCE, count=8, seeds=(0,))
    truth = cater.snitch_truth(SOURCE.clips(range(8)), SOURCE)[0]
    torch.testing.assert_close(late.world, truth)
    assert late.final(sees_last=True).l2.max() < 1e-3
    moved = (truth[:, -1] - truth[:, -2])[:, :2].norm(dim=-1)
    resting = (truth[:, [-1, -2], 2] - 0.3421).abs().amax(1) < 1e-3
    assert bool((moved[resting] > 0.05).any())
    torch.testing.assert_close(late.final(sees_last=False).l2[0][resting], moved[resting], atol=2e-3, rtol=1e-2)


def test_the_tables_stand_beside_the_papers():
    found = cater.follow(Seer(SOURCE), SOURCE, count=4, seeds=(0, 1, 2))
    report = cater.report("cater", found, 2_961_118, (0, 1, 2), False, "Loci supervised")
    methods = {row[0]: row[1:] for row in report.tables[0].rows}
    assert methods["Loci supervised"] == (2.96, 90.7, 98.5, 0.14, 0.14)
    assert methods["Loci supervised (ours)"][:4] == (2.961118, 100, 100, 0)
    assert len(report.tables[1].rows) == 3
    spread = {row[:2]: row[2:] for row in report.tables[2].rows}
    assert spread["Top 1 (%)", "ours"] == (100, 100, 0, 100)
    assert spread["Top 1 (%)", "paper"] == (88.9, 90.7, 0.8, 91.8)
    other = cater.report("cater-unsupervised", found, 4_140_000, (0, 1, 2), False, "Loci unsupervised")
    unlabelled = {row[:2]: row[2:] for row in other.tables[2].rows}
    assert unlabelled["Top 1 (%)", "paper"] == (None, 78.4, None, None)  # not the supervised one's
    assert unlabelled["L2", "paper"] == (None, methods["Loci unsupervised"][4], None, None)
    assert "unsupervised" in other.tables[2].note


def test_sources_and_networks_without_a_snitch_are_refused():
    with pytest.raises(UserError, match="no snitch"):
        cater.snitch_truth(MovingMnist(length=2).clips([0]), MovingMnist(length=2))
    with pytest.raises(UserError, match="no head for the snitch"):
        cater.follow(tiny((32, 32)), Scripted(size=(32, 32), length=2), count=1, seeds=(0,))


def test_contained_for_counts_frames_without_a_break():
    keys = random.key(4, "states")
    state = torch.tensor([VISIBLE, OCCLUDED, CONTAINED, CARRIED])[random.integers(keys, 4, (5, 200))]
    expected = np.zeros((5, 200), int)
    for n in range(5):
        run = 0
        for t in range(200):
            run = run + 1 if state[n, t] in (CONTAINED, CARRIED) else 0
            expected[n, t] = run
    assert containment.contained_for(state).tolist() == expected.tolist()


def test_the_containment_curve_has_every_answer_in_its_place():
    state = torch.tensor([[VISIBLE, CONTAINED, CARRIED, VISIBLE, CONTAINED], [CONTAINED] * 5])
    world = torch.zeros(2, 5, 3)
    world[..., 2] = 0.3421497941017151
    away = torch.tensor([[0.0, 0.5, 1.0, 1.5, 2.0], [3.0, 2.5, 2.0, 1.5, 1.0]])  # of the place said for each frame
    said = torch.zeros(1, 2, 5, 3)
    said[0, :, :-1, 0] = away[:, 1:]
    said[..., 2] = world[0, 0, 2]
    found = Found(project(said), world, state, torch.zeros(1, 2))
    groups = containment.curve(found)
    assert {frames: s.number for frames, s in groups.items()} == {0: 1, 1: 2, 2: 2, 3: 1, 4: 1, 5: 1}
    assert groups[2].mean == pytest.approx((1.0 + 2.5) / 2, abs=1e-4)
    assert groups[5].mean == pytest.approx(1.0, abs=1e-4)
    report = containment.report(found)
    assert [row[0] for row in report.tables[0].rows] == ["not contained", 1, 5]
    assert report.pictures["curve"].shape[2] == 3


def test_the_slot_of_the_snitch_is_the_one_that_overlaps_best():
    from loci.evaluate import metrics_masks

    key = random.key(8, "slots")
    masks = random.uniform(random.fold(key, "masks"), (400, 5, 4, 4))
    visible = random.uniform(random.fold(key, "seen"), (400, 4, 4)) > 0.7
    visible[:20] = False
    found = cater.slot_of(visible, masks)
    labels = metrics_masks.labels_of_slots(masks)
    for n in range(400):
        overlap = []
        for slot in range(4):
            own = labels[n] == slot + 1
            union = (own | visible[n]).sum().item()
            overlap.append((own & visible[n]).sum().item() / union if union else 0)
        if max(overlap) < cater.HOLDS:
            assert found[n] == -1
        else:
            assert overlap[int(found[n])] == pytest.approx(max(overlap))
    assert (found[:20] == -1).all()
    assert len(found.unique()) == 5


def test_a_cone_that_covers_the_last_pixels_is_not_the_snitchs_slot():
    masks = torch.zeros(1, 3, 10, 10)
    masks[0, 0, 2:9] = 1  # a cone's slot, 70 pixels
    masks[0, 2, [0, 1, 9]] = 1
    visible = torch.zeros(1, 10, 10, dtype=torch.bool)
    visible[0, 2, 4:7] = True
    assert cater.slot_of(visible, masks).tolist() == [-1]


def held_by(slots, states, source_size=(32, 32)):
    """A snitch (the second object) that rests in the middle; slots are in the middle, two pixels lower, ..."""
    T = len(states)
    clip = Clip(
        torch.zeros(1, T, 3, *source_size, dtype=torch.uint8),
        position=torch.zeros(1, T, 2, 2),
        state=torch.tensor(states, dtype=torch.uint8)[None, :, None].expand(1, T, 2),
    )
    places = torch.zeros(1, T - 1, 2, 2)
    places[:, :, 1, 0] = 2 * 2 / 31
    return cater._held(clip, torch.tensor([1]), places, torch.tensor(slots)[None])


def test_the_share_of_snitches_still_in_their_slot_on_release():
    V, C, A, O = VISIBLE, CONTAINED, CARRIED, OCCLUDED  # noqa: E741
    kept = held_by([0, -1, -1, 0, 0], [V, V, C, A, V, V])
    lost = held_by([0, -1, 1, 1, 1], [V, V, C, V, V, V])
    behind = held_by([0, -1, 1, 1, 1], [V, V, O, V, V, V])
    rows = {row[0]: row[1:] for row in containment.slot_tables(permanence.pooled([kept, lost, behind]))[0].rows}
    assert rows["share of contained snitches still in their slot on release"] == (0.5, 2)
    assert rows["share of the snitch's frames in which no slot had ever had it"] == (0, 15)
    never = containment.slot_tables(held_by([-1, -1, -1], [V, C, C, V]))[0].rows
    assert [row[1:] for row in never] == [(None, 0), (1, 3)]
    assert lost.error.tolist() == pytest.approx([0, 0, 2, 2, 2], abs=1e-5)


def test_one_that_knows_the_future_keeps_the_snitch_in_its_slot():
    found = cater.follow(Seer(SOURCE), SOURCE, count=6, seeds=(0, 1), batch=4)
    held = found.permanence
    # Scripted pictures cover nobody, and all objects share a pixel, which the first of equal masks wins: the snitch.
    assert len(held.state) == 2 * 6 * 59
    assert held.error.max() < 1e-3
    report = containment.report(found)
    assert report.tables[1].title == "The snitch's slot"
    assert {table.title for table in report.tables[2:]} == {
        "The snitch's slot by state",
        "The snitch's slot by frames hidden",
    }


def made_up(n=240, moments=2, slots=4, gestalt=12):
    """Slots with codes of which the one whose first number is 1 holds the snitch, a fixed step away from its place."""
    keys = random.key(7, "made-up latents")
    code = (random.uniform(random.fold(keys, "what"), (n, moments, slots, gestalt)) > 0.5).float()
    holder = random.integers(random.fold(keys, "who"), slots, (n, moments))
    code[..., 0] = torch.nn.functional.one_hot(holder, slots).float()
    place = 2 * random.uniform(random.fold(keys, "where"), (n, moments, slots, 3)) - 1
    target = place.gather(2, holder[..., None, None].expand(-1, -1, 1, 3))[:, :, 0, :2] + torch.tensor([0.1, -0.2])
    return Latents(place, code.half(), torch.zeros(n, moments, slots), target)


def test_the_read_out_learns_whom_to_follow():
    latents = made_up()
    readout = cater_readout.train(latents, steps=500, rate=5e-3, hidden=24)
    held_out = Latents(*(value[:60] for value in vars(made_up(n=300)).values()))
    flat = held_out.samples()
    error = (readout(flat.code(torch.arange(60))) - flat.target[:60, 0]).norm(dim=-1)
    untrained = Readout(12, 24)
    before = (untrained(flat.code(torch.arange(60))) - flat.target[:60, 0]).norm(dim=-1)
    assert error.mean() < 0.25 * before.mean()


def test_the_read_out_is_as_small_as_the_papers_and_repeatable():
    count = sum(parameter.numel() for parameter in Readout(96).parameters())
    assert 16_500 < count < 17_500
    first, second = (cater_readout.train(made_up(n=20), steps=3, seed=5) for _ in range(2))
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_at_test_time_the_read_out_sees_codes_alone():
    latents = made_up(n=2).samples()
    readout = Readout(12)
    code = latents.code(torch.arange(2))
    torch.testing.assert_close(readout.locate(SimpleNamespace(code=code)), readout(code))


def test_codes_are_kept_of_the_right_moments(tmp_path):
    source = Scripted(split="train", size=(32, 32), length=24)
    model = tiny((32, 32))
    latents = cater_readout.extract(model, source, count=3, every=10, batch=2)
    assert latents.position.shape == (3, 3, 2, 3)
    truth = cater.snitch_truth(source.clips(range(3)), source)[0]
    torch.testing.assert_close(latents.target, project(truth[:, [3, 13, 23]]))
    from loci.evaluate.watch import watch

    with torch.inference_mode():
        outputs = [output.code for _, output in watch(model, source.clips([2]), 0)]
    torch.testing.assert_close(latents.position[2, 1], outputs[12].position[0], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(latents.gestalt[2, 2].float(), outputs[22].gestalt[0], atol=2e-3, rtol=1e-2)

    path, facts = tmp_path / "latents.safetensors", {"network": "mine", "count": "3"}
    cater_readout.save(path, {"train": latents}, facts)
    read = cater_readout.load(path, facts)["train"]
    torch.testing.assert_close(read.gestalt, latents.gestalt)
    with pytest.raises(UserError, match="count '3', not '4'"):
        cater_readout.load(path, {**facts, "count": "4"})


def test_pictures_mark_the_snitch():
    page = cater.pictures(tiny((32, 32), snitch=True), Scripted(size=(32, 32), length=8), clips=1, columns=3)
    assert page.shape[1] >= 3 * 32
    assert (page == [255, 0, 0]).all(-1).any()


def test_a_code_has_slots_in_its_second_axis():
    code = Code(torch.zeros(2, 4, 3), torch.zeros(2, 4, 12), torch.zeros(2, 4))
    assert Readout(12)(code).shape == (2, 2)
