"""Pages of exhibits just drawn: nested well, escaped; no number of a page escapes the record."""

from __future__ import annotations

import csv
import os
import re
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest
from findings import RECORD, ROOT, told
from synthetic import KEY, draw, plan, undrawn, workplace, write_training_times

from fedrepro.api import NEEDS
from fedrepro.core.checksummed_files import read_json, write_json
from fedrepro.core.errors import FedreproError
from fedrepro.core.paper_files import findings
from fedrepro.numbers.exhibit_files import read_claims
from fedrepro.numbers.run_times import spent_by_stage, timings_of
from fedrepro.record.numbers_in_pages import LINK, NUMBER, filled, format_like, without_links
from fedrepro.record.site.build import write_source
from fedrepro.record.site.pages import home, page, paper_page
from fedrepro.record.site.report_data import claims_of, read_reports

__all__ = ["undrawn", "workplace"]
pytestmark = pytest.mark.usefixtures("workplace", "undrawn")
OTHER = "pfnm/figure-2b"
FOLDER = Path("reports/tiny")
VOID = {"meta", "img", "br", "hr", "link", "input"}


class Nesting(HTMLParser):
    """Every element is closed, in order; collects tags with attributes, and the text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def shown(keys=(KEY,)) -> str:
    """The paper's page and how its exhibits were made, of what is drawn."""
    (paper,) = read_reports(FOLDER, "tiny", keys).papers
    return paper_page(paper) + page("numbers.md", up="../", paper=paper)


def test_pages_are_nested_well_and_their_text_is_escaped():
    for key in (KEY, OTHER):
        draw(plan(), key)
    found = Nesting(shown((KEY, OTHER))).found
    assert [one["id"] for _, one in found if "id" in one] == ["figure-2a", "figure-2b"] * 2
    (image,) = (one for tag, one in found if tag == "img" and one["src"] == f"../shown/{KEY}.svg")
    assert "Test accuracy against the number of clients" in image["alt"]
    assert "PFNM" in image["alt"]
    Nesting(home(read_reports(FOLDER, "tiny", [KEY, OTHER]), {}, ()))
    path, evil = f"{draw(plan())}.json", "<script>alert('&')</script>\"><b>"
    about = read_json(path) | {"caption": evil, "notes": [evil]}
    about["methods"][1]["label"] = evil
    write_json(path, about)
    assert "<script" not in shown()
    assert shown().count("&lt;script&gt;") >= 4


def test_pages_name_command_data_settings_and_needs_and_links_lead_somewhere():
    draw(plan())
    text, exhibit = Nesting(shown()).text, plan().exhibit(KEY)
    for wanted in (
        *(f"snakemake --cores 2 reports/tiny/{KEY}.svg", exhibit.settings.caption, "ab" * 32),
        *("Digits (8×8) stand in for MNIST", "clients 2, 4", "epochs 2", "matplotlib "),
        *("0123456789ab", *exhibit.settings.notes),
        *(NEEDS[need] for measure in exhibit.measures for need in measure.needs),
    ):
        assert wanted in text
    # As `fedrepro start` makes it, where there is no docs.
    found = write_source(read_reports(FOLDER, "tiny", [KEY]), FOLDER, Path("source"))
    assert not any(name.startswith("docs/") for name in found)
    for name, text in found.items():
        for link in re.findall(r"\]\(([^()\s#]+\.md)", text):
            assert os.path.normpath(Path(name).parent / link) in found, (name, link)


def test_core_hours_count_every_local_model_once():
    made = plan(granularity={"clients_per_job": 1, "trials_per_job": 1})
    write_training_times(made, seconds=3.0)
    timings = timings_of(read_json(f"{draw(made)}.json"))
    found = spent_by_stage(timings)["seconds"]
    # 2 + 4 clients and one pooled, in each of 2 trials
    assert found["train"] == 3.0 * 2 * 7
    trials = made.exhibit(KEY).trials
    assert found["aggregate"] == sum(2.0 * n for run, n in trials.items() if not run.every)
    assert found["federate"] == sum(2.0 * n for run, n in trials.items() if run.every)
    # the same models trained in larger jobs leave files beside those of smaller ones
    write_training_times(plan(granularity={"trials_per_job": 1}), seconds=3.0)
    assert spent_by_stage(timings)["seconds"] == found
    reports = read_reports(FOLDER, "tiny", [KEY])
    hours = sum(found.values()) / 3600
    assert reports.papers[0].exhibits["figure-2a"].hours == pytest.approx(hours)
    assert f"<td>{hours:.2f}</td>" in page("reproduce.md", reports=reports, origin="")
    next(path for path in timings if "train" not in path.parts).unlink()
    assert "not recorded" in page("reproduce.md", reports=reports, origin="")


