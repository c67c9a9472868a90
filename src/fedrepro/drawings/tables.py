"""A table as data, and its three forms, each a template: html, markdown and LaTeX.

Every text of a table is plain. A form escapes each text that its template shows, so that the
table reads alike in all three, and no template can forget to.
"""

from __future__ import annotations

import html as entities
import itertools
import math
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment

NONE = "–"  # in place of a missing number


@dataclass(frozen=True)
class NumberForm:
    """The form of a number: a factor and its digits; None writes whole numbers without any."""

    factor: float = 1.0
    digits: int | None = None

    def text(self, value: float) -> str:
        scaled = self.factor * value
        digits = (0 if scaled == round(scaled) else 1) if self.digits is None else self.digits
        return f"{scaled:,.{digits}f}"


PERCENT = NumberForm(100.0, 2)
COUNT = NumberForm()


@dataclass(frozen=True)
class TextCell:
    """A number with its spread, or a text in its place.

    below: smaller lines under it. printed: the value in the paper, with its verdict. best: the best
    of its column or row. notes: numbers of footnotes, from 1.
    """

    value: float | None = None
    spread: float | None = None
    form: NumberForm = COUNT
    text: str = ""
    below: tuple[str, ...] = ()
    printed: str = ""
    verdict: str = ""
    best: bool = False
    notes: tuple[int, ...] = ()

    @property
    def number(self) -> str:
        """Return the text in place of a value, or the value with its spread."""
        if self.text or self.value is None or not math.isfinite(self.value):
            return self.text or NONE
        value = self.form.text(self.value)
        if self.spread is None or not math.isfinite(self.spread):
            return value
        return f"{value} ± {self.form.text(self.spread)}"

    @property
    def lines(self) -> tuple[str, ...]:
        """Return the lines under the number."""
        printed = f"printed {self.printed}: {self.verdict}" if self.verdict else self.printed
        return (*self.below, printed) if printed else self.below


@dataclass(frozen=True)
class TableRow:
    """A row: what it is called, one text for each column of heads, and its cells. soft: a bound."""

    heads: tuple[str, ...]
    cells: tuple[TextCell, ...]
    soft: bool = False


@dataclass(frozen=True)
class TextTable:
    """A table; `heads` has a text for each level of each column, `corner` names the rows' heads."""

    caption: str
    corner: tuple[str, ...]
    heads: tuple[tuple[str, ...], ...]
    rows: tuple[TableRow, ...]
    footnotes: tuple[str, ...] = ()

    @property
    def levels(self) -> list[list[tuple[str, int]]]:
        """Return each level of heads as (text, columns it spans); equal neighbours are one."""
        levels = []
        for depth in range(max((len(head) for head in self.heads), default=0)):
            # a text spans no further than the one above it
            runs = itertools.groupby(head[: depth + 1] for head in self.heads)
            levels.append([(above[depth], len(list(run))) for above, run in runs])
        return levels


def plain(text: str) -> str:
    """Return the text on one line, without control characters."""
    signs = (
        " " if unicodedata.category(character) in ("Cc", "Zl", "Zp") else character
        for character in text
    )
    return " ".join("".join(signs).split())


MARKED = re.compile(r"([\\`*_\[\]<>|~&$])")
BEGINS = re.compile(r"^(\d*)([#+\-=.)])")  # what would make a list or a heading of a paragraph
TEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "_": r"\_",
    "%": r"\%",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "'": r"\textquotesingle{}",
    "`": r"\textasciigrave{}",
    # an option, or a star, of the line break before them
    "[": "{[}",
    "]": "{]}",
    "*": "{*}",
    "-": "-{}",  # two of them would be a dash
    "–": r"\textendash{}",
    "—": r"\textemdash{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "²": r"$^2$",
    "³": r"$^3$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "∞": r"$\infty$",
    "−": r"$-$",
    "…": r"\ldots{}",
    "\u00a0": "~",
}
GREEK = "alpha beta gamma delta epsilon eta theta kappa lambda mu nu pi rho sigma tau phi psi omega"
TEX |= {
    unicodedata.lookup(f"GREEK SMALL LETTER {'LAMDA' if name == 'lambda' else name.upper()}"): (
        rf"$\{name}$"
    )
    for name in GREEK.split()
}
TEX |= {chr(0x2080 + digit): f"$_{digit}$" for digit in range(10)}


def html_text(text: str) -> str:
    return entities.escape(plain(text), quote=True)


def markdown_text(text: str) -> str:
    return MARKED.sub(r"\\\1", plain(text))


def latex_text(text: str) -> str:
    return "".join(TEX.get(character, character) for character in plain(text))


def environment(escape: Callable[[str], str], *packages: str) -> Environment:
    """Load the templates of these packages, whose every text goes through `escape`.

    Text that is marked up already (`Markup`) stays as it is.
    """
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    def escaped(value: Any) -> Any:
        return Markup(escape(value)) if type(value) is str else value

    return Environment(
        loader=ChoiceLoader([PackageLoader(package) for package in packages]),
        autoescape=True,
        finalize=escaped,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


@cache
def _form(escape: Callable[[str], str]) -> Environment:
    return environment(escape, "fedrepro.drawings")


def html(table: TextTable) -> str:
    """Return a fragment: one <table>, and a list of footnotes if there are any."""
    return _form(html_text).get_template("table.html").render(table=table)


def markdown(table: TextTable) -> str:
    """Return a table as GitHub reads it, with the caption above and footnotes below."""
    from markupsafe import Markup

    def paragraph(text: str) -> Markup:
        return Markup(BEGINS.sub(r"\1\\\2", markdown_text(text)))

    heads = [", ".join(filter(None, head)) for head in table.heads]
    template = _form(markdown_text).get_template("table.md")
    return template.render(table=table, heads=heads, paragraph=paragraph)


def latex(table: TextTable) -> str:
    """Return a tabular that needs no package, with footnotes below it."""
    comment = plain(table.caption)
    return _form(latex_text).get_template("table.tex").render(table=table, comment=comment)
