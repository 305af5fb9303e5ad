"""A session as one HTML page: Markdown as elements, what anybody wrote as text."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from tests.cli.running import flags, invoke, run
from tests.moving.test_transcripts import PIXEL, lines, said
from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

ANSWER = """## Done

**Halves** go up <b>now</b>:

- `one`
- two

```py
x = 1 < 2
```

| a | b |
|---|---|
| 1 | 2 |
"""
PIXELS = b"\x89PNG\r\n\x1a\n" + bytes(20)


@pytest.mark.parametrize(
    ("kind", "pictures"),
    [
        (
            "html",
            [f'<img src="data:image/png;base64,{PIXEL}" alt="Image 1 of message {seq}">' for seq in (1, 3)],
        ),
        (
            "md",
            [f"![image/png][image {number} of s-1]\n\n" for number in (1, 2)]
            + [f"[image {number} of s-1]: data:image/png;base64,{PIXEL}\n" for number in (1, 2)],
        ),
    ],
)
def test_pictures_of_the_person_and_of_tools_are_exported(
    tmp_path: Path, kind: str, pictures: list[str]
) -> None:
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
    call = {"type": "tool_use", "id": "t1", "name": "Read", "input": {"file_path": "a.png"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [picture]}
    rows = [("user", [{"type": "text", "text": "look"}, picture]), ("assistant", [call]), ("user", [result])]
    path = lines(tmp_path / "s-1.jsonl", *(said(role, content) for role, content in rows))
    assert invoke("import", "claude-code", str(path)).exit_code == 0
    done = invoke("sessions", "export", "s-1", "--format", kind)
    assert done.exit_code == 0, done.output
    positions = [done.output.index(text) for text in pictures]
    assert positions == sorted(positions) and "```\n\n```" not in done.output


@pytest.mark.slow
def test_a_page_shows_the_answer_the_calls_and_the_image(tmp_path: Path) -> None:
    (tmp_path / "dot.png").write_bytes(PIXELS)
    (tmp_path / ".whet" / "commands").mkdir(parents=True)
    (tmp_path / ".whet" / "commands" / "look.md").write_text("Look at it: <script>alert(1)</script>")
    missing = PracticeCall("read_file", '{"path": "none.txt"}')
    script = [ScriptedReply("", tool_calls=(missing,)), ScriptedReply(ANSWER), ScriptedReply("Seen.")]
    with PracticeServer(script=script) as server:
        for asked in ("what is in @dot.png?", "/look"):
            code, _, said = run(["chat", "-q", asked, "--title", asked[:4], *flags(server)], tmp_path)
            assert code == 0, said
    pages: list[str] = []
    for title in ("what", "/loo"):
        code, page, said = run(["sessions", "export", title, "--format", "html"], tmp_path)
        assert code == 0, said
        pages.append(page)
    (tmp_path / "page.html.part").symlink_to(tmp_path / "outside")  # as a command may leave it
    code, _, said = run(["sessions", "export", "what", "--format", "html", "-o", "page.html"], tmp_path)
    assert code == 0, said
    assert (tmp_path / "page.html").read_text() == pages[0] and not (tmp_path / "outside").exists()
    first, second = pages
    assert '<p class="head h2">Done</p>' in first
    assert "<strong>Halves</strong> go up &lt;b&gt;now&lt;/b&gt;:" in first
    assert '<p class="item deep0"><span class="dot-mark">•</span><span><code>one</code></span></p>' in first
    assert "&lt; " in first and "<tr><td>1</td><td>2</td></tr>" in first
    assert "✗</span><b>read_file</b>" in first and "none.txt" in first
    assert f"data:image/png;base64,{base64.b64encode(PIXELS).decode()}" in first
    assert '<pre class="plain">/look</pre><details class="fold"><summary>Sent with it' in second
    for page in pages:
        assert "<script" not in page and "<button" not in page and "<form" not in page
        assert "http" not in page and "/sessions/" not in page
