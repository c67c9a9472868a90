"""Tables in html: the texts of the table, whatever they are."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrepro.drawings.tables import (
    TableRow,
    TextCell,
    TextTable,
    html,
    number_form,
    number_text,
    plain,
)

FULL = st.text(max_size=20).filter(lambda text: bool(plain(text)))


@st.composite
def tables(draw) -> TextTable:
    """A table of any texts, of any form."""
    across, down, levels = (draw(st.integers(1, most)) for most in (3, 3, 2))
    heads = tuple(tuple(draw(FULL) for _ in range(levels)) for _ in range(across))
    rows = tuple(
        TableRow((draw(FULL),), tuple(TextCell(draw(FULL)) for _ in range(across)))
        for _ in range(down)
    )
    return TextTable(draw(FULL), (draw(FULL),), heads, rows, (draw(FULL),))


class Body(HTMLParser):
    """Cells of the body, row by row, and every tag."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.tags: set[str] = set()
        self.inside = False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.inside = self.inside or tag == "tbody"
        if self.inside and tag == "tr":
            self.rows.append([])
        if self.inside and tag in ("th", "td"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        self.inside = self.inside and tag != "tbody"

    def handle_data(self, data):
        if self.inside and data != "\n":
            self.rows[-1][-1] += data


@given(tables())
def test_html_says_the_texts_and_nothing_else(table):
    found = Body(html(table))
    texts = ((*row.heads, *(cell.number for cell in row.cells)) for row in table.rows)
    assert found.rows == [[plain(text) for text in row] for row in texts]
    assert found.tags <= {"table", "caption", "thead", "tbody", "tr", "th", "td", "ol", "li"}


@pytest.mark.parametrize(
    ("metric", "mean", "sd", "text"),
    [
        ("accuracy", 0.97123, 0.0034, "97.12 ± 0.34"),
        ("accuracy", 0.5, float("nan"), "50.00"),
        ("rounds", 1234.0, 0.0, "1,234 ± 0"),
        ("rounds", 18.4, float("nan"), "18.4"),
        ("seconds", 0.5, 0.25, "0.500 ± 0.250"),
    ],
)
def test_a_number_is_written_with_its_spread_in_its_unit(metric, mean, sd, text):
    assert number_text(number_form(metric), mean, sd) == text


def test_a_cell_has_its_number_lines_marks_and_footnote_and_alike_heads_span_columns():
    cell = TextCell("50.00 ± 1.00", ("7 units",), "49.00", "reproduced", best=True, notes=(1,))
    rows = (TableRow(("A",), (cell,), soft=True),)
    text = html(TextTable("", ("m",), (("J = 5",),), rows, ("why",)))
    for part in (
        '<td class="best verdict-reproduced">50.00 ± 1.00<sup>1</sup><span>7 units</span>'
        "<span>printed 49.00: reproduced</span></td>",
        '<tr class="reference">',
        "<li>why</li>",
    ):
        assert part in text
    heads = (("iid", "10"), ("iid", "50"), ("shards", "50"))
    table = TextTable("", ("C",), heads, (TableRow(("0",), (TextCell("1"),) * 3),))
    assert table.levels == [[("iid", 2), ("shards", 1)], [("10", 1), ("50", 1), ("50", 1)]]
    assert '<th scope="colgroup" colspan="2">iid</th>' in html(table)
