"""`loci track` on every kind of input, as a user would call it: python bench/track_inputs.py FOLDER [LONG]

Makes the files in FOLDER, tracks each with a network that ships, and prints a table of exit codes, times, frames and
memory. LONG is how many frames the long video has (20 000 unless told).
"""

import re
import struct
import subprocess
import sys
import time
import zlib
from pathlib import Path

import av
import numpy as np
import psutil

from loci.track.background import write_image
from loci.track.video_out import video_out
from loci.worlds.moving_mnist import MovingMnist


def digits(length: int, clip: int = 0) -> np.ndarray:
    """Frames [T,H,W,3] of the test split."""
    frames = MovingMnist(split="test", length=length).clips([clip], labels=False).frames[0]
    return frames.permute(0, 2, 3, 1).numpy()


def encode(path: Path, frames: np.ndarray, codec: str, pixels: str) -> None:
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=10)
        stream.height, stream.width, stream.pix_fmt = *frames.shape[1:3], pixels
        for picture in frames:
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24")
            container.mux(stream.encode(frame.reformat(format=pixels)))
        container.mux(stream.encode())


def png_header(side: int) -> bytes:
    """A PNG that claims to be side × side."""
    facts = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR" + facts + struct.pack(">I", zlib.crc32(b"IHDR" + facts))
    )


def make(folder: Path, long: int) -> list[tuple[str, Path]]:
    folder.mkdir(parents=True, exist_ok=True)
    frames = digits(100)
    kinds = {"mp4": ("libx264", "yuv420p"), "avi": ("mjpeg", "yuvj420p"), "gif": ("gif", "rgb8"),
             "webm": ("libvpx-vp9", "yuv420p"), "mov": ("libx264", "yuv420p")}  # fmt: skip
    for ending, (codec, pixels) in kinds.items():
        encode(folder / f"digits.{ending}", frames, codec, pixels)
    for t, picture in enumerate(frames):
        write_image(folder / "images" / f"{t}.png", picture)
    encode(folder / "plain.mkv", frames, "libx264", "yuv420p")
    whole = (folder / "plain.mkv").read_bytes()
    (folder / "truncated.mkv").write_bytes(whole[: len(whole) // 2])
    fragmented = folder / "whole.mp4"
    with av.open(str(fragmented), "w", options={"movflags": "frag_keyframe+empty_moov"}) as container:
        stream = container.add_stream("libx264", rate=10, options={"g": "10"})
        stream.height, stream.width, stream.pix_fmt = 64, 64, "yuv420p"
        for picture in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24")))
        container.mux(stream.encode())
    whole = fragmented.read_bytes()
    (folder / "truncated.mp4").write_bytes(whole[: len(whole) // 2])
    with video_out(folder / "faststart.mp4", 10) as write:
        for picture in frames:
            write(picture)
    whole = (folder / "faststart.mp4").read_bytes()
    (folder / "truncated_faststart.mp4").write_bytes(whole[: 2 * len(whole) // 3])
    whole = (folder / "digits.mp4").read_bytes()
    (folder / "no_index.mp4").write_bytes(whole[: len(whole) // 2])
    (folder / "text.mp4").write_text("This is no video.\n" * 100)
    (folder / "empty.mp4").write_bytes(b"")
    (folder / "absurd.png").write_bytes(png_header(100_000))
    (folder / "absurd.gif").write_bytes(b"GIF89a" + struct.pack("<HH", 65535, 65535) + b"\x00\x00\x00;")
    with video_out(folder / "long.mp4", 30) as write:
        for clip in range(-(-long // 500)):
            for picture in digits(500, clip)[: long - 500 * clip]:
                write(picture)
    names = ["digits.mp4", "digits.avi", "digits.gif", "digits.webm", "digits.mov", "images", "truncated.mp4",
             "truncated_faststart.mp4", "truncated.mkv", "no_index.mp4", "text.mp4", "empty.mp4", "absurd.png",
             "absurd.gif", "nothing_here.mp4", "camera:0", "-", "long.mp4"]  # fmt: skip
    return [(name, folder / name) for name in names]


def track(name: str, path: Path, out: Path) -> tuple[int, float, str, list[float]]:
    """Exit code, seconds, the last words, and the resident memory in MB, sampled twice a second."""
    spec, feed = (name, None) if name == "camera:0" else (str(path), None)
    words = [sys.executable, "-m", "loci", "track", spec, "--weights", "moving_mnist", "--out", str(out)]
    if name == "-":
        words[4] = "-"
        feed = (path.parent / "digits.webm").open("rb")
    begin = time.perf_counter()
    process = subprocess.Popen(words, stdin=feed, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    memory = []
    while process.poll() is None:
        try:
            memory.append(psutil.Process(process.pid).memory_info().rss / 1e6)
        except psutil.NoSuchProcess:
            break
        time.sleep(0.5)
    said = process.communicate()[0]
    return process.returncode, time.perf_counter() - begin, said, memory


def main(folder: str, long: str = "20000") -> None:
    for name, path in make(Path(folder), int(long)):
        code, seconds, said, memory = track(name, path, Path(folder) / "out" / name.replace(":", "_"))
        lines = [line for line in said.splitlines() if re.search(r"frames, |warning|loci track:", line)]
        quarter = len(memory) // 4
        middle = (
            f"RSS MB by quarter {[round(float(np.median(memory[quarter * n :][: max(1, quarter)]))) for n in range(4)]}"
        )
        print(f"{name}: exit {code}, {seconds:.1f} s, {middle if name == 'long.mp4' else f'{max(memory):.0f} MB'}")
        print("    " + "\n    ".join(line.replace(folder, "") for line in lines))
        if name == "long.mp4":
            print("    " + next(line for line in said.splitlines() if line.startswith("speed")))


if __name__ == "__main__":
    main(*sys.argv[1:])
