"""Read an image from the system's clipboard, with wl-paste, xclip or pngpaste."""

from __future__ import annotations

import os
import shutil
import subprocess

from whet.contract.errors import NotFound

_LIMIT_S = 5.0
_PNG = b"\x89PNG\r\n\x1a\n"
# The environment variable that a program needs to find its display, and the command that writes the
# clipboard's image to its output.
_READERS = (
    ("WAYLAND_DISPLAY", "wl-paste --type image/png"),
    ("DISPLAY", "xclip -selection clipboard -target image/png -out"),
    ("", "pngpaste -"),
)


def read_image() -> bytes:
    """Return the clipboard's image as PNG. Blocks for some milliseconds.

    Raises NotFound if there is no image or no program that reads images.
    """
    readers = [command.split() for variable, command in _READERS if not variable or os.environ.get(variable)]
    readers = [command for command in readers if shutil.which(command[0])]
    if not readers:
        raise NotFound(
            "no program here reads images from the clipboard",
            hint="install wl-clipboard, xclip or pngpaste, or give the image's path: @shot.png",
        )
    try:
        process = subprocess.run(readers[0], capture_output=True, timeout=_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotFound(f"{readers[0][0]} does not answer", hint="give the image's path: @shot.png") from error
    if not process.stdout.startswith(_PNG):
        raise NotFound(
            "there is no image on the clipboard", hint="text is pasted with the terminal's own key"
        )
    return process.stdout
