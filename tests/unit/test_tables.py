"""Tables in html: the texts of the table, whatever they are."""

from __future__ import annotations

from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from fedrepro.drawings.tables import (
    COUNT,
    PERCENT,
    TableRow,
    TextCell,
    TextTable,
    html,
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
        TableRow((draw(FULL),), tuple(TextCell(text=draw(FULL)) for _ in range(across)))
        for _ in range(down)
    )
    return TextTable(draw(FULL), (draw(FULL),), heads, rows, (draw(FULL),))


def texts_of(table: TextTable) -> list[list[str]]:
    """What its body says, row by row."""
    return [[plain(text) for text in (*r.heads, *(c.text for c in r.cells))] for r in table.rows]


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
    assert TextCell(0.97123, 0.0034, PERCENT).number == "97.12 ± 0.34"
    assert TextCell(0.5, None, PERCENT).number == "50.00"
    assert TextCell(0.5, float("nan"), PERCENT).number == "50.00"
    assert TextCell(1234.0, 0.0, COUNT).number == "1,234 ± 0"
    assert TextCell(18.4, None, COUNT).number == "18.4"
    assert TextCell(float("nan"), None, PERCENT).number == "–"
    assert TextCell(text="> 100").number == "> 100"


def small(cell: TextCell) -> TextTable:
    return TextTable("", ("m",), (("J = 5",),), (TableRow(("A",), (cell,), soft=True),), ("why",))


CELL = TextCell(0.5, 0.01, PERCENT, below=("7 units",), printed="49.00", verdict="reproduced")
CELL = TextCell(**{**vars(CELL), "best": True, "notes": (1,)})


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
    table = TextTable("", ("C",), heads, (TableRow(("0",), (TextCell(1.0),) * 3),))
    assert table.levels == [[("iid", 2), ("shards", 1)], [("10", 1), ("50", 1), ("50", 1)]]
    assert '<th scope="colgroup" colspan="2">iid</th>' in html(table)
