"""Pages from templates: markdown with parts of html, in which every text is escaped."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from fedrepro.drawings.tables import environment, html_text
from fedrepro.record.site.verdict_styles import UNKNOWN, slug

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


@cache
def _templates() -> Environment:
    made = environment(html_text, "fedrepro.record.site", "fedrepro.drawings")
    made.globals |= {"slug": slug, "unknown": UNKNOWN}
    return made


def page(template: str, *, up: str = "", **given: Any) -> str:
    """Render a page, or a part of one; `up` leads from its folder to the root of the site."""
    return _templates().get_template(template).render(up=up, **given)


def marked(text: str) -> Markup:
    """Mark text as markdown, or html, that needs no escape."""
    from markupsafe import Markup

    return Markup(text)
