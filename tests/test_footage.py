import numpy as np
import pytest

from loci.errors import UserError
from loci.track.footage import look
from loci.track.video_out import video_out


@pytest.fixture(scope="module")
def film(tmp_path_factory):
    folder = tmp_path_factory.mktemp("footage")
    texture = np.random.default_rng(0).integers(60, 160, (40, 60, 3)).astype(np.uint8).repeat(6, 0).repeat(6, 1)

    def make(name, squares=3, side=20, speed=2, shake=0, length=80, size=(120, 160)):
        path = folder / f"{name}.mp4"
        wobble = np.random.default_rng(1)
        with video_out(path, 20, quality=10) as write:
            for t in range(length):
                up, left = wobble.integers(0, shake + 1, 2)
                pixels = texture[20 + up : 20 + up + size[0], 20 + left : 20 + left + size[1]].copy()
                for n in range(squares):
                    column = (40 * n + speed * t) % (size[1] - side)
                    pixels[10 + 36 * n : 10 + 36 * n + side, column : column + side] = (250, 250, 20)
                write(pixels)
        return path

    return make


def said(found, word):
    return any(word in words for words in found.advice)


def test_what_is_found_is_what_was_made(film):
    found = look(film("good"))
    assert found.video == (120, 160)
    assert found.rate == 20
    assert found.blobs[1] * 160 == pytest.approx(20, abs=3)
    assert found.crowd[0] == pytest.approx(3, abs=0.4)
    assert 4 <= found.slots <= 6
    assert found.motion * 160 == pytest.approx(2, abs=0.6)
    assert found.foreground == pytest.approx(3 * 400 / 19200, rel=0.3)
    assert found.size[0] % 16 == found.size[1] % 16 == 0
    assert found.size[1] / found.size[0] == pytest.approx(4 / 3, rel=0.1)
    assert found.shake < 0.3
    assert not said(found, "camera")
    assert said(found, "80 frames")
    assert set(found.settings()) >= {"video", "network", "blobs", "motion", "camera"}


def test_a_camera_that_moves_is_noticed(film):
    found = look(film("shaky", shake=8))
    assert found.shake > 1
    assert said(found, "stabilise")


def test_nothing_to_see_is_noticed(film):
    assert said(look(film("empty", squares=0)), "nothing to learn")


def test_objects_that_are_too_fast_are_noticed(film):
    assert said(look(film("fast", squares=1, side=8, speed=37)), "frame rate")


def test_a_folder_of_videos_is_one_collection(film, tmp_path):
    one = film("good")
    for name in ("a.mp4", "b.mp4"):
        (tmp_path / name).write_bytes(one.read_bytes())
    found = look(tmp_path)
    assert [path.name for path in found.videos] == ["a.mp4", "b.mp4"]
    assert found.frames == 160
    with pytest.raises(UserError, match="no file or folder"):
        look(tmp_path / "none")
