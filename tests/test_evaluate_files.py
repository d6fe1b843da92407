"""`loci evaluate` on data sets as they are published: their own files, no conversion."""

import json

import cv2
import numpy as np
import pytest
import torch

import test_data_cater
import test_data_clevr
import test_data_clevrer
import test_data_movi
import tfrecords
from evaluating import tiny
from loci import checkpoint
from loci.cli import main
from loci.data.cater_geometry import project
from loci.data.picture import resized
from loci.evaluate.watch import find_background
from loci.model import Loci
from test_data_cater import folder, published  # noqa: F401 - fixtures

CATER_SIZE = (32, 48)


@pytest.fixture
def network(tmp_path):
    def saved(size, **more):
        path = tmp_path / "networks" / "net.safetensors"
        path.parent.mkdir(exist_ok=True)
        checkpoint.save(path, tiny(size, **more))
        return path

    return saved


def evaluated(capsys, tmp_path, network, on, *words):
    """The reports that the command leaves, by name."""
    out = tmp_path / "out"
    code = main(["evaluate", str(network), "--on", on, "--device", "cpu", "--out", str(out), *map(str, words)])
    said = capsys.readouterr()
    assert code == 0, said.err
    return {path.stem: json.loads(path.read_text()) for path in out.glob("*.json")}, said


def table(report, title):
    found = next(table for table in report["tables"] if table["title"] == title)
    return {row[0]: dict(zip(found["header"][1:], row[1:], strict=True)) for row in found["rows"]}


def frames_of(path):
    """A video's frames by another decoder, [T,3,H,W] in RGB."""
    video, frames = cv2.VideoCapture(str(path)), []
    while True:
        more, frame = video.read()
        if not more:
            return torch.from_numpy(np.stack(frames)).permute(0, 3, 1, 2).contiguous()
        frames.append(resized(frame[..., ::-1].copy(), CATER_SIZE))


