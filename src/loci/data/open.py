"""Any source of clips by a word: a world's name, or a kind of files and where they are."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from loci.data.source import SPLITS, Source, Split
from loci.errors import UserError
from loci.worlds.open import WORLDS, open_world

READERS = ("cater", "clevrer", "clevr", "movi", "mnist", "video", "images")
PACKAGES = {"pycocotools": "pycocotools", "cv2": "opencv-python-headless"}
"""What some readers need and a bare machine may lack: the module and what to install."""
EXAMPLES = (
    "cater:FOLDER, clevrer:FOLDER, clevr:FILE.tfrecords, movi:FOLDER, mnist:FILE.npy, "
    "video:FILE_OR_FOLDER, images:FOLDER"
)


def open_source(
    spec: str,
    *,
    split: Split = "test",
    seed: int = 0,
    size: tuple[int, int] | None = None,
    length: int | None = None,
    cache: Path | str | None = None,
    count: int | None = None,
    advance: Callable[[], object] = lambda: None,
    **options: Any,
) -> Source:
    """Open a world ("cater") or files ("cater:FOLDER").

    Args:
        spec: which source.
        split: "train", "val" or "test". A folder of videos or images has no splits: it is the same for each.
        seed: for worlds; files are what they are.
        size: height and width of the frames; by default what the source has.
        length: frames in a clip; by default what the source has.
        cache: decode the source once into this folder and read from there.
        count: with a cache, how many clips to decode.
        advance: with a cache, called after each clip.
        options: what else this source can be told; one of None counts as not given.

    Raises:
        UserError: there is no such source, or it cannot be used.
    """
    if split not in SPLITS:
        raise UserError(f"split {split!r}: choose one of {', '.join(SPLITS)}")
    given = {"split": split, "size": size, "length": length, **options}
    kind, colon, place = spec.partition(":")
    source = _files(kind, place, given) if colon else _world(kind, seed, given)
    if cache is None:
        return source
    from loci.data.cache import cached

    return cached(source, Path(cache).expanduser(), count=count, advance=advance)


def _world(name: str, seed: int, given: dict[str, Any]) -> Source:
    if name in WORLDS:
        return open_world(name, seed=seed, **given)
    if name in READERS:
        raise UserError(f"source {name!r} needs a place behind a colon: {EXAMPLES}")
    hint = f"; for a file or folder say what it is: video:{name}" if Path(name).exists() else _near(name)
    raise UserError(f"no source {name!r}{hint}. Choose a world ({', '.join(WORLDS)}) or files ({EXAMPLES})")


def _files(kind: str, place: str, given: dict[str, Any]) -> Source:
    if kind not in READERS:
        raise UserError(f"no kind of files {kind!r}{_near(kind)}: choose one of {EXAMPLES}")
    if not place:
        raise UserError(f"{kind}: needs a place behind the colon, as in {EXAMPLES}")
    path = Path(place).expanduser()
    if not path.exists():
        raise UserError(f"there is no {path}; {kind}: needs a file or folder that exists")
    try:
        return _read(_reader(kind, path), kind, path, given)
    except ModuleNotFoundError as error:
        package = PACKAGES.get(error.name or "")
        if package is None:
            raise
        raise UserError(
            f"{kind}: files are read by {package}, which is not installed: pip install {package}"
        ) from error


def _read(reader: Callable[..., Source], kind: str, path: Path, given: Mapping[str, Any]) -> Source:
    """The source, with those options that the reader has."""
    known = inspect.signature(reader).parameters
    wanted = {name: value for name, value in given.items() if value is not None and (name in known or name != "split")}
    for name in wanted:
        if name not in known:
            raise UserError(f"{kind}: has no option {name!r}: choose from {', '.join(list(known)[1:])}")
    return reader(path, **wanted)


def _reader(kind: str, path: Path) -> Callable[..., Source]:
    """The function that opens a kind of files; each is imported only when it is asked for."""
    if kind == "cater":
        from loci.data.cater import open_cater

        return open_cater
    if kind == "clevrer":
        from loci.data.clevrer import open_clevrer

        return open_clevrer
    if kind == "clevr":
        from loci.data.clevr import open_clevr

        return open_clevr
    if kind == "movi":
        from loci.data.movi import open_movi

        return open_movi
    if kind == "mnist":
        from loci.data.mnist_npy import open_mnist

        return open_mnist
    from loci.data.labelled import is_labelled, open_labelled
    from loci.data.video import open_images, open_videos

    if kind == "images":
        return open_images
    return open_labelled if is_labelled(path) else open_videos


def _near(word: str) -> str:
    near = difflib.get_close_matches(word, [*WORLDS, *READERS], n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""
