"""The part of CPython's own module that the sandbox's launcher uses: `signal` takes 3 ms to import."""

from collections.abc import Callable
from types import FrameType

SIG_DFL: int
SIGCHLD: int
SIGKILL: int
SIGPIPE: int
SIGTERM: int
SIGXFSZ: int

def signal(number: int, handler: Callable[[int, FrameType | None], object] | int, /) -> object: ...
def set_wakeup_fd(fd: int, /, *, warn_on_full_buffer: bool = ...) -> int: ...
