"""What MkDocs needs to know of this checkout: three pages stand outside docs/, and source is not a page.

MkDocs loads this file as a hook (mkdocs.yml); `make docs` builds the site in .site.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
# The page of the site: where its text is.
OUTSIDE = {
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "results.md": "benchmarks/RESULTS.md",
}
PICTURES = {"results.svg": "benchmarks/results.svg"}
LINK = re.compile(r"(!?)\[([^\]\n]+)\]\(([^)\s#]+)((?:#[^)\s]*)?)\)")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that stand outside docs/."""
    # MkDocs is there only where the site is built.
    from mkdocs.structure.files import File  # noqa: PLC0415  # pyright: ignore[reportMissingImports]

    for name, source in (OUTSIDE | PICTURES).items():
        files.append(File.generated(config, name, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn the links of a checkout into those of the site, and list the decisions on their page."""
    if page.file.src_uri == "decisions/README.md":
        markdown = f"{markdown}\n{list_decisions()}"
    home = posixpath.dirname(OUTSIDE.get(page.file.src_uri, f"docs/{page.file.src_uri}"))
    return rewritten(markdown, home, posixpath.dirname(page.file.src_uri))


def list_decisions() -> str:
    """Return a link to each record by its title; in a checkout the file names say it."""
    records = sorted((ROOT / "docs" / "decisions").glob("0*.md"))
    titles = [path.read_text("utf-8").split("\n")[0].removeprefix("# ") for path in records]
    return "".join(f"- [{title}]({path.name})\n" for title, path in zip(titles, records, strict=True))


def rewritten(markdown: str, home: str, folder: str = "") -> str:
    """Turn each relative link of a page in `home`, which is in `folder` of the site, into one of the site."""
    pages = {source: name for name, source in (OUTSIDE | PICTURES).items()} | {"README.md": "index.md"}

    def link(found: re.Match[str]) -> str:
        mark, text, target, anchor = found.groups()
        if "://" in target:
            return found[0]
        path = posixpath.normpath(posixpath.join(home, target))
        inside = pages.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else "")
        if not inside:
            return text
        return f"{mark}[{text}]({posixpath.relpath(inside, folder or '.')}{anchor})"

    return LINK.sub(link, markdown)
