"""Cells of pages that judge a printed value: its word, and the sentences that go with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedrepro.core.metrics import all_metrics
from fedrepro.drawings.tables import TextCell, number_form
from fedrepro.numbers.verdicts.printed_verdicts import APART
from fedrepro.numbers.verdicts.summary_sentences import NO_PLACE, reasons, word_of
from fedrepro.record.site.verdict_styles import PRINTED, UNKNOWN, VerdictStyle, verdict_of

Judged = tuple[str, VerdictStyle, str]  # the name of a word, the word, and notes


def judged(cell: TextCell, notes: Sequence[str], held: str) -> Judged | None:
    """Judge the printed value of a cell, or return None where nothing is printed.

    Args:
        cell: a number of an exhibit's table.
        notes: footnotes of the table.
        held: data and trials, which all its cells share.
    """
    parts = cell.verdict.split(", ")
    word = next((apart for apart in APART if apart in parts), parts[0])
    word = parts[0] if parts[0] != "reproduced" else word
    if not word:
        return None
    known = PRINTED.get(word, UNKNOWN)
    sentences = [
        f"Ours: {cell.number}. Printed: {cell.printed}.",
        f"{cell.verdict}: {known.meaning}",
        held,
        *(notes[at - 1] for at in cell.notes),
    ]
    return word, known, " — ".join(filter(None, sentences))


def value(row: Mapping[str, str]) -> tuple[list[str], Judged]:
    """Return the cells of a printed value's row, and the verdict with its reasons."""
    places = [(key, text) for key, text in row.items() if key not in NO_PLACE and text]
    place = ", ".join(text if key == "case" else f"{key} {text}" for key, text in places)
    metric = all_metrics().get(row["metric"])
    number = metric.title if metric else row["metric"]
    number += f" ({row['split']})" if row["split"] else ""
    texts = (_form(row, *keys) for keys in (("printed", "printed_sd"), ("mean", "sd")))
    cells = [row["exhibit"], place, row["method"], number, *texts]
    return cells, (word_of(row), PRINTED.get(verdict_of(row), UNKNOWN), reasons(row))


def _form(row: Mapping[str, str], key: str, spread: str) -> str:
    """Write a number of a printed value as tables do, with its spread."""
    if not row.get(key):
        return ""
    number, form, sd = float(row[key]), number_form(row["metric"]), row.get(spread, "")
    if number in (float("inf"), float("-inf")):
        return "not reached"
    return form.text(number) + (f" ± {form.text(float(sd))}" if sd and sd != "nan" else "")
