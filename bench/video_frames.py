"""A video's frames as images, where OpenCV is all there is to read it with.

python3 bench/video_frames.py vtest.avi FOLDER
"""

import sys
from pathlib import Path

import cv2


def main():
    video, folder = cv2.VideoCapture(sys.argv[1]), Path(sys.argv[2])
    folder.mkdir(parents=True)
    count = 0
    while True:
        there, frame = video.read()
        if not there:
            break
        cv2.imwrite(str(folder / f"{count:06}.jpg"), frame, [cv2.IMWRITE_JPEG_QUALITY, 98])
        count += 1
    print(f"{count} frames")
    return 0 if count else 1


if __name__ == "__main__":
    sys.exit(main())
