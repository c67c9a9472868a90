"""A table as data, and the three ways to write it: html, markdown and LaTeX.

Every text of a table is plain: each writer escapes what means something to it, so that the same
table reads the same in all three.
"""

from __future__ import annotations

import html as entities
import itertools
import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

NONE = "–"  # where there is no number


@dataclass(frozen=True)
class NumberForm:
    """How a number is written: times a factor, with so many digits; None for whole if it is."""

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

    below: smaller lines under it. printed: what a paper printed, with its verdict. best: the best
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
        """The text that stands for a value; else the value, with its spread where there is one."""
        if self.text or self.value is None or not math.isfinite(self.value):
            return self.text or NONE
        value = self.form.text(self.value)
        if self.spread is None or not math.isfinite(self.spread):
            return value
        return f"{value} ± {self.form.text(self.spread)}"

    @property
    def lines(self) -> tuple[str, ...]:
        """What stands under the number."""
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
    """heads: of each column of cells, one text for each level; corner: of the rows' heads."""

    caption: str
    corner: tuple[str, ...]
    heads: tuple[tuple[str, ...], ...]
    rows: tuple[TableRow, ...]
    footnotes: tuple[str, ...] = ()

    @property
    def levels(self) -> list[list[tuple[str, int]]]:
        """Each level of heads as (text, columns it spans); neighbours of one text are one."""
        levels = []
        for depth in range(max((len(head) for head in self.heads), default=0)):
            # a text spans no further than the one above it
            runs = itertools.groupby(head[: depth + 1] for head in self.heads)
            levels.append([(above[depth], len(list(run))) for above, run in runs])
        return levels


def plain(text: str) -> str:
    """Text on one line, without characters that are no signs."""
    signs = (
        " " if unicodedata.category(character) in ("Cc", "Zl", "Zp") else character
        for character in text
    )
    return " ".join("".join(signs).split())


# --------------------------------------------------------------------------------------- html


def html(table: TextTable, classes: str = "numbers") -> str:
    """A fragment: one <table>, and a list of footnotes if there are such."""
    lines = [f'<table class="{html_text(classes)}">']
    if table.caption:
        lines.append(f"<caption>{html_text(table.caption)}</caption>")
    lines += ["<thead>", *_html_heads(table), "</thead>", "<tbody>"]
    for row in table.rows:
        kind = ' class="reference"' if row.soft else ""
        heads = "".join(f'<th scope="row">{html_text(head)}</th>' for head in row.heads)
        lines.append(f"<tr{kind}>{heads}{''.join(map(_html_cell, row.cells))}</tr>")
    lines += ["</tbody>", "</table>"]
    if table.footnotes:
        notes = "".join(f"<li>{html_text(note)}</li>" for note in table.footnotes)
        lines.append(f'<ol class="footnotes small">{notes}</ol>')
    return "\n".join(lines) + "\n"


def _html_heads(table: TextTable) -> list[str]:
    levels = table.levels
    rows = []
    for depth, level in enumerate(levels or [[]]):
        corner = "".join(
            f'<th scope="col" rowspan="{len(levels)}">{html_text(text)}</th>'
            if len(levels) > 1
            else f'<th scope="col">{html_text(text)}</th>'
            for text in (table.corner if depth == 0 else ())
        )
        heads = "".join(
            f'<th scope="colgroup" colspan="{span}">{html_text(text)}</th>'
            if span > 1
            else f'<th scope="col">{html_text(text)}</th>'
            for text, span in level
        )
        rows.append(f"<tr>{corner}{heads}</tr>")
    return rows


def _html_cell(cell: TextCell) -> str:
    kinds = ["best"] if cell.best else []
    word = cell.verdict.partition(",")[0]
    kinds += [f"verdict-{word.replace(' ', '-')}"] if word else []
    kind = f' class="{html_text(" ".join(kinds))}"' if kinds else ""
    notes = f"<sup>{', '.join(map(str, cell.notes))}</sup>" if cell.notes else ""
    below = "".join(f"<span>{html_text(line)}</span>" for line in cell.lines)
    return f"<td{kind}>{html_text(cell.number)}{notes}{below}</td>"


