import csv
import json
import re
import warnings

import numpy as np
import psutil
import pytest
from pycocotools import mask as coco

from loci.evaluate.metrics_tracking import box_iou
from loci.track import write_report
from loci.track.clock import Clock
from loci.track.draw import COLOURS, Drawer, colour, drawing_scale
from loci.track.tags import Tags
from loci.track.tracker import Tracked
from loci.track.video_in import open_video
from loci.track.write_codes import codes_npz
from loci.track.write_masks import masks_json
from loci.track.write_overlay import overlay_mp4
from loci.track.write_report import BINS, report_html
from loci.track.write_tables import COLUMNS, mot_txt, tracks_csv

H, W, K, D = 60, 90, 4, 5


def scene(t, length=20):
    """Two squares in slots 2 and 0: the first there from the start and hidden in the middle, the second from t = 5."""
    labels = np.zeros((H, W), np.uint8)
    first, second = (20, 10 + 2 * t), (40, 60 - t)
    hidden = length // 2 <= t < length // 2 + 4
    if not hidden:
        labels[first[0] - 6 : first[0] + 6, first[1] - 6 : first[1] + 6] = 3
    found = 2 if t >= 5 else 1
    if found == 2:
        labels[second[0] - 5 : second[0] + 5, second[1] - 4 : second[1] + 4] = 1
    pixels = np.full((H, W, 3), 90, np.uint8)
    pixels[labels == 3] = (200, 30, 30)
    pixels[labels == 1] = (30, 30, 200)
    boxes = np.array([[first[1] - 6, 14, 12, 12], [second[1] - 4, 35, 8, 10]], np.float32)
    pictures = np.zeros((2, 15, 20, 4), np.uint8)
    pictures[:, 4:8, 5:9] = 255
    return Tracked(
        index=t,
        time=t / 10,
        pixels=pixels,
        ids=np.array([1, 2])[:found],
        slots=np.array([2, 0])[:found],
        hues=np.array([2, 0])[:found],
        positions=np.array([first, second], np.float32)[:found] - 0.5,
        sizes=np.array([4.0, 3.0], np.float32)[:found],
        order=np.array([0, 1])[:found],
        visible=np.array([0.02 if hidden else 0.98, 0.9], np.float32)[:found],
        boxes=boxes[:found],
        seen=np.array([not hidden, True])[:found],
        gestalts=np.full((2, D), t, np.float32)[:found],
        codes=np.array([[0.1, 0.2, 0.3, 7], [0.4, 0.5, 0.6, 8]], np.float32)[:found],
        labels=labels,
        pictures=pictures[:found],
    )


def written(writer, length=20):
    with writer as write:
        for t in range(length):
            write(scene(t, length))


