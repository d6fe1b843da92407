import numpy as np
import pytest
import torch

import golden
from loci import random
from loci.data.cater_geometry import cell_centres
from loci.evaluate.metrics_cater import mean_scores, score_classes, score_place, score_screen


@pytest.fixture(scope="module")
def recorded():
    return golden.load("cater_geometry.safetensors")[0]


def test_recorded_positions_score_as_recorded(recorded):
    scores = score_screen(recorded["predicted_screen_yx"], recorded["world"])
    torch.testing.assert_close(scores.l2, recorded["l2"], atol=1e-5, rtol=0)
    assert scores.top1.mean().item() == pytest.approx(recorded["top1"].item())
    assert scores.top5.mean().item() == pytest.approx(recorded["top5"].item())


def test_l1_counts_whole_cells(recorded):
    """The recorded `l1` divides without rounding; the labels beside it say what it should be."""
    label, said = recorded["label"].long(), recorded["predicted_label"].long()
    by_hand = [abs(a // 6 - b // 6) + abs(a % 6 - b % 6) for a, b in zip(label.tolist(), said.tolist(), strict=True)]
    assert score_screen(recorded["predicted_screen_yx"], recorded["world"]).l1.tolist() == by_hand
    assert np.mean(by_hand) < recorded["l1"].item()


def test_truth_projected_and_brought_back_is_right(recorded):
    assert score_screen(recorded["screen_yx"], recorded["world"]).top1.mean() > 0.99


def test_every_cell_against_arithmetic():
    places = random.uniform(random.key(1, "places"), (2000, 2)) * 6 - 3
    answers = random.uniform(random.key(1, "answers"), (2000, 2)) * 6 - 3
    answers[:200, 0] += 1  # some beyond the grid; beyond it on both sides two centres would be equally near
    answers[200:400, 1] -= 1
    scores = score_place(answers, places)
    centres = np.array([(x + 0.5, y + 0.5) for y in range(-3, 3) for x in range(-3, 3)])
    for n, (answer, place) in enumerate(zip(answers.double().numpy(), places.double().numpy(), strict=True)):
        kept = np.clip(answer, -3, 3 - 1e-5)
        cell, right = np.floor(kept).astype(int), np.floor(place).astype(int)
        nearest = np.argsort(np.linalg.norm(centres - kept, axis=1), kind="stable")[:5]
        assert scores.top1[n] == (cell == right).all()
        assert scores.top5[n] == ((right[1] + 3) * 6 + right[0] + 3 in nearest)
        assert scores.l1[n] == np.abs(cell - right).sum()
        assert scores.l2[n].item() == pytest.approx(np.linalg.norm(answer - place), abs=1e-5)


def test_negative_places_are_floored_not_truncated():
    scores = score_place(torch.tensor([[-0.4, -0.4]]), torch.tensor([[0.4, 0.4]]))
    assert (scores.top1.item(), scores.l1.item()) == (0, 2)


def test_a_place_on_a_border_counts_for_its_own_cell():
    """The cell that holds it is the best answer though others' centres are as near."""
    line = torch.arange(-3.0, 3.0)
    corners = torch.cartesian_prod(line, line)
    for shift in (torch.tensor([0.0, 0.0]), torch.tensor([0.5, 0.0]), torch.tensor([0.0, 0.5])):
        assert score_place(corners + shift, corners + 0.5).top1.all()


def test_classes():
    label = torch.tensor([0, 35, 7])
    logits = torch.zeros(3, 36)
    logits[0, 0] = logits[1, 0] = logits[2, 8] = 2  # right; the far corner; one column off
    logits[1:, 1:5] = 1
    logits[2, 7] = 1.5
    scores = score_classes(logits, label)
    assert scores.top1.tolist() == [1, 0, 0]
    assert scores.top5.tolist() == [1, 0, 1]
    assert scores.l1.tolist() == [0, 10, 1]
    assert scores.l2.isnan().all()
    assert mean_scores(scores)["l1"] == pytest.approx(11 / 3)
    with pytest.raises(ValueError, match="36 classes"):
        score_classes(torch.zeros(1, 35), label[:1])


def test_the_order_of_the_centres_is_that_of_the_classes():
    assert score_place(cell_centres(), cell_centres()).top1.all()
