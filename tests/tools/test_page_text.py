"""Pages to text: what is kept, what is left out, and hostile input in bounded time."""

from __future__ import annotations

import pytest

from tests.growing import grows_in_proportion
from tests.support import each
from whet.tools.page_charset import decode_page
from whet.tools.page_text import PageText, read_html, strip_invisible

FILLER = "<p>" + "Enough words that this is a page of its own. " * 6 + "</p>"


def decode(body: bytes, content_type: str) -> str:
    return decode_page(body, content_type).text


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
    before = "<nav>menu<nav>inner</nav>more menu</nav><svg><text>drawn</text></svg><template>t</template>"
    script = "<script>if (a < b) document.write('</div>')</SCRIPT >"
    text = text_of(f"{before}{FILLER}{script}after<style>x</style><noscript>ns</noscript>")
    assert text.startswith("Enough words") and text.endswith("after")


@each(
    ("source", "expected"),
    [
        ("<ol><li><p>a</p><li><p>b</p></ol>", "1. a\n2. b"),
        ("<ol><li>a</ol><li>b", "1. a\n- b"),
        ("a" + "<ul>" * 13 + "<li>b", "a\n" + " " * 20 + "- b"),
        ("<ul><li>a</ul></ul><p>b", "- a\n\nb"),
        ("<p>one<li>two</li>three", "one\n- two\nthree"),
        ("<ul><li>a<ol><li>b<li>c</ol><li>d", "- a\n  1. b\n  2. c\n- d"),
        ("<h2><div></div>a</h2><li></li><p>b", "## a\nb"),
        ("<svg/>a<svg>b<svg>c</svg>d</svg>e<nav/>f", "aef"),
        ("x <button>b</button><select><option>c</select>y", "x y"),
        ("a<br> bb <b> c</b>d<p>  e\n\n f", "a\nbb cd\n\ne f"),
        ("<tr><td>a<td><td>c</tr><tr><th>x</table>after", "a |  | c\nx\n\nafter"),
        ("<tr><td>a</tr>b", "a\nb"),
        ("<pre>\n\n  a \n\n b\n</pre>c", "```\n  a\n\n b\n```\n\nc"),
        ("<pre> \n</pre>c</pre>d", "cd"),
        ("a<pre>b</pre>", "a\n\n```\nb\n```"),
        ("<pre>a<pre>b</pre>c  d</pre>e  f", "```\na\n```\n\n```\nb\n```\n\n```\nc  d\n```\n\ne f"),
        ("<h2>a</h2>b<h3>c<li>d", "## a\n\nb\n\n### c\n- d"),
        (f"<img alt='{'x' * 250}'><img alt=' '><img src=y>", f"[image: {'x' * 200}]"),
        ("<h2></h2><p>plain</p><h3> </h3><p>also</p>", "plain\n\nalso"),
        ("a<script>b<p>c", "a"),
        ("a<style>b</style >c<!-- d", "ac"),
    ],
)
def test_blocks_lists_tables_and_code_are_written_as_markdown(source: str, expected: str) -> None:
    assert text_of(source) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("<a href=x>one<a href=y>two</a> three", "[one](https://e.org/d/x)[two](https://e.org/d/y) three"),
        ("<a href=mailto:a@b.c>m</a> <a href=ftp://x>f</a>", "[m](mailto:a@b.c) f"),
        ("<a href=x><div>one</div>two</a>three", "[one](https://e.org/d/x)\n\ntwothree"),
        ("see <a href=x><h2>it</h2></a>", "see\n\n## [it](https://e.org/d/x)"),
        ("<a href=x><h2>Big <b>news</b></h2></a>", "## [Big news](https://e.org/d/x)"),
        ("<a href=x><img src=icon.png></a>next", "next"),
        ("<pre><a href=x>l</a> <code>k</code></pre><code>m</code>", "```\nl k\n```\n\n`m`"),
        ("<a title=\"href='no'\" HREF='/q?a=1&amp;b=2'>n</a>", "[n](https://e.org/q?a=1&b=2)"),
        ("<base href=https://o.org/x/><a href=c><h2>C</h2><p>D</p></a>", "## [C](https://o.org/x/c)\n\nD"),
        ("<base href=/o/><base href='javascript:x'><a href=' z '>l</a>", "[l](https://e.org/o/z)"),
    ],
)
def test_a_link_is_written_at_its_own_text(source: str, expected: str) -> None:
    assert read_html(source, "https://e.org/d/page").text == expected


def test_the_first_title_is_the_pages() -> None:
    assert read_html("<title>a</title><title>b</title>c", "") == PageText("a", "c")
    assert read_html(f"<title>{'y' * 400}</title>c", "") == PageText("y" * 300, "c")
    assert read_html("<title>never <b", "") == PageText("never", "")
    assert read_html("<title>never closed", "") == PageText("never closed", "")


def test_navigation_counts_where_the_rest_has_fewer_than_200_characters() -> None:
    assert text_of("<nav><a href='/docs'>Docs</a></nav>") == "[Docs](https://example.com/docs)"
    assert text_of("<nav>never closed <p>the text") == "never closed\n\nthe text"
    assert text_of("<nav>menu</nav>" + "x" * 200) == "x" * 200
    assert text_of("<nav>menu</nav>" + "x" * 199) == "menu" + "x" * 199
    assert text_of("<svg>drawn</svg>short") == "short"


@each(
    "source",
    ["", "<", "<a", "<a href=", "<!--", "<script>", "<title>", "&#99999999999;", "&#" + "9" * 5000,
     "<a href='http://[x'>y"],
)  # fmt: skip
def test_broken_pages_give_what_they_have(source: str) -> None:
    read_html(source, "https://example.com/")


