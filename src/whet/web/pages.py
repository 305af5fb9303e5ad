"""HTML from templates: everything is escaped, an unknown name is an error, nothing is kept by caches."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import jinja2
from starlette.responses import HTMLResponse

from whet.web.assets import Assets


class Pages:
    """The templates of one package's `templates` folder, and what all of them may use."""

    def __init__(
        self, package: str, assets: Assets, filters: Mapping[str, Callable[..., object]] | None = None
    ) -> None:
        self._environment = jinja2.Environment(
            loader=jinja2.PackageLoader(package),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._environment.filters.update({"asset": assets.url, **(filters or {})})

    def html(self, template: str, /, **values: object) -> str:
        """Fill a template."""
        return self._environment.get_template(template).render(values)

    def answer(self, template: str, /, status: int = 200, **values: object) -> HTMLResponse:
        """Fill a template as an answer that nobody may keep."""
        return HTMLResponse(
            self.html(template, **values), status_code=status, headers={"cache-control": "no-store"}
        )
