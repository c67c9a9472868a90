"""Count verdicts on a paper's printed values and claims, and say the counts in sentences.

Rows are those of a printed.csv or a claims.csv as text. Verdicts of one trial, values that could
hardly come out otherwise, and claims whose bounds came after their numbers are counted separately.
Column `apart` says why; `set_up` names a figure that varies a parameter that the paper omits.
`claims` has for each claim the rows of its checks. `exhibits` returns the csv of a figure or table
by its name, None if not computed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd

from fedrepro.numbers.verdicts import verdicts_on_printed_values as printed
from fedrepro.numbers.verdicts.claim_verdicts import CONFIDENCE, STAND_IN
from fedrepro.planning.drawing_base import final, select_series

Row = Mapping[str, str]
Rows = Sequence[Row]
Exhibits = Callable[[str], pd.DataFrame | None]
Claims = Sequence[Rows]  # of each claim the rows of its checks
ANOTHER = "another set-up"
NO_PLACE = ("exhibit", *printed.PRINTED)  # the columns of a row that do not tell its place
JUDGED = ("reproduced", *printed.DIFFERENT)
SHOWN_APART = ("calibrated", "nearly fixed")  # what could hardly have come out otherwise
FOUR = ("judged", "shown beside", printed.OPEN, "not run")
DECIDED = ("holds", "refuted", "depends")
SEVERAL = {"holds": "hold", "depends": "depend"}
BOUND = re.compile(r"(above|at least|below|at most) (-?[\d.]+(?:e-?\d+)?)")
SET_UP = {
    printed.OPEN: "{}, and {} shows what it moves",
    ANOTHER: "{}, which moves it that far ({})",
    **dict.fromkeys(printed.DIFFERENT, "{}, which does not move it that far ({})"),
}
LABELS = {
    "exact": "Exact, since they are counts",
    "identity": "Nearly true by how the methods are defined",
    "ours": "Sentences that name no outcome, judged by a predicate of ours",
}


def word_of(row: Row) -> str:
    """Return the verdict in a `row` of printed.csv, with the reason if it is counted separately."""
    word = row["verdict"]
    apart = _apart(row) if word in (*JUDGED, ANOTHER, printed.OPEN) else ""
    return f"{word}, {apart}" if apart else word


def standing(row: Row) -> tuple[str, str]:
    """Return (status, of FOUR; verdict, or why it counts separately) of a row of printed.csv."""
    word, apart = row["verdict"], _apart(row)
    if word in (printed.OPEN, "not run"):
        return word, ""
    if word in JUDGED:
        return (FOUR[1], apart) if apart in SHOWN_APART else (FOUR[0], word)
    return FOUR[1], word


def reasons(row: Row) -> str:
    """Join what the columns note, `apart` and `set_up` of a printed.csv row say on its verdict."""
    apart = row.get("apart", "")
    check = printed.check_of(apart)
    parts = [row["note"], f"the number that {check[0]} looks at" if check else apart]
    where, _, reason = row.get("set_up", "").partition(": ")
    template = SET_UP.get(row["verdict"]) if reason else None
    exhibit = where.partition(", ")[0]
    return "; ".join(filter(None, [*parts, template and template.format(reason, exhibit)]))


def _apart(row: Row) -> str:
    # the number of a sentence can fail like any other
    apart = row.get("apart", "")
    return "" if printed.check_of(apart) else apart.partition(": ")[0]


def printed_counts(rows: Sequence[Row]) -> list[str]:
    """Return sentences that count `rows` of printed.csv by verdict, and by where they were read."""
    rows = _here(rows)
    distinct = [row for row in rows if not row["note"].startswith(printed.AGAIN)]
    if not distinct:
        return []
    of = f" of {_number(len(distinct), 'quantity')}" if len(distinct) < len(rows) else ""
    kind = "rerun value" if any(_apart(row) == "rerun" for row in rows) else "printed value"
    parts = []
    for count in FOUR:
        words = Counter(word for of, word in map(standing, distinct) if of == count)
        why = ", ".join(f"{number} {word}" for word, number in words.most_common() if word)
        parts.append(f"{words.total()} {count}{f' ({why})' if why else ''}")
    sources = Counter(filter(None, (row.get("source", "") for row in distinct)))
    read = ", ".join(f"{source} ({number})" for source, number in sources.most_common())
    sentences = [f"{_number(len(rows), kind)}{of}: {'; '.join(parts)}."]
    return [*sentences, f"Read in: {read}."] if read else sentences


def reproduced(rows: Sequence[Row]) -> int:
    """Count the printed values `rows` that are judged and reproduced, twice if printed twice."""
    return sum(standing(row) == (FOUR[0], "reproduced") for row in _here(rows))


def _here(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if not row["note"].startswith(printed.ELSEWHERE)]


def settled_counts(rows: Sequence[Row], claims: Claims) -> dict[str, int]:
    """Count a paper's printed values and its claims; return {name of the count: number}.

    Printed values (`rows`) are counted in all and by status, as "judged", twice if printed twice.
    Claims are counted if a run can test them, and if they are decided.
    """
    counts = Counter(standing(row)[0] for row in _here(rows))
    verdicts = [checks[0]["verdict"] for checks in claims]
    return {
        "printed values": counts.total(),
        **{count: counts[count] for count in FOUR},
        "claims that a run can test": sum(word != "no verdict" for word in verdicts),
        "decided": sum(word in DECIDED for word in verdicts),
    }


def _number(count: int, of: str) -> str:
    several = f"{of.removesuffix('y')}ies" if of.endswith("y") else f"{of}s"
    return f"{count} {of if count == 1 else several}"


def claim_counts(claims: Claims) -> list[str]:
    """Return sentences that count claims by verdict and label, and results expected by chance."""
    heads = [checks[0] for checks in claims]
    if not heads:
        return []
    counts = Counter(row["verdict"] for row in heads).most_common()
    parts = [f"{n} {word if n == 1 else SEVERAL.get(word, word)}" for word, n in counts]
    sentences = [f"{_number(len(heads), 'claim')}: {', '.join(parts)}."]
    decided = [row for row in heads if row["verdict"] in DECIDED]
    if decided:
        before = sum(row["fixed"] == "before" for row in decided)
        sentences.append(
            f"Decided are those that hold, are refuted or depend; of {len(decided)} the bounds of "
            f"{before} were fixed before the numbers."
        )
    for label, heading in LABELS.items():
        ids = [row["claim"] for row in heads if row["label"] == label]
        if ids:
            sentences.append(f"{heading}: {', '.join(ids)}.")
    by_trials = [row for row in heads if row["verdict"] in (*DECIDED, "undecided")]
    tested = [row for row in by_trials if row["label"] not in ("exact", "identity")]
    if tested:
        # one whose truth lies on its bound holds in at most half of the error of an interval, and
        # is refuted in the other half; the further inside or outside the more seldom
        most = len(tested) * (1 - CONFIDENCE) / 2
        sentences.append(
            f"Of the {len(tested)} that trials decide, counts and identities left out, chance "
            f"alone makes at most {most:.1f} hold and {most:.1f} be refuted: as many as if the "
            "truth of each lay just on its bound."
        )
    return sentences


def resolve(row: Row, exhibits: Exhibits, claims: Claims = (), rows: Rows = ()) -> dict[str, str]:
    """Return a printed value with a verdict in place of "set-up open", if runs allow one.

    "Set-up open" means that an unreported parameter may explain the difference. A figure named in
    `row` varies it. The verdict is "another set-up" if a value there moves our number towards print
    by more than the difference, and keeps other methods near print. A number in a sentence gets
    value and verdict of a check in `claims`. `rows` are all rows of the printed table.
    """
    fields = dict(row)
    if printed.check_of(row.get("apart", "")):
        return fields | _of_a_sentence(row, claims)
    opened = row.get("set_up") and row["verdict"] == printed.OPEN
    gap, moves = moves_towards_print(row["set_up"], row, exhibits) if opened else (0.0, [])
    if not moves:
        return fields

    def place(one: Row) -> dict[str, str]:
        return {k: text for k, text in one.items() if k not in NO_PLACE or k in ("metric", "split")}

    # printed values of the same place, by different methods, and how settings move these
    others = [one for one in rows if one is not row and one["mean"] and place(one) == place(row)]
    neighbours = [(one, moves_towards_print(row["set_up"], one, exhibits)[1]) for one in others]

    def suits(setting: int) -> bool:
        for other, moved in neighbours:
            away = abs(float(other["difference"]))
            most = max(away, float(other["tolerance"] or "inf"))
            if len(moved) > setting and abs(away - moved[setting]) > most:
                return False
        return True

    keys = "mean", "difference", "tolerance", "noise"
    mean, away, tolerance, noise = (float(row.get(key) or "nan") for key in keys)
    if any(moved > gap and suits(setting) for setting, moved in enumerate(moves)):
        return fields | {"verdict": ANOTHER}
    trials = int(float(row["trials"]))
    own = printed.printed_verdict(row["metric"], mean, away, tolerance, noise, trials)
    return fields | {"verdict": own}


def _of_a_sentence(row: Row, claims: Claims) -> dict[str, str]:
    """Return the cells mean, trials, difference, verdict by the check that `row` names, or {}."""
    claim, number = printed.check_of(row["apart"]) or ("", 0)
    of_claim = [check for checks in claims for check in checks if check["claim"] == claim]
    check = of_claim[number - 1] if len(of_claim) >= number else {"value": ""}
    if not check["value"]:
        return {}
    away = printed.difference(float(check["value"]), float(row["printed"]))
    if check["check_verdict"] == STAND_IN:
        word = "stand-in"
    elif not row["tolerance"]:
        word = "shown"
    elif abs(away) <= float(row["tolerance"]) + printed.ROUNDING:
        word = "reproduced"
    else:
        word = printed.direction(row["metric"], away)
    measured = {"mean": check["value"], "trials": check["trials"], "difference": f"{away:.10g}"}
    return measured | {"verdict": word}


def moves_towards_print(set_up: str, row: Row, exhibits: Exhibits) -> tuple[float, list[float]]:
    """Return (our distance from print, how far values of an unreported parameter move us there).

    `set_up` names the figure that varies the parameter, and where our number is in it. Moves start
    from the value that gives our number in `row`, or else from the first. A target that was not
    reached counts as the rounds that were run. [] if fewer than two values have a number.
    """
    named = set_up.partition(": ")[0]
    exhibit, _, cell = named.partition(", ")
    numbers = exhibits(exhibit)
    if numbers is None:
        return 0.0, []
    numbers = final(numbers)
    place = {"method": row["method"]} | printed.cell_of(cell, f"set_up '{named}'")
    for key, text in place.items():
        numbers = numbers.loc[[printed.fits(value, text) for value in numbers[key]]]
    found = select_series(numbers, row["metric"], row["split"])["mean"].to_numpy(float)
    run = select_series(numbers, "rounds", "")["mean"].to_numpy(float)
    values = np.where(np.isinf(found), run, found) if len(run) == len(found) else found
    if len(values) < 2 or not np.isfinite(values).all():
        return 0.0, []
    ours = values[np.isclose(found, float(row["mean"]), rtol=1e-9, atol=0)]
    here = ours[0] if len(ours) else values[0]
    away = float(row["difference"])
    gap = here - float(row["printed"]) if np.isinf(away) else away
    return abs(gap), [float(np.sign(away) * (here - value)) for value in values]