def kept_claims(paper):
    return claims_of(read_claims(RECORD / f"paper/{paper}/claims.csv"))


def test_a_claim_that_depends_shows_what_decides_each_reading():
    depending = [checks for checks in kept_claims("p2p") if checks[0]["verdict"] == "depends"]
    assert depending
    for checks in depending:
        readings = {row["reading"] for row in checks}
        deciding = page("claims.html", up="../", claims=[checks]).rpartition("<td>")[2]
        assert all(f"<i>{reading}: " in deciding for reading in readings)
        assert deciding.count("<b>") == len(readings) > 1


def test_the_page_says_what_is_missing_and_which_bounds_came_late():
    assert "missing: " in page("claims.html", up="../", claims=kept_claims("rm"))
    claims = kept_claims("pfnm")
    late = sum(checks[0]["fixed"] == "after" for checks in claims)
    html = page("claims.html", up="../", claims=claims)
    Nesting(html)
    assert html.count("its bound was written when first numbers were there") == late > 0


ROWS = """\
case,clients,method,metric,split,mean,sd,trials,by_trial
a,5,ours,accuracy,test,0.5,,2,0.4 0.6
a,10,ours,accuracy,test,0.7,,2,0.6 0.8
a,5,theirs,accuracy,test,0.4,,2,0.4 0.4
a,10,theirs,accuracy,test,0.3,,2,0.2 0.4
a,,alone,accuracy,test,0.2,,2,0.1 0.3
a,5,ours,bytes_up,,2000000000,,2,2000000000 2000000000
a,10,ours,bytes_up,,3000000000,,2,3000000000 3000000000
"""
PRINTED = (
    "case,clients,method,metric,split,mean,printed,verdict\na,5,ours,accuracy,test,0.5,0.6,good\n"
)
CLAIMS = """\
claim,verdict,check,value,low,high,confidence
C1,holds,x,-0.2,-0.3,-0.1,0.975
C2,refuted,x,,,,
C2,refuted,y,0.1,,,
"""


@pytest.fixture
def ask(tmp_path):
    folder = tmp_path / "paper/x"
    folder.mkdir(parents=True)
    for name, text in (("t", ROWS), ("t.printed", PRINTED), ("claims", CLAIMS)):
        (folder / f"{name}.csv").write_text(text)

    def asked(text: str, question: str, file: str = "t") -> str:
        page = f'[{text}](reports/record/paper/x/{file}.csv "{question}")'
        return without_links(filled(page, tmp_path))

    asked.record = tmp_path
    return asked


PERCENT = "0 (0 to 0, at 0.0 %)"


@pytest.mark.parametrize(
    ("like", "question", "file", "told"),
    [
        ("0.0", "alone at clients=10", "t", "20.0"),
        ("from 0 to 0 of", "range ours minus theirs", "t", "from 10 to 40 of"),
        ("0, 0", "each ours", "t", "50, 70"),
        ("0 (0 to 0)", "interval ours at clients=5", "t", "50 (-77 to 177)"),
        ("0 and 0", "trials ours at clients=10", "t", "60 and 80"),
        ("0.00", "ours over theirs at clients=5", "t", "1.25"),
        ("0", "ours at clients=10 minus ours at clients=5", "t", "20"),
        ("−0.00", "theirs minus ours at clients=5", "t", "−10.00"),
        ("1,000", "bytes_up of ours at clients=5", "t", "2,000,000,000"),
        (
            "0 (0)",
            "ours at clients=5 then bytes_up of ours at clients=5",
            "t",
            "50 (2,000,000,000)",
        ),
        ("0", "ours minus ours in t.printed at clients=5", "t", "-10"),
        (PERCENT, "percent interval value of C1", "claims", "-20 (-30 to -10, at 97.5 %)"),
        ("0.0", "most value of C2", "claims", "0.1"),
    ],
)
def test_a_question_has_its_answer(ask, like, question, file, told):
    assert ask(like, question, file) == told


def test_a_number_is_written_as_the_one_before_it():
    assert format_like(-0.02, "0.1") == "0.0"
    assert format_like(-1234.4, "−0") == "−1,234"


@pytest.mark.parametrize(
    ("like", "question", "word"),
    [
        ("0", "ours", "fits 2 numbers"),
        ("0", "each ours", "has 2 numbers, and the text has 1"),
        ("0", "ours minus alone", "not at the same places"),
        ("0", "interval ours over theirs at clients=5", "trials where there are none"),
        ("0", "ours in nothing at clients=5", "which is missing"),
        ("0", "ours at clients=7", "fits 0 numbers of ours"),
        ("0", "ours minus nobody at clients=5", "fits 0 numbers of nobody"),
        ("0", "ours at colour=red", "names colour, which"),
    ],
)
def test_a_question_that_cannot_be_answered_is_refused(ask, like, question, word):
    with pytest.raises(FedreproError, match=word):
        ask(like, question)


