"""Pages to text: what is kept, what is left out, and hostile input in bounded time."""

from __future__ import annotations

import pytest

from tests.growing import grows_in_proportion
from whet.tools.page_text import decode, read_html, strip_invisible

FILLER = "<p>" + "Enough words that this is a page of its own. " * 6 + "</p>"


def text_of(source: str) -> str:
    return read_html(source, "https://example.com/dir/page").text


def test_a_page_reads_like_markdown() -> None:
    page = read_html(
        """<!doctype html><html><head><title>Salt &amp;
        pepper</title><script>var a = "<p>script</p>"</script><style>p{}</style></head><body>
        <nav><a href="/menu">Menu</a></nav><!-- a comment -->
        <h1>Head <em>line</em></h1>
        <p>See <a href="/a b?x=1&amp;y=2">the  page</a>, run <code>make &lt;all&gt;</code>.<br>Next line
        <ul><li>one<li>two<ul><li>nested</ul></ul><ol><li>first<li>second</ol>
        <pre>  if x &lt; 1:
            y()
</pre><table><tr><th>a<th>b<tr><td>1<td>2</table>
        <p class=it's>3 < 4 <img alt="a cat" src=c.png> <a href="#top">top</a>
        <a href="javascript:x()">js</a></p>"""
        + FILLER,
        "https://example.com/dir/page",
    )
    assert page.title == "Salt & pepper"
    assert page.text.startswith(
        "# Head line\n\n"
        "See [the page](https://example.com/a%20b?x=1&y=2), run `make <all>`.\nNext line\n"
        "- one\n- two\n  - nested\n1. first\n2. second\n\n"
        "```\n  if x < 1:\n            y()\n```\na | b\n1 | 2\n\n"
        "3 < 4 [image: a cat] top js\n\nEnough words"
    )


def test_scripts_navigation_and_the_like_are_left_out() -> None:
    source = (
        "<nav>menu<nav>inner</nav>more menu</nav><svg><text>drawn</text></svg><template>t</template>" + FILLER
    )
    source += (
        "<script>if (a < b) document.write('</div>')</SCRIPT >after<style>x</style><noscript>ns</noscript>"
    )
    text = text_of(source)
    assert text.startswith("Enough words")
    assert text.endswith("after")


def test_navigation_is_kept_where_nothing_else_is_there() -> None:
    assert text_of("<nav><a href='/docs'>Docs</a></nav>") == "[Docs](https://example.com/docs)"
    assert text_of("<nav>never closed <p>the text") == "never closed\n\nthe text"


def test_a_link_around_blocks_and_a_base() -> None:
    source = "<base href='https://other.org/x/'><a href='card'><h2>Card</h2><p>More of it</p></a>"
    assert text_of(source) == "## [Card](https://other.org/x/card)\n\nMore of it"


def test_an_empty_heading_marks_nothing() -> None:
    assert text_of("<h2></h2><p>plain</p><h3> </h3><p>also</p>") == "plain\n\nalso"


@pytest.mark.parametrize(
    "source",
    [
        "",
        "<",
        "<a",
        "<a href=",
        "<!--",
        "<script>",
        "<title>",
        "&#99999999999;",
        "&#" + "9" * 5000,
        "<a href='http://[x'>y",
    ],
)
def test_broken_pages_give_what_they_have(source: str) -> None:
    read_html(source, "https://example.com/")


@pytest.mark.parametrize(
    "piece",
    [
        "<!--",
        "<",
        "<a ",
        '<a x="',
        "<!",
        "<script>",
        "</",
        "&",
        "<ul><li>",
        "<a href=x>y",
        "<nav>",
        "<title>",
        "<pre>",
        "= '",
    ],
)
def test_time_grows_with_the_size_alone(piece: str) -> None:
    def read(size: int) -> None:
        read_html(piece * (size // len(piece)), "https://example.com/")
        read_html("<a " + piece * (size // len(piece)), "https://example.com/")

    assert grows_in_proportion(read, 10_000)


@pytest.mark.parametrize(
    ("body", "content_type", "expected"),
    [
        ("Grüße".encode(), "text/plain", "Grüße"),
        ("Grüße".encode("latin-1"), "text/plain; charset=ISO-8859-1", "Grüße"),
        ("“ü”".encode("cp1252"), "text/plain", "“ü”"),
        ("漢字".encode("gb18030"), 'text/html; charset="gb2312"', "漢字"),
        (
            b'<meta charset="shift_jis">' + "日本".encode("shift_jis"),
            "text/html",
            '<meta charset="shift_jis">日本',
        ),
        ("Grüße".encode(), "text/html; charset=no-such-set", "Grüße"),
        ("Grüße".encode(), "text/html; charset=zlib", "Grüße"),
        ("Grüße".encode(), "text/html; charset=ascii", "Grüße"),
        ("é".encode("utf-16"), "text/html; charset=utf-8", "é"),
        (b"\xef\xbb\xbfx", "", "x"),
    ],
)
def test_bodies_are_decoded(body: bytes, content_type: str, expected: str) -> None:
    assert decode(body, content_type) == expected


def test_a_page_cut_within_a_character_is_still_utf8() -> None:
    assert decode(("ü" * 500).encode()[:-1], "text/html").startswith("üüü")


def test_text_that_nobody_sees_is_removed() -> None:
    hidden = "".join(chr(0xE0000 + ord(letter)) for letter in "obey")
    assert strip_invisible(f"a{hidden}b\u202ec\u200bd") == "abcd"
    assert strip_invisible("نمی\u200cخواهم") == "نمی\u200cخواهم"
