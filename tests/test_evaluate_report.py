import json
import math

import cv2
import numpy as np
import pytest
import torch

from loci.evaluate import figures
from loci.evaluate.report import Report, Table, shown


def small():
    table = Table("Numbers", ("name", "a", "b"), (("first", 0.123456, None), ("se|cond", 3, math.nan)), "A note.")
    picture = (np.arange(4 * 6 * 3) * 3).astype(np.uint8).reshape(4, 6, 3)
    return Report("try", {"count": 2}, (table,), {"view": picture}, {"curve": [1.0, math.inf]})


def test_a_report_is_saved_as_markdown_json_and_png(tmp_path):
    report = small()
    files = {path.name: path for path in report.save(tmp_path / "new" / "folder")}
    assert set(files) == {"try.md", "try.json", "try-view.png"}
    page = files["try.md"].read_text()
    assert "| first | 0.1235 | - |" in page
    assert "| se\\|cond | 3 | - |" in page
    assert "![view](try-view.png)" in page
    content = json.loads(files["try.json"].read_text())
    assert content["facts"] == {"count": 2}
    assert content["tables"][0]["rows"] == [["first", 0.123456, None], ["se|cond", 3, None]]
    assert content["curves"] == {"curve": [1.0, None]}
    read = cv2.imread(str(files["try-view.png"]))[..., ::-1]
    np.testing.assert_array_equal(read, report.pictures["view"])


def test_a_row_must_fit_its_header():
    with pytest.raises(ValueError, match="2 entries under 3 names"):
        Table("Numbers", ("a", "b", "c"), ((1, 2),))


@pytest.mark.parametrize(
    ("entry", "text"), [(None, "-"), (0.00012345, "0.0001234"), (12, "12"), (123456.0, "1.235e+05")]
)
def test_numbers_are_shown_in_four_digits(entry, text):
    assert shown(entry) == text


def test_a_strip_has_a_place_for_every_picture():
    pictures = [[np.full((5, 7, 3), 10 * (3 * r + c), np.uint8) for c in range(3)] for r in range(2)]
    page = figures.strip(pictures)
    assert page.shape == (2 * 7, 3 * 9, 3)
    for r in range(2):
        for c in range(3):
            assert (page[r * 7 : r * 7 + 5, c * 9 : c * 9 + 7] == 10 * (3 * r + c)).all()
    assert figures.strip(pictures, ["a", "b", "c"], ["first", "second"]).shape > page.shape
    large = figures.strip(pictures, tall=12)
    assert large.shape == (2 * 17, 3 * 23, 3)
    assert (large[:15, 23:44] == 10).all()


def test_masks_are_laid_over_in_their_slots_colours():
    masks = torch.zeros(3, 4, 4)
    masks[0, 0, 0] = masks[1, 3, 3] = 1
    masks[2] = 1 - masks[:2].sum(0)
    picture = figures.tinted(torch.zeros(3, 4, 4), masks)
    first, second = figures.slot_colours(2)
    np.testing.assert_allclose(picture[0, 0], 0.6 * first, atol=1)
    np.testing.assert_allclose(picture[3, 3], 0.6 * second, atol=1)
    assert (picture[1, 1] == 0).all()


def test_marks_are_drawn_at_row_and_column():
    black = np.zeros((48, 96, 3), np.uint8)
    drawn = figures.marked(black, ring=torch.tensor([-1.0, 1.0]), cross=torch.tensor([1.0, -1.0]))
    rows, columns = np.nonzero(drawn[..., 2])  # the ring is white, the cross red
    assert rows.max() < 8
    assert columns.min() > 88
    red = (drawn[..., 0] > 0) & (drawn[..., 2] == 0)
    assert red[44:, :4].any()
    assert not red[:40].any()


def test_a_figure_is_a_picture():
    page = figures.figure(lambda axes: figures.lines(axes, {"a": ([0, 1], [1, 2])}, title="t", x="x"), size=(2, 1))
    assert page.dtype == np.uint8
    assert page.shape == (110, 220, 3)
    assert len(np.unique(page.reshape(-1, 3), axis=0)) > 2
