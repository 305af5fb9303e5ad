"""Render HTML from templates. All values are escaped, and an unknown name is an error."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import jinja2
from starlette.responses import HTMLResponse

from whet.visible import visible
from whet.web.assets import Assets


class SiteTemplates:
    """The templates of a site's package and the shared ones, with their filters.

    A site's package must have `site.html` (name, mark and menu, inserted into `base.html`), `login.html`
    (texts, inserted into `entry.html`), `site.css` and `site.js`. `bounce.html` and `problem.html` are
    shared.
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
        """Render a template as an answer that must not be cached."""
        return HTMLResponse(
            self.html(template, **values), status_code=status, headers={"cache-control": "no-store"}
        )
