"""Take the pictures of the web page: a session worked in, its times, what was learned, in light and dark.

    .venv/bin/python docs/pictures.py            writes docs/images/web-*.png

It needs Chromium. `whet serve` runs with the practice model, a scripted stand-in; a headless browser begins
a session, answers its questions, and is looked at in two widths. The program that a test drives is the one
that is pictured here.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
sys.path.insert(0, str(ROOT))

from tests.browser.chromium import Browser, Page  # noqa: E402 - from the checkout
from tests.serve.conftest import Api  # noqa: E402
from tests.serve.test_board import remember  # noqa: E402

from whet_lab.practice.ask import PracticeCall  # noqa: E402
from whet_lab.practice.script import ScriptedReply  # noqa: E402
from whet_lab.practice.server import PracticeServer  # noqa: E402

DESK, PHONE = (1200, 800, False), (390, 844, True)
BOTH = {"light": (DESK, False), "dark": (DESK, True)}
PHONES = {"phone-light": (PHONE, False), "phone-dark": (PHONE, True)}
BEFORE, AFTER = "int(cents * (100 - percent) / 100)", "(cents * (100 - percent) + 50) // 100"
PROGRAM = (
    f'def discounted(cents, percent):\n    """Give the price after a discount."""\n    return {BEFORE}\n'
)
DIFF = (
    "--- a/price.py\n+++ b/price.py\n@@ -1,3 +1,3 @@\n def discounted(cents, percent):\n"
    f'     """Give the price after a discount."""\n-    return {BEFORE}\n+    return {AFTER}\n'
)
CHECK = 'python3 -c "from price import discounted; print(discounted(995, 10))"'
END = """Mended. **Halves go up** now:

- `discounted(995, 10)` gives 896, it gave 895
- nothing else in the file was changed

```python
return (cents * (100 - percent) + 50) // 100
```
"""
STORY = (
    ScriptedReply(
        "I look at the file first.", tool_calls=(PracticeCall("read_file", '{"path":"price.py"}', "c0"),)
    ),
    ScriptedReply(
        "`int()` cuts off what is after the point.",
        tool_calls=(PracticeCall("patch", json.dumps({"path": "price.py", "diff": DIFF}), "c1"),),
    ),
    ScriptedReply(tool_calls=(PracticeCall("terminal", json.dumps({"command": CHECK}), "c2"),)),
    ScriptedReply(END),
)


def take(page: Page, name: str, shapes: dict[str, tuple[tuple[int, int, bool], bool]], top: bool) -> None:
    """Save what the page shows in some shapes and colours; at its top, or at its end."""
    for suffix, ((width, height, is_phone), is_dark) in shapes.items():
        page.shape(width, height, is_phone=is_phone, is_dark=is_dark)
        place = "0" if top else "document.documentElement.scrollHeight"
        wait = f"requestAnimationFrame(() => {{ scrollTo(0, {place}); setTimeout(done, 300); }})"
        page.eval(f"new Promise(done => {wait})")
        page.shot(IMAGES / f"web-{name}-{suffix}.png")


def start_board(page: Page, folder: Path, model: PracticeServer, *, shots: bool = False) -> tuple[Api, str]:
    """Start the page in `folder`, log in, and play the story; return the page and its session's path. With
    `shots`, take pictures of the question and of the end."""
    board = Api(folder, model, mode="ask", web=True, answer_wait_s=600.0)
    (board.workspace / "price.py").write_text(PROGRAM)
    remember(board, "Prices are in cents; halves go up.")
    remember(board, "The tests of `orders` run with `python3 -m unittest -q`.")
    board.say(*STORY)
    page.open(board.url)
    page.click("#token")
    page.type(board.token)
    with page.loading():
        page.key("Enter")
    page.eval("document.querySelector('.composer textarea').focus()")
    page.type("Prices with halves come out a cent too low. Mend it.")
    with page.loading():
        page.click(".composer .send")
    page.until("document.querySelector('#asked .added')")
    if shots:
        take(page, "question", {**BOTH, **PHONES}, top=False)
    page.click("#asked button[value=once]")
    page.until("document.querySelector('#asked')?.innerText.includes('from price')")
    page.click("#asked button[value=once]")
    page.until("document.querySelector('.code') && !document.querySelector('#state').dataset.running")
    if shots:
        take(page, "session", {**BOTH, **PHONES}, top=False)
    return board, str(page.eval("location.pathname"))


def main() -> None:
    """Play the story and take the pictures."""
    with PracticeServer() as model, tempfile.TemporaryDirectory() as folder:
        browser = Browser(Path(folder))
        with browser.page() as page:
            board, path = start_board(page, Path(folder), model, shots=True)
            light, dark = {"light": (DESK, False)}, {"dark": (DESK, True)}
            for name, where, shapes in (
                ("time", f"{path}/time", BOTH),
                ("learned", "/learning/timeline", BOTH),
                ("change", "/learning/1", light),
                ("replay", f"{path}?at=5", dark),
                ("costs", "/costs", dark),
                ("now", "/", {**light, "phone-light": (PHONE, False)}),
            ):
                page.open(board.url + where)
                take(page, name, shapes, top=True)
        browser.close()
        board.close()


if __name__ == "__main__":
    main()
