"""What cells of pages say of a printed value: its word, and the sentences that go with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedrepro.core.metrics import all_metrics
from fedrepro.drawings.layout import form_of
from fedrepro.drawings.tables import TextCell
from fedrepro.site.verdicts import Word, verdict_of, word_of_value
from fedrepro.verdicts.counted import NO_PLACE, reasons, word_of
from fedrepro.verdicts.published import APART


@dataclass(frozen=True)
class JudgedCell:
    """A printed value as a page shows it. name: its word; more: what is to be known of it."""

    name: str
    word: Word
    more: str


def judged(cell: TextCell, notes: Sequence[str], held: str) -> JudgedCell | None:
    """What a cell of an exhibit's table says of print; None where nothing is printed.

    notes: footnotes of the table. held: data and trials, of which every cell is.
    """
    parts = cell.verdict.split(", ")
    word = next((apart for apart in APART if apart in parts), parts[0])
    word = parts[0] if parts[0] != "reproduced" else word
    if not word:
        return None
    known = word_of_value(word)
    sentences = [
        f"Ours: {cell.number}. Printed: {cell.printed}.",
        f"{cell.verdict}: {known.told}",
        held,
        *(notes[at - 1] for at in cell.notes),
    ]
    return JudgedCell(word, known, " — ".join(filter(None, sentences)))


def value(row: Mapping[str, str]) -> tuple[list[str], JudgedCell]:
    """A printed value as the cells of a row, and the verdict on it with its reasons."""
    places = [(key, text) for key, text in row.items() if key not in NO_PLACE and text]
    place = ", ".join(text if key == "case" else f"{key} {text}" for key, text in places)
    metric = all_metrics().get(row["metric"])
    number = metric.title if metric else row["metric"]
    number += f" ({row['split']})" if row["split"] else ""
    texts = (_form(row, key) for key in ("printed", "mean"))
    cells = [row["exhibit"], place, row["method"], number, *texts]
    return cells, JudgedCell(word_of(row), word_of_value(verdict_of(row)), reasons(row))


def _form(row: Mapping[str, str], key: str) -> str:
    """A number of a printed value as tables write it, its spread with it."""
    if not row.get(key):
        return ""
    number = float(row[key])
    if number in (float("inf"), float("-inf")):
        return "not reached"
    form = form_of(row["metric"])
    spread = row.get("printed_sd" if key == "printed" else "sd", "")
    more = f" ± {form.text(float(spread))}" if spread and spread != "nan" else ""
    return form.text(number) + more
