"""HTML from templates: everything is escaped, an unknown name is an error, and answers are never cached."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import jinja2
from starlette.responses import HTMLResponse

from whet.visible import visible
from whet.web.assets import Assets


class SiteTemplates:
    """The templates of a site's package in addition to the shared ones, and the filters that all may use.

    A site has `site.html` (name, mark and menu within `base.html`), `login.html` (its words within
    `entry.html`), `site.css` and `site.js`; `bounce.html` and `problem.html` are shared.
    """

    def __init__(
        self, package: str, assets: Assets, filters: Mapping[str, Callable[..., object]] | None = None
    ) -> None:
        self._environment = jinja2.Environment(
            loader=jinja2.ChoiceLoader((jinja2.PackageLoader(package), jinja2.PackageLoader("whet.web"))),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._environment.filters.update({"asset": assets.url, "text": visible, **(filters or {})})

    def html(self, template: str, /, **values: object) -> str:
        """Render a template."""
        return self._environment.get_template(template).render(values)

    def answer(self, template: str, /, status: int = 200, **values: object) -> HTMLResponse:
        """Render a template as an answer that must not be stored."""
        return HTMLResponse(
            self.html(template, **values), status_code=status, headers={"cache-control": "no-store"}
        )