def html_text(text: str) -> str:
    return entities.escape(plain(text), quote=True)


# ----------------------------------------------------------------------------------- markdown

MARKED = re.compile(r"([\\`*_\[\]<>|~&$])")
BEGINS = re.compile(r"^(\d*)([#+\-=.)])")  # what would make a list or a heading of a paragraph


def markdown(table: TextTable) -> str:
    """A table as GitHub reads it, with the caption above and footnotes below."""
    corner = [markdown_text(text) for text in table.corner]
    heads = [markdown_text(", ".join(filter(None, head))) for head in table.heads]
    lines = [_piped([*corner, *heads])]
    lines.append(_piped([*("---" for _ in corner), *("---:" for _ in heads)]))
    for row in table.rows:
        row_heads = [markdown_text(head) for head in row.heads]
        lines.append(_piped([*row_heads, *map(_markdown_cell, row.cells)]))
    parts = [_paragraph(table.caption)] if table.caption else []
    parts.append("\n".join(lines))
    if table.footnotes:
        notes = (f"{at}. {_paragraph(note)}" for at, note in enumerate(table.footnotes, 1))
        parts.append("\n".join(notes))
    return "\n\n".join(parts) + "\n"


def _paragraph(text: str) -> str:
    return BEGINS.sub(r"\1\\\2", markdown_text(text))


def _piped(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _markdown_cell(cell: TextCell) -> str:
    number = markdown_text(cell.number)
    number = f"**{number}**" if cell.best else number
    notes = f"<sup>{', '.join(map(str, cell.notes))}</sup>" if cell.notes else ""
    return "<br>".join([f"{number}{notes}", *map(markdown_text, cell.lines)])


def markdown_text(text: str) -> str:
    return MARKED.sub(r"\\\1", plain(text))


# -------------------------------------------------------------------------------------- LaTeX

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


def latex(table: TextTable) -> str:
    """A tabular that needs no package; footnotes stand below it."""
    count = len(table.heads)
    lines = [rf"% {plain(table.caption)}"] if table.caption else []
    lines.append(rf"\begin{{tabular}}{{{'l' * len(table.corner)}{'r' * count}}}")
    lines.append(r"\hline")
    levels = table.levels or [[]]
    for depth, level in enumerate(levels):
        corner = table.corner if depth == len(levels) - 1 else ("",) * len(table.corner)
        spans = [_spanned(latex_text(text), span) for text, span in level]
        lines.append(_row([*map(latex_text, corner), *spans]))
    lines.append(r"\hline")
    for row in table.rows:
        lines.append(_row([*map(latex_text, row.heads), *map(_latex_cell, row.cells)]))
    lines += [r"\hline", r"\end{tabular}"]
    for at, note in enumerate(table.footnotes, 1):
        lines.append(rf"\par\noindent\textsuperscript{{{at}}} {latex_text(note)}")
    return "\n".join(lines) + "\n"


def _spanned(text: str, columns: int) -> str:
    return rf"\multicolumn{{{columns}}}{{c}}{{{text}}}" if columns > 1 else text


def _row(cells: Sequence[str]) -> str:
    return rf"{' & '.join(cells)} \\"


def _latex_cell(cell: TextCell) -> str:
    number = latex_text(cell.number)
    number = rf"\textbf{{{number}}}" if cell.best else number
    if cell.notes:
        number += rf"\textsuperscript{{{', '.join(map(str, cell.notes))}}}"
    if not cell.lines:
        return number
    below = (rf"\footnotesize {latex_text(line)}" for line in cell.lines)
    lines = r" \\ ".join([number, *below])
    return rf"\begin{{tabular}}[t]{{@{{}}r@{{}}}}{lines}\end{{tabular}}"


def latex_text(text: str) -> str:
    return "".join(TEX.get(character, character) for character in plain(text))