def test_a_table_is_asked_for_by_its_heads_and_rows(ask):
    place = "reports/record/paper/x"
    heads = f'[theirs]({place}/t.csv "theirs at clients={{2}}") | [both]({place}/t.csv "{{0}}")'
    row = f'[printed]({place}/t.printed.csv "row ours at clients=5")'
    rows = f"| as here | 10 | 0 | – |\n| {row} | 5 |  | 0.0 |\n"
    page = f"| what | J | {heads} |\n| --- | --- | --- | --- |\n{rows}\n| a | 0 |\n"
    told = without_links(filled(page, ask.record)).splitlines()
    assert told[2:] == ["| as here | 10 | 30 | – |", "| printed | 5 |  | 60.0 |", "", "| a | 0 |"]
    assert filled(page, ask.record).count("](") == 3


MEASURED = ("mean", "paired_mean", "by_trial", "printed", "test_mean", "criterion_mean")
JUDGED = ("value", "low", "high", "confidence", "trials_needed")
PAGES = {
    name: text
    for name, page in {**findings(ROOT), "README": "README.md"}.items()
    if LINK.search(text := (ROOT / page).read_text())
}


def altered(path: Path) -> pd.DataFrame:
    """A file of the record with all that was measured altered, each row by another share."""
    frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    own = JUDGED if "claim" in frame else (*MEASURED, "stopped_at")
    for at, name in enumerate(n for n in frame if n in own or n.startswith("above_")):
        frame[name] = [
            " ".join(
                str(float(x) * (1.6 + 0.1 * (row % 7) + 0.3 * at) + 0.05) for x in cell.split()
            )
            for row, cell in enumerate(frame[name])
        ]
    return frame


def asked_for(page: str) -> list[tuple[str, str]]:
    """Every number that a page asks for: the question, or the table's line, and what it has."""
    found, heads = [], None
    for line in page.split("\n"):
        table = line.lstrip().startswith("|")
        if heads and "---" not in line and table:
            cells = zip(heads, without_links(line).split("|"), strict=True)
            found += [(line[:80], cell) for head, cell in cells if head and NUMBER.search(cell)]
        heads = (heads or [LINK.search(cell) for cell in line.split("|")]) if table else None
    links = ((link["question"], link["text"]) for link in LINK.finditer(page))
    return found + [one for one in links if not ("{" in one[0] or one[0].startswith("row "))]


@pytest.mark.parametrize("name", PAGES)
def test_every_number_of_a_page_is_noticed_when_the_record_is_altered(name, tmp_path):
    page = PAGES[name]
    files = set()
    for path, question in ((RECORD / m["file"], m["question"]) for m in LINK.finditer(page)):
        others = re.findall(r" in ([a-z0-9.-]+)(?= |$)", question) if "{" not in question else []
        if question.startswith("row "):
            others.append(question.removeprefix("row "))
        files |= {path, *(path.with_name(f"{other}.csv") for other in others)}
    for path in filter(Path.exists, files):
        out = tmp_path / path.relative_to(RECORD)
        out.parent.mkdir(parents=True, exist_ok=True)
        altered(path).to_csv(out, index=False)
    before, after = asked_for(filled(page, RECORD)), asked_for(filled(page, tmp_path))
    kept = [a[0] for a, b in zip(before, after, strict=True) if a == b]
    assert before
    assert kept == []


NAMED = r"[A-Z]\d+[ab]?"
SAID = re.compile(
    rf"(?<!reading of )\b({NAMED}(?:(?:, | and ){NAMED})*) (?:is |are )?"
    r"(holds?|refuted|undecided|depends?|incomplete|not run)\b"
    r"(?! by this reading| in one of)"
)
PAPERS = {name.partition("-")[0] for name in PAGES} - {"arena", "README"}


@pytest.mark.parametrize("paper", sorted(PAPERS))
def test_a_sentence_that_tells_a_verdict_tells_that_of_the_record(paper):
    with (RECORD / f"paper/{paper}/claims.csv").open() as file:
        verdicts = {row["claim"]: row["verdict"] for row in csv.DictReader(file)}
    found = [(m[1], m[2].rstrip("s")) for m in SAID.finditer(told(paper))]
    assert found
    for claims, word in found:
        for claim in re.findall(NAMED, claims):
            assert verdicts[claim].rstrip("s") == word, claim
