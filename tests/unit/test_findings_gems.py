"""What docs/findings/gems.md says of the paper, the data and the recorded runs is so."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from mirror import needs_mirror
from test_real_data import ham_table

from fedrepro.numbers.printed import SETTING, read_published

ROOT = Path(__file__).parents[2]
FLAT = " ".join((ROOT / "docs/findings/gems.md").read_text().split())
PRINTED = read_published(ROOT / "config/published/gems.csv")
CELLS = [v for v in PRINTED if v.exhibit.startswith("table-") and v.metric != SETTING]


def test_what_is_said_of_the_printed_tables_is_so():
    quantities = [value for value in CELLS if not value.again]
    assert f"print {len(CELLS)} numbers of {len(quantities)} quantities" in FLAT
    spreads = [v.note for v in CELLS if "has a spread of" in v.note]
    assert Counter(note.rpartition(" ")[2] for note in spreads) == {"0.007": 3, "0.006": 3}


def test_the_mean_over_all_cases_is_that_of_the_printed_tables():
    tables = [v for v in CELLS if v.exhibit.startswith(("table-1-", "table-2-"))]
    of = {name: [v.value for v in tables if v.method == name] for name in ("GEMS", "Local")}
    assert len(of["GEMS"]) == 6
    gain = 100 * (sum(of["GEMS"]) - sum(of["Local"])) / 6
    assert f"is {gain:.2f} points above local models" in FLAT


def test_what_is_printed_for_gems_is_below_the_average_in_three_rows_of_table_5():
    rows = [v for v in CELLS if v.exhibit.startswith("table-5-")]
    at = {(v.exhibit, v.cell["case"], v.method): v.value for v in rows}
    below = [key for key in at if key[2] == "GEMS" and at[key] < at[(*key[:2], "Averaged")]]
    assert len(below) == 3
    assert "above what is printed for GEMS in three of its rows" in FLAT


@needs_mirror
def test_figure_5_is_a_count_of_the_photographs():
    counts = Counter(row["dx"] for row in ham_table())
    numbers = [f"{counts[name]:,}" for name in sorted(counts)] + [f"{counts.total():,}"]
    assert f"| {' | '.join([*sorted(counts), 'all'])} |" in FLAT
    assert f"| {' | '.join(numbers)} |" in FLAT
    share = 100 * max(counts.values()) / counts.total()
    assert f"The largest class has {share:.1f} % of them" in FLAT