@pytest.mark.fast_rows("<a href", "<!--", "&")
@pytest.mark.parametrize(
    "piece",
    ["<!--", "<", "<a ", '<a x="', "<!", "<script>", "</", "&", "<ul><li>", "<a href=x>y", "<nav>",
     "<title>", "<pre>", "= '"],
)  # fmt: skip
def test_time_grows_with_the_size_alone(piece: str) -> None:
    def read(size: int) -> None:
        read_html(piece * (size // len(piece)), "https://example.com/")
        read_html("<a " + piece * (size // len(piece)), "https://example.com/")

    assert grows_in_proportion(read, 2_500)


@pytest.mark.parametrize(
    ("body", "content_type", "expected"),
    [
        ("Grüße".encode(), "text/plain", "Grüße"),
        ("Grüße".encode("latin-1"), "text/plain; charset=ISO-8859-1", "Grüße"),
        ("“ü”".encode("cp1252"), "text/plain", "“ü”"),
        ("漢字".encode("gb18030"), 'text/html; charset="gb2312"', "漢字"),
        ("<meta charset=shift_jis>日本".encode("shift_jis"), "text/html", "<meta charset=shift_jis>日本"),
        ("Grüße".encode(), "text/html; charset=no-such-set", "Grüße"),
        ("Grüße".encode(), "text/html; charset=zlib", "Grüße"),
        ("Grüße".encode(), "text/html; charset=ascii", "Grüße"),
        (b"\\u0041", "text/html; charset=unicode_escape", "\\u0041"),
        (b"+AEE-", "text/html; charset=utf-7", "+AEE-"),
        (b"\xff", "text/html; charset=a\0b", "ÿ"),
        ("Жук".encode("koi8-r"), "text/html; charset=KOI8-R", "Жук"),
        ("é".encode("utf-16"), "text/html; charset=utf-8", "é"),
        (b"\xef\xbb\xbfx", "", "x"),
    ],
)
def test_bodies_are_decoded(body: bytes, content_type: str, expected: str) -> None:
    assert decode(body, content_type) == expected


JAPANESE = "日本語のページです。こんにちは世界。文字化けしないこと。"
CHINESE = "这是一个中文网页，内容不应乱码。股票行情"


@pytest.mark.parametrize(
    ("declaration", "charset", "content_type", "text"),
    [
        ('<?xml version="1.0" encoding="euc-jp"?><r>', "euc-jp", "application/xml", JAPANESE),
        ("<?xml version='1.0' encoding='GBK'?><rss>", "gbk", "application/rss+xml", CHINESE),
        ('@charset "shift_jis"; a::before {content: "', "shift_jis", "text/css", JAPANESE),
        ('<?xml version="1.0" encoding="utf-16"?><r>', "utf-8", "text/xml", CHINESE),
        ('<?xml version="1.0" encoding="gbk"?><r>', "utf-8", "text/xml; charset=utf-8", CHINESE),
        ("", "utf-32", "text/plain", CHINESE),
    ],
)
def test_a_charset_that_the_document_names_is_used(
    declaration: str, charset: str, content_type: str, text: str
) -> None:
    page = decode_page(f"{declaration}{text}</r>".encode(charset), content_type)
    assert text in page.text and page.note == ""


@pytest.mark.parametrize(
    ("charset", "text", "name"),
    [
        ("gbk", CHINESE, "GBK"),
        ("euc-jp", JAPANESE, "EUC-JP"),
        ("cp1251", "Это русская страница, кодировка важна", "Windows-1251"),
        ("cp1252", "café", "Windows-1252"),
        ("utf-16-le", f"<p>{CHINESE}</p>\n" + "Some words. " * 20, "UTF-16-LE"),
    ],
)
@pytest.mark.parametrize("content_type", ["text/html", "text/html; charset=utf-8"])
def test_a_charset_that_no_name_fits_is_guessed_and_the_guess_is_noted(
    charset: str, text: str, name: str, content_type: str
) -> None:
    page = decode_page(f"<html><p>{text}</p>{'<p>words</p>' * 2_000}\n".encode(charset), content_type)
    assert text in page.text
    assert page.note == f"not UTF-8, read as {name}, which is a guess: the page names no charset that fits"


def test_a_named_charset_holds_for_a_page_that_was_cut_or_has_a_bad_byte() -> None:
    body = ('<meta charset="gbk">' + CHINESE * 9).encode("gbk")
    assert decode_page(body[:-1], "text/html", is_cut=True).text.endswith(CHINESE[-5:-1])
    assert CHINESE in decode_page(body + b"\xff" + b" words", "text/html").text


def test_a_page_cut_within_a_character_is_still_utf8() -> None:
    assert decode(("ü" * 500).encode()[:-1], "text/html").startswith("üüü")


def test_a_few_bad_bytes_in_utf8_do_not_make_another_charset_of_it() -> None:
    assert decode(b"\xff" + "é".encode(), "") == "\ufffdé"
    bad = b"\xff\xff" + "é".encode()
    assert decode(bad + b"x" * 48, "") == "\ufffd\ufffdé" + "x" * 48
    assert decode(bad + b"x" * 47, "").startswith("ÿÿÃ©x")


def test_a_charset_is_looked_for_at_the_beginning_only() -> None:
    meta = b"<meta charset=latin-1>"
    assert decode(meta.rjust(4_096) + "é".encode(), "").endswith("Ã©")
    assert decode(meta.rjust(5_000) + "é".encode(), "").endswith("é")


def test_text_that_nobody_sees_is_removed() -> None:
    hidden = "".join(chr(0xE0000 + ord(letter)) for letter in "obey")
    assert strip_invisible(f"a{hidden}b\u202ec\u200bd") == "abcd"
    assert strip_invisible("نمی\u200cخواهم") == "نمی\u200cخواهم"
