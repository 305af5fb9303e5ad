"""Write a page as rows of text, as a person sees it: what stands beside each other stands in one row.

A word's column follows from its place in pixels, so that a row that wraps, moves, or is cut at the edge of
the screen changes the text. Fonts of other machines change it, too, if their letters are wider.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from tests.browser.chromium import Page

_COLUMN_PX, _ROW_PX = 8, 9
_REPLACE = """((changing) => {
  const replace = text => changing.reduce((t, [from, to]) => t.replace(RegExp(from, 'g'), to), text);
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walk.nextNode(); node; node = walk.nextNode()) {
    const text = replace(node.data);
    if (text !== node.data) node.data = text;
  }
  for (const field of document.querySelectorAll('input[type=text], input:not([type])'))
    field.value = replace(field.value);
})(%s)"""
# Each run of words on one line, with its place, its colours and its size; fields with what they hold.
READ_WORDS = """(() => {
  const words = [], styles = new Set(), width = innerWidth;
  const ground = element => {
    for (let e = element; e; e = e.parentElement) {
      const colour = getComputedStyle(e).backgroundColor;
      if (colour !== 'rgba(0, 0, 0, 0)' && colour !== 'transparent') return colour;
    }
    return 'none';
  };
  const add = (text, box, element) => {
    if (!text.trim() || box.width < 2 || box.height < 2) return;
    const style = getComputedStyle(element);
    if (style.visibility === 'hidden' || style.opacity === '0') return;
    const hit = box.top >= 0 && box.bottom <= innerHeight
      ? document.elementFromPoint(Math.max(0, box.left + 1), (box.top + box.bottom) / 2) : element;
    if (box.left < width && hit && !(element.contains(hit) || hit.contains(element))) return;
    styles.add(`${style.color} on ${ground(element)}`);
    words.push({text: text.trim(), x: box.left, y: (box.top + box.bottom) / 2, cut: box.right > width + 1});
  };
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walk.nextNode(); node; node = walk.nextNode()) {
    const element = node.parentElement;
    if (!element.checkVisibility() || element.closest('script, style, option, .spoken')) continue;
    let line = null;
    for (const match of node.data.matchAll(/\\S+/g)) {
      const range = document.createRange();
      range.setStart(node, match.index);
      range.setEnd(node, match.index + match[0].length);
      const box = range.getBoundingClientRect();
      if (line && Math.abs(line.box.top - box.top) < 4) { line.text += ' ' + match[0]; continue; }
      if (line) add(line.text, line.box, element);
      line = {text: match[0], box};
    }
    if (line) add(line.text, line.box, element);
  }
  for (const field of document.querySelectorAll('input:not([type=hidden]), textarea, select')) {
    if (!field.checkVisibility() || field.closest('.spoken')) continue;
    const chosen = field.tagName === 'SELECT' ? field.selectedOptions[0]?.text : field.value;
    const mark = field.type === 'checkbox' || field.type === 'radio' ? (field.checked ? 'x' : ' ') : null;
    add(`[${mark ?? (chosen || field.placeholder)}]`, field.getBoundingClientRect(), field);
  }
  return {words, styles: [...styles], wide: document.documentElement.scrollWidth > width};
})()"""


def read_page(page: Page, changing: Sequence[tuple[str, str]]) -> str:
    """Return what a page shows as rows of text, then the colours of its text, and whether it is too wide.

    `changing` are patterns of what differs between runs, and what stands for it, in JavaScript's syntax. They
    are replaced on the page itself, so that its rows wrap in the same places.
    """
    page.eval(_REPLACE % json.dumps(changing))
    seen: dict[str, Any] = page.eval(READ_WORDS)
    rows: list[list[dict[str, Any]]] = []
    for word in sorted(seen["words"], key=lambda word: (word["y"], word["x"])):
        if not rows or word["y"] - rows[-1][0]["y"] > _ROW_PX:
            rows.append([])
        rows[-1].append(word)
    colours = sorted(re.sub(r"rgba?\(([^)]*)\)", _to_hex, style) for style in seen["styles"])
    is_wide = "wider than the screen\n" if seen["wide"] else ""
    return "\n".join(map(_write_row, rows)) + f"\n\n{is_wide}colours: {', '.join(colours)}\n"


def _write_row(words: list[dict[str, Any]]) -> str:
    row = ""
    for word in sorted(words, key=lambda word: word["x"]):
        gap = round(word["x"] / _COLUMN_PX) - len(row)
        row += " " * max(gap, 1 if row else 0) + word["text"] + (" (cut)" if word["cut"] else "")
    return row


def _to_hex(match: re.Match[str]) -> str:
    red, green, blue, *alpha = match[1].split(",")
    opacity = f"/{float(alpha[0]):.2g}" if alpha else ""
    return f"#{int(red):02x}{int(green):02x}{int(blue):02x}{opacity}"
