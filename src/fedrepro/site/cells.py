"""Tables as the pages show them: ours and what is printed in one cell, with a sign and a colour."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fedrepro.core.metrics import all_metrics
from fedrepro.drawings.layout import form_of
from fedrepro.drawings.tables import TextCell, TextTable, html_text
from fedrepro.site.verdicts import PRINTED, verdict_of, word_of_value
from fedrepro.verdicts.counted import reasons, word_of
from fedrepro.verdicts.published import APART
from fedrepro.verdicts.set_up import NO_PLACE


def wide(inner: str, name: str) -> str:
    """A part that may be wider than a phone: it scrolls by itself, also by keys."""
    label = html_text(name)
    return f'<div class="wide" tabindex="0" role="region" aria-label="{label}">{inner}</div>'


def table_html(table: TextTable, name: str, held: str) -> str:
    """A table with its verdicts. held: data and trials, which every cell is told to be of."""
    lines = ['<table class="numbers">', f"<caption>{html_text(name)}</caption>", "<thead>"]
    lines += [*_heads(table), "</thead>", "<tbody>"]
    for row in table.rows:
        kind = ' class="reference"' if row.soft else ""
        heads = "".join(f'<th scope="row">{html_text(head)}</th>' for head in row.heads)
        cells = "".join(_cell(cell, table.footnotes, held) for cell in row.cells)
        lines.append(f"<tr{kind}>{heads}{cells}</tr>")
    lines += ["</tbody>", "</table>"]
    return wide("\n".join(lines), name)


def _heads(table: TextTable) -> list[str]:
    levels = table.levels or [[]]
    rows = []
    for depth, level in enumerate(levels):
        span = f' rowspan="{len(levels)}"' if len(levels) > 1 else ""
        corner = "".join(
            f'<th scope="col"{span}>{html_text(text)}</th>' if text else f"<td{span}></td>"
            for text in (table.corner if depth == 0 else ())
        )
        heads = "".join(
            f'<th scope="colgroup" colspan="{wide_by}">{html_text(text)}</th>'
            if wide_by > 1
            else (f'<th scope="col">{html_text(text)}</th>' if text else "<td></td>")
            for text, wide_by in level
        )
        rows.append(f"<tr>{corner}{heads}</tr>")
    return rows


def _cell(cell: TextCell, notes: Sequence[str], held: str) -> str:
    """A cell; what is to be known of it shows when it is pointed at, tapped or reached by keys."""
    parts = cell.verdict.split(", ")
    word = next((apart for apart in APART if apart in parts), parts[0])
    word = parts[0] if parts[0] != "reproduced" else word
    kinds = ["best"] if cell.best else []
    below = "".join(f"<span>{html_text(line)}</span>" for line in cell.below)
    if not word:
        marked = f' class="{" ".join(kinds)}"' if kinds else ""
        return f"<td{marked}>{html_text(cell.number)}{below}</td>"
    known = word_of_value(word)
    kinds += ["judged", known.colour]
    sentences = [
        f"Ours: {cell.number}. Printed: {cell.printed}.",
        f"{cell.verdict}: {known.told}",
        held,
    ]
    sentences += [notes[at - 1] for at in cell.notes]
    more = html_text(" — ".join(filter(None, sentences)))
    return (
        f'<td class="{" ".join(kinds)}" tabindex="0" data-more="{more}" title="{more}">'
        f'<span class="sign" aria-hidden="true">{known.sign}</span>{html_text(cell.number)}{below}'
        f'<span class="printed">printed {html_text(cell.printed)}</span>'
        f'<span class="word">{html_text(cell.verdict)}</span></td>'
    )


def values_table(rows: Sequence[Mapping[str, str]], name: str) -> str:
    """Every printed value as a row: its place, print, ours, the verdict and its reason."""
    heads = (
        "Exhibit",
        "Cell",
        "Method",
        "Number",
        "Printed",
        "Ours",
        "Verdict",
        "Read in",
        "Reason",
    )
    return wide(
        data_table(heads, (_value(row) for row in rows), f"Every printed value of {name}"), name
    )


def _value(row: Mapping[str, str]) -> tuple[str, ...]:
    places = [(key, text) for key, text in row.items() if key not in NO_PLACE and text]
    cell = ", ".join(text if key == "case" else f"{key} {text}" for key, text in places)
    metric = all_metrics().get(row["metric"])
    number = metric.title if metric else row["metric"]
    number += f" ({row['split']})" if row["split"] else ""
    word = verdict_of(row)
    sign = word_of_value(word)
    verdict = f'<span class="sign {sign.colour}">{sign.sign}</span> {html_text(word_of(row))}'
    reason = reasons(row)
    return (
        html_text(row["exhibit"]),
        html_text(cell),
        html_text(row["method"]),
        html_text(number),
        _form(row, "printed"),
        _form(row, "mean"),
        verdict if word in PRINTED else html_text(word),
        html_text(row.get("source", "")),
        html_text(reason),
    )


def _form(row: Mapping[str, str], key: str) -> str:
    """A number of a printed value as tables write it, its spread with it."""
    if not row.get(key):
        return ""
    value = float(row[key])
    if value in (float("inf"), float("-inf")):
        return "not reached"
    form = form_of(row["metric"])
    spread = row.get("printed_sd" if key == "printed" else "sd", "")
    more = f" ± {form.text(float(spread))}" if spread and spread != "nan" else ""
    return form.text(value) + more


def data_table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], caption: str, kind: str = "data"
) -> str:
    """A table, which scripts make sortable if its kind is data; cells are html already."""
    head = "".join(f'<th scope="col">{html_text(text)}</th>' for text in heads)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>\n" for row in rows)
    return (
        f'<table class="{kind}"><caption>{html_text(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table>"
    )