def test_csv_has_every_object_from_its_first_frame_hidden_or_not(tmp_path):
    written(tracks_csv(tmp_path / "tracks.csv"))
    with (tmp_path / "tracks.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == COLUMNS
    assert sum(row["id"] == "1" for row in rows) == 20
    assert [int(row["frame"]) for row in rows if row["id"] == "2"] == list(range(5, 20))
    hidden = next(row for row in rows if row["id"] == "1" and row["frame"] == "11")
    assert float(hidden["visible"]) < 0.1
    assert (float(hidden["row"]), float(hidden["column"])) == (19.5, 31.5)


def test_motmetrics_reads_the_challenge_file_and_finds_no_fault(tmp_path):
    written(mot_txt(tmp_path / "mot.txt"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its own, of pandas
        import motmetrics

        read = motmetrics.io.loadtxt(str(tmp_path / "mot.txt"), fmt="mot15-2D")
        accumulator = motmetrics.MOTAccumulator(auto_id=True)
        for t in range(20):  # against the squares themselves
            frame = scene(t)
            truth = frame.boxes[frame.seen].astype(float)
            lines = read.loc[t + 1]
            boxes = lines[["X", "Y", "Width", "Height"]].to_numpy(float)
            distance = 1 - box_iou(truth, boxes)
            accumulator.update(frame.ids[frame.seen], lines.index, np.where(distance > 0.5, np.nan, distance))
        scores = motmetrics.metrics.create().compute(
            accumulator, metrics=["mota", "motp", "idf1", "num_unique_objects"]
        )
    assert scores["mota"].item() == scores["idf1"].item() == 1
    assert scores["num_unique_objects"].item() == 2
    assert read.loc[(1, 1), "Confidence"] == pytest.approx(0.98)
    assert (11, 1) not in read.index  # hidden: frame 10 counted from 0
    assert (10, 1) in read.index


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # pycocotools' own
def test_pycocotools_reads_the_masks_and_they_are_ours(tmp_path):
    written(masks_json(tmp_path / "masks.json", "squares.mp4"))
    document = json.loads((tmp_path / "masks.json").read_text())
    video = document["videos"][0]
    assert (video["width"], video["height"], video["length"], len(video["file_names"])) == (W, H, 20, 20)
    assert [each["id"] for each in document["annotations"]] == [1, 2]
    for each, label in zip(document["annotations"], (3, 1), strict=True):
        assert len(each["segmentations"]) == len(each["bboxes"]) == len(each["areas"]) == 20
        for t, runs in enumerate(each["segmentations"]):
            mask = scene(t).labels == label
            if not mask.any():
                assert runs is each["bboxes"][t] is each["areas"][t] is None
                continue
            assert (coco.decode(runs).astype(bool) == mask).all()
            assert coco.area(runs) == each["areas"][t]
            assert coco.toBbox(runs).tolist() == each["bboxes"][t]
    assert [path.name for path in tmp_path.iterdir()] == ["masks.json"]


def test_codes_are_arrays_over_frames_and_slots(tmp_path):
    written(codes_npz(tmp_path / "codes.npz", K, D))
    with np.load(tmp_path / "codes.npz") as codes:
        assert {name: codes[name].shape for name in codes} == {
            "frame": (20,), "time": (20,), "id": (20, K), "position": (20, K, 3), "priority": (20, K),
            "gestalt": (20, K, D), "pixel": (20, K, 2), "visible": (20, K),
        }  # fmt: skip
        assert codes["id"][4].tolist() == [0, 0, 1, 0]
        assert codes["id"][5].tolist() == [2, 0, 1, 0]
        assert codes["gestalt"][7, 0].tolist() == [7] * D
        assert codes["position"][7, 2] == pytest.approx([0.1, 0.2, 0.3])
        assert codes["priority"][7, [0, 2]].tolist() == [8, 7]
        assert np.isnan(codes["gestalt"][:, 1]).all()


def test_a_slot_keeps_its_colour_and_colours_are_far_apart():
    far = np.abs(COLOURS[:, None].astype(int) - COLOURS[None]).sum(-1) + 999 * np.eye(len(COLOURS), dtype=int)
    assert far.min() > 60
    draw = Drawer((H, W), K)
    for t in range(8):
        picture = draw(scene(t))
        s = round(drawing_scale((H, W)))
        assert picture.shape[1] == W * s
        tinted = picture[(20 - 5) * s, (10 + 2 * t - 5) * s].astype(float)
        expected = 0.6 * np.array([200, 30, 30]) + 0.4 * np.array(colour(2))
        assert tinted == pytest.approx(expected, abs=3)


def test_a_hidden_object_is_drawn_dashed():
    def ring(hidden):
        t = 10 if hidden else 8
        draw = Drawer((H, W), K)
        picture = draw(scene(t, 20 if hidden else 99))
        s = round(drawing_scale((H, W)))
        middle = (10 + 2 * t) * s - s // 2, 20 * s - s // 2
        angles = np.radians(np.arange(0, 360, 2))
        at = np.round(np.stack([middle[1] + 6 * s * np.sin(angles), middle[0] + 6 * s * np.cos(angles)])).astype(int)
        return np.abs(picture[at[0], at[1]].astype(int) - colour(2)).sum(-1) < 90

    dashes = ring(hidden=True)
    assert 0.3 < dashes.mean() < 0.9
    assert np.abs(np.diff(dashes.astype(int))).sum() >= 12


def test_the_overlay_is_a_video_with_the_strip_below(tmp_path):
    written(overlay_mp4(tmp_path / "overlay.mp4", (H, W), 10, K))
    with open_video(tmp_path / "overlay.mp4") as video:
        frames = list(video)
    scale = round(drawing_scale((H, W)))
    assert len(frames) == 20
    assert video.facts.size[1] == W * scale
    assert video.facts.size[0] > H * scale + 40


def test_the_report_needs_nothing_else(tmp_path):
    clock = Clock({"decoding": 1.0, "model": 3.0, "background": 50.0})
    settings = {"video": "<tank>.mp4", "weights": "cater"}
    background = np.full((15, 20, 3), 90, np.uint8)
    with (
        report_html(
            tmp_path / "report.html", settings, background, clock, tmp_path / "overlay.mp4", ["cut off"]
        ) as show,
        overlay_mp4(tmp_path / "overlay.mp4", (H, W), 10, K) as write,
    ):
        for t in range(20):
            write(scene(t))
            show(scene(t))
    text = (tmp_path / "report.html").read_text()
    assert "<tank>" not in text
    assert "&lt;tank&gt;.mp4" in text
    assert "cut off" in text
    assert "data:video/mp4;base64," in text
    assert not re.search(r'(src|href)="(?!data:)', text)
    assert "5.0" in text  # 20 frames in 4 s
    assert "75%" in text
    assert text.count("<figure") == 2


def test_tags_stay_beside_each_other_and_inside_the_picture():
    picture = np.full((80, 120, 3), 90, np.uint8)
    tags = Tags(picture, 0.5)
    for n, box in enumerate([(50, 30, 20, 20), (50, 30, 20, 20), (52, 31, 20, 20), (100, 0, 40, 10)]):
        tags.add(str(n), np.array(box, float), colour(n), filled=n != 1)
    for n, (left, top, right, bottom) in enumerate(tags.taken):
        assert 0 <= left < right < 120
        assert 0 <= top < bottom < 80
        for other in tags.taken[:n]:
            assert right <= other[0] or other[2] <= left or bottom <= other[1] or other[3] <= top
    left, top, *_ = tags.taken[0]
    assert picture[top + 1, left + 1].tolist() == list(colour(0))
    left, top, *_ = tags.taken[1]
    assert picture[top + 1, left + 1].tolist() == [0, 0, 0]
    assert picture[top, left].tolist() == list(colour(1))


def test_a_large_overlay_is_linked(tmp_path, monkeypatch):
    monkeypatch.setattr(write_report, "EMBED", 10)
    (tmp_path / "overlay.mp4").write_bytes(bytes(100))
    assert 'src="overlay.mp4"' in write_report.movie(tmp_path / "overlay.mp4", tmp_path / "report.html")


def test_the_timeline_is_bounded_and_right():
    line = write_report.Timeline()
    length = 5 * BINS
    for t in range(length):
        line.add(scene(t % 20))
    assert len(line.bins) <= 2 * BINS
    assert line.width * len(line.bins) >= length
    seen = sum(each[1] for each in line.bins) / length
    assert seen == pytest.approx(np.mean([scene(t).visible[0] for t in range(20)]), abs=1e-6)


@pytest.mark.parametrize(
    "make",
    [
        lambda path: tracks_csv(path),
        lambda path: mot_txt(path),
        lambda path: masks_json(path, "x"),
        lambda path: codes_npz(path, K, D),
        lambda path: overlay_mp4(path, (H, W), 10, K),
    ],
)
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path, make):
    path = tmp_path / "file.mp4"
    path.write_text("old")

    def fail():
        with make(path) as write:
            write(scene(0))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["file.mp4"]


def test_writers_keep_nothing_of_what_they_wrote(tmp_path):
    process = psutil.Process()
    with (
        tracks_csv(tmp_path / "a.csv") as a,
        mot_txt(tmp_path / "b.txt") as b,
        masks_json(tmp_path / "c.json", "x") as c,
        codes_npz(tmp_path / "d.npz", K, 500) as d,
    ):
        frames = [scene(t) for t in range(20)]
        for t in range(3000):
            if t == 500:
                start = process.memory_info().rss
            for write in (a, b, c):
                write(frames[t % 20])
            d(scene_with(frames[t % 20], 500))
        grown = process.memory_info().rss - start
    assert grown < 8e6  # the codes alone are 24 MB


def scene_with(frame, size):
    import dataclasses

    return dataclasses.replace(frame, gestalts=np.zeros((len(frame.ids), size), np.float32))