def damage(path):
    """Zeros within a picture in the middle; head and index stay whole."""
    content = bytearray(path.read_bytes())
    middle = content.index(b"\xff\xd8", len(content) // 2)
    content[middle + 300 : middle + 600] = bytes(300)
    path.unlink()
    path.write_bytes(content)


def test_a_cater_folder_as_published(published, network, tmp_path, capsys):  # noqa: F811
    """Videos, scenes and lists; the scores are those of the network's answers, worked out by hand."""
    path = network(CATER_SIZE, snitch=True)
    reports, _ = evaluated(capsys, tmp_path, path, f"cater:{published}")
    assert set(reports) == {"cater", "containment", "tracking"}
    facts = reports["cater"]["facts"]
    assert (facts["clips"], facts["frames"], facts["split"]) == (3, test_data_cater.FRAMES, "test")
    assert "clips left out" not in facts
    seeds = table(reports["cater"], "Each evaluation seed")
    assert list(seeds) == [0, 1, 2, 3, 4]

    from loci.data.cater import open_cater
    from loci.evaluate.watch import keys_of

    model: Loci = checkpoint.load(path)
    source = open_cater(published, split="test", size=CATER_SIZE)
    scene = find_background(source)
    hits, distances = [], []
    for n in range(3):
        frames = frames_of(published / "videos" / f"CATER_new_{7 + n:06d}.avi")
        keys = keys_of(source.clips([n]), 0)
        with torch.no_grad():
            state = model.bootstrap(frames[None, 0], model.start(1, scene, keys=keys))
            for frame in frames[:-1]:  # the last one is not seen
                state, output = model.step(frame[None], state)
        grid = torch.stack(torch.meshgrid(*[torch.linspace(-6, 6, 601)] * 2, indexing="ij"), -1).reshape(-1, 2)
        floor = torch.cat((grid, torch.full((len(grid), 1), 0.3421497941017151)), 1)
        nearest = grid[(project(floor) - output.snitch).norm(dim=-1).argmin()].numpy()  # the floor point drawn there
        truth = np.array(test_data_cater.scene()["objects"][0]["locations"][str(test_data_cater.FRAMES - 1)][:2])
        distances.append(np.linalg.norm(nearest - truth))
        hits.append((np.floor(np.clip(nearest, -3, 2.99999)) == np.floor(truth)).all())
    assert seeds[0]["Top 1 (%)"] == pytest.approx(100 * np.mean(hits))
    assert seeds[0]["L2"] == pytest.approx(np.mean(distances), abs=0.03)


def test_what_a_cater_folder_lacks_is_left_out_and_said(folder, network, tmp_path, capsys, caplog):  # noqa: F811
    """A list names a video that is not there, a scene is missing: one clip is left, and the report says so."""
    with (folder / "lists" / "localize" / "val.txt").open("a") as file:
        file.write("CATER_new_000077.avi 7\n")
    (folder / "scenes" / "CATER_new_000008.json").unlink()
    (folder / "scenes" / "CATER_new_000009.json").write_text("{")
    reports, _ = evaluated(capsys, tmp_path, network(CATER_SIZE, snitch=True), f"cater:{folder}")
    for name in ("cater", "containment", "tracking"):
        facts = reports[name]["facts"]
        assert (facts["clips"], facts["clips left out"]) == (1, 3)
    assert "3 skipped" in caplog.text
    assert "missing" in facts["the first of them"] or "not there" in facts["the first of them"]


def test_a_frame_damaged_in_the_middle_costs_its_video_alone(folder, network, tmp_path, capsys, caplog):  # noqa: F811
    """Head and index are whole, so that it shows only when it is decoded."""
    damage(folder / "videos" / "CATER_new_000008.avi")
    reports, _ = evaluated(capsys, tmp_path, network(CATER_SIZE, snitch=True), f"cater:{folder}")
    facts = reports["tracking"]["facts"]
    assert (facts["clips"], facts["clips left out"]) == (2, 1)
    assert "CATER_new_000008.avi" in facts["the first of them"]
    assert caplog.text.count("left out:") == 1


def test_decoded_once_and_scored_the_same(folder, network, tmp_path, capsys, caplog, monkeypatch):  # noqa: F811
    """With a cache nothing is decoded the second time, what is damaged is left out as ever, and no score changes."""
    import loci.data.cater

    damage(folder / "videos" / "CATER_new_000007.avi")
    path, place = network(CATER_SIZE, snitch=True), tmp_path / "cache"
    plain, _ = evaluated(capsys, tmp_path, path, f"cater:{folder}")
    first, _ = evaluated(capsys, tmp_path, path, f"cater:{folder}", "--cache", place)
    decoded, real = [], loci.data.cater.decode

    def decode(video, *rest, **more):
        decoded.append(video.name)
        return real(video, *rest, **more)

    monkeypatch.setattr(loci.data.cater, "decode", decode)
    second, _ = evaluated(capsys, tmp_path, path, f"cater:{folder}", "--cache", place)
    assert set(decoded) == {"CATER_new_000007.avi"}
    assert plain == first == second
    assert plain["tracking"]["facts"]["clips left out"] == 1
    stored = sorted(place.rglob("*.clip"))
    assert len(stored) == 2
    content = bytearray(stored[0].read_bytes())
    content[-40] ^= 1
    stored[0].write_bytes(content)
    assert evaluated(capsys, tmp_path, path, f"cater:{folder}", "--cache", place)[0] == plain
    assert "damaged" in caplog.text
    assert main(["evaluate", str(path), "--on", "cater", "--cache", str(place), "--device", "cpu"]) == 2
    assert "not decoded" in capsys.readouterr().err


def test_nothing_readable_is_an_error(folder, network, tmp_path, capsys):  # noqa: F811
    for n in (7, 8, 9):
        damage(folder / "videos" / f"CATER_new_{n:06d}.avi")
    words = ["evaluate", str(network(CATER_SIZE, snitch=True)), "--on", f"cater:{folder}", "--device", "cpu"]
    assert main([*words, "--out", str(tmp_path / "out")]) == 2
    assert "could be read; first:" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_clevrer_folder_as_published(network, tmp_path, capsys, monkeypatch):
    from loci.evaluate import clevrer

    monkeypatch.setattr(clevrer, "PAPER", clevrer.Protocol("clevrer", 4, 4, marks=(1, 4)))
    monkeypatch.setattr(clevrer, "LATER", clevrer.Protocol("clevrer-6-42", 2, 2, 2, (16, 16), marks=(1, 2)))
    root = tmp_path / "clevrer"
    root.mkdir()
    for number in (10100, 10200, 10800):
        test_data_clevrer.add(root, number)
    (root / "annotation_10000-11000" / "annotation_10800.json").write_text('{"object_property": [')
    reports, _ = evaluated(capsys, tmp_path, network((32, 48)), f"clevrer:{root}")
    assert set(reports) == {"clevrer", "clevrer-6-42", "tracking"}
    for report in reports.values():
        facts = report["facts"]
        assert (facts["clips"], facts["clips left out"], facts["split"]) == (2, 1, "val")
        assert "10800" in facts["the first of them"]
    assert reports["clevrer-6-42"]["facts"]["compared at"] == "16x16"
    assert {"mIoU", "FG-ARI", "position error (pixels)"} <= set(
        table(reports["clevrer"], "4 frames given, 4 in closed loop")
    )


def test_a_movi_folder_as_published(network, tmp_path, capsys):
    place = tmp_path / "movi" / "movi_a" / "128x128" / "1.0.0"
    place.mkdir(parents=True)
    records = [test_data_movi.record(n) for n in range(3)]
    tfrecords.write(place / "movi_a-validation.tfrecord-00000-of-00001", records)
    tfrecords.write(place / "movi_a-train.tfrecord-00000-of-00001", records[:1])
    reports, _ = evaluated(capsys, tmp_path, network((32, 32)), f"movi:{tmp_path / 'movi'}", "--split", "val")
    assert reports["tracking"]["facts"]["clips"] == 3
    assert "FG-ARI" in table(reports["tracking"], "Tracking")


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_clevr_with_masks(network, tmp_path, capsys, packed):
    records = [test_data_clevr.record(n) for n in range(10)]
    path = tfrecords.write(tmp_path / "clevr.tfrecords", records, packed)
    reports, _ = evaluated(capsys, tmp_path, network((32, 48)), f"clevr:{path}")
    facts = reports["clevr"]["facts"]
    assert (facts["images"], facts["objects"], facts["iterations"]) == (2, 4, 30)
    path.write_bytes(path.read_bytes()[:-30])
    words = ["evaluate", str(network((32, 48))), "--on", f"clevr:{path}", "--out", str(tmp_path / "other")]
    assert main(words) == 2
    assert "cut off" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


def test_the_official_clevr_file_is_not_read_to_its_end_but_a_cut_is_found(network, tmp_path, capsys):
    """It is taken to have its 100 000 records; those that a download cut off are left out when it comes to them."""
    records = [test_data_clevr.record(n) for n in range(20)]
    path = tfrecords.write(tmp_path / "clevr_with_masks_train.tfrecords", records, packed=True)
    path.write_bytes(path.read_bytes()[:-30])
    reports, _ = evaluated(capsys, tmp_path, network((32, 48)), f"clevr:{path}", "--count", 5)
    facts = reports["clevr"]["facts"]
    assert (facts["images"], facts["clips left out"]) == (3, 2)  # of records 8, 9, 18, 19 and 28
    assert "cut off" in facts["the first of them"]


def test_the_other_moving_mnist(network, tmp_path, capsys):
    array = np.zeros((20, 5, 32, 32), np.uint8)
    for t in range(20):
        array[t, :, 4:12, t : t + 8] = 255
    np.save(tmp_path / "mnist_test_seq.npy", array)
    reports, _ = evaluated(capsys, tmp_path, network((32, 32)), f"mnist:{tmp_path / 'mnist_test_seq.npy'}")
    assert set(reports) == {"moving-mnist"}
    assert (reports["moving-mnist"]["facts"]["sequences"], reports["moving-mnist"]["facts"]["predicted"]) == (5, 10)
    black = reports["moving-mnist"]["curves"]["black frames mse"]
    assert black == pytest.approx([64.0] * 10)


def test_videos_without_labels(network, tmp_path, capsys):
    for n in range(2):
        test_data_cater.write_avi(tmp_path / f"{n}.avi", test_data_cater.moving_square(n))
    for place in (tmp_path, tmp_path / "1.avi"):
        reports, _ = evaluated(capsys, tmp_path, network(CATER_SIZE), f"video:{place}", "--length", 10)
        assert "L2_object" in table(reports["tracking"], "Tracking")
