"""Tables in html: the texts of the table, whatever they are."""

from __future__ import annotations

from html.parser import HTMLParser

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
    across, down = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    levels = draw(st.integers(1, 2))
    heads = tuple(tuple(draw(FULL) for _ in range(levels)) for _ in range(across))
    rows = tuple(
        TableRow((draw(FULL),), tuple(TextCell(draw(FULL)) for _ in range(across)))
        for _ in range(down)
    )
    return TextTable(draw(FULL), (draw(FULL),), heads, rows, (draw(FULL),))


def texts_of(table: TextTable) -> list[list[str]]:
    """What its body says, row by row."""
    return [[plain(text) for text in (*r.heads, *(c.number for c in r.cells))] for r in table.rows]


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
    assert found.rows == texts_of(table)
    assert found.tags <= {"table", "caption", "thead", "tbody", "tr", "th", "td", "ol", "li"}


def test_a_number_is_written_with_its_spread_in_its_unit():
    percent, count = number_form("accuracy"), number_form("rounds")
    assert number_text(percent, 0.97123, 0.0034) == "97.12 ± 0.34"
    assert number_text(percent, 0.5, float("nan")) == "50.00"
    assert number_text(count, 1234.0, 0.0) == "1,234 ± 0"
    assert number_text(count, 18.4, float("nan")) == "18.4"
    assert number_text(number_form("seconds"), 0.5, 0.25) == "0.500 ± 0.250"


def small(cell: TextCell) -> TextTable:
    return TextTable("", ("m",), (("J = 5",),), (TableRow(("A",), (cell,), soft=True),), ("why",))


CELL = TextCell("50.00 ± 1.00", ("7 units",), "49.00", "reproduced", best=True, notes=(1,))


def test_a_cell_has_its_number_its_lines_its_marks_and_its_footnote():
    text = html(small(CELL))
    for part in (
        '<td class="best verdict-reproduced">50.00 ± 1.00<sup>1</sup><span>7 units</span>'
        "<span>printed 49.00: reproduced</span></td>",
        '<tr class="reference">',
        "<li>why</li>",
    ):
        assert part in text


def test_heads_that_are_alike_span_their_columns():
    heads = (("iid", "10"), ("iid", "50"), ("shards", "50"))
    table = TextTable("", ("C",), heads, (TableRow(("0",), (TextCell("1"),) * 3),))
    assert table.levels == [[("iid", 2), ("shards", 1)], [("10", 1), ("50", 1), ("50", 1)]]
    assert '<th scope="colgroup" colspan="2">iid</th>' in html(table)
