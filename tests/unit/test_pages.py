"""Pages of exhibits that were just drawn: nested well, escaped; and the verdicts on claims."""

from __future__ import annotations

import os
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from synthetic import KEY, draw, plan, undrawn, workplace, write_training_times

from fedrepro.api import NEEDS
from fedrepro.core.artifacts import read_json, write_json
from fedrepro.numbers.exhibit_files import read_claims
from fedrepro.numbers.run_times import exhibit_seconds, of_methods, timings_of
from fedrepro.record.site.build import write_source
from fedrepro.record.site.pages import home, page, paper_page
from fedrepro.record.site.report_data import claims_of, read_reports
from fedrepro.stages.figures_and_pages import judge_claims

__all__ = ["undrawn", "workplace"]
pytestmark = pytest.mark.usefixtures("workplace", "undrawn")
ROOT = Path(__file__).parents[2]
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


def test_pages_are_nested_well():
    for key in (KEY, OTHER):
        draw(plan(), key)
    found = Nesting(shown((KEY, OTHER))).found
    assert [one["id"] for _, one in found if "id" in one] == ["figure-2a", "figure-2b"] * 2
    (image,) = (one for tag, one in found if tag == "img" and one["src"] == f"../shown/{KEY}.svg")
    assert "Test accuracy against the number of clients" in image["alt"]
    assert "PFNM" in image["alt"]
    Nesting(home(read_reports(FOLDER, "tiny", [KEY, OTHER]), {}, ()))


def test_pages_name_command_data_settings_needs_and_versions():
    draw(plan())
    text, exhibit = Nesting(shown()).text, plan().exhibit(KEY)
    for wanted in (
        *(f"snakemake --cores 2 reports/tiny/{KEY}.svg", exhibit.settings.caption, "ab" * 32),
        *("Digits (8×8) stand in for MNIST", "clients 2, 4", "epochs 2", "matplotlib "),
        *("0123456789ab", *exhibit.settings.notes),
        *(NEEDS[need] for measure in exhibit.measures for need in measure.needs),
    ):
        assert wanted in text


def test_a_folder_without_guides_has_pages_whose_links_all_lead_somewhere():
    """As `fedrepro start` makes it, where there is no docs."""
    draw(plan())
    found = write_source(read_reports(FOLDER, "tiny", [KEY]), FOLDER, Path("source"))
    assert not any(name.startswith("docs/") for name in found)
    for name, text in found.items():
        for link in re.findall(r"\]\(([^()\s#]+\.md)", text):
            assert os.path.normpath(Path(name).parent / link) in found, (name, link)


def test_text_is_escaped():
    path, evil = f"{draw(plan())}.json", "<script>alert('&')</script>\"><b>"
    about = read_json(path) | {"caption": evil, "notes": [evil]}
    about["methods"][1]["label"] = evil
    write_json(path, about)
    assert "<script" not in shown()
    assert shown().count("&lt;script&gt;") >= 4


def test_core_hours_count_every_local_model_once():
    made = plan(granularity={"clients_per_job": 1, "trials_per_job": 1})
    write_training_times(made, seconds=3.0)
    timings = timings_of(read_json(f"{draw(made)}.json"))
    found = exhibit_seconds(timings)
    # 2 + 4 clients and one pooled, in each of 2 trials
    assert found["train"] == 3.0 * 2 * 7
    trials = made.exhibit(KEY).trials
    assert found["aggregate"] == sum(2.0 * n for run, n in trials.items() if not run.every)
    assert found["federate"] == sum(2.0 * n for run, n in trials.items() if run.every)
    # the same models trained in larger jobs leave files beside those of smaller ones
    write_training_times(plan(granularity={"trials_per_job": 1}), seconds=3.0)
    assert exhibit_seconds(timings) == found
    reports = read_reports(FOLDER, "tiny", [KEY])
    hours = sum(found.values()) / 3600
    assert reports.papers[0].exhibits["figure-2a"].hours == pytest.approx(hours)
    assert f"<td>{hours:.2f}</td>" in page("reproduce.md", reports=reports, origin="")
    of_methods(timings)[0].unlink()
    assert "not recorded" in page("reproduce.md", reports=reports, origin="")


OUT = Path("reports/tiny/pfnm/claims.csv")


def judged(exhibits=(KEY, OTHER)) -> list[list[dict[str, str]]]:
    """The claims of what is drawn, by the rules of the two trials that it has."""
    for key in exhibits:
        draw(plan(), key)
    text = (ROOT / "src/fedrepro/papers/pfnm/claims.yaml").read_text()
    assert "  trials: 5\n" in text
    Path("loose.yaml").write_text(text.replace("  trials: 5\n", "  trials: 2\n"))
    judge_claims(Path("loose.yaml"), exhibits, Path("reports/tiny"), OUT)
    return claims_of(read_claims(OUT))


def test_a_claim_that_depends_shows_what_decides_each_reading():
    kept = claims_of(read_claims(ROOT / "reports/record/paper/p2p/claims.csv"))
    depending = [checks for checks in kept if checks[0]["verdict"] == "depends"]
    assert depending
    for checks in depending:
        readings = {row["reading"] for row in checks}
        deciding = page("claims.html", up="../", claims=[checks]).rpartition("<td>")[2]
        assert all(f"<i>{reading}: " in deciding for reading in readings)
        assert deciding.count("<b>") == len(readings) > 1


def test_the_page_shows_every_claim_with_its_numbers():
    judged()
    (paper,) = read_reports(FOLDER, "tiny", [KEY]).papers
    html = paper_page(paper)
    Nesting(html)
    wanted = (*("1", "2a", "2b"), *range(3, 25))
    for text in ('id="claims"', "Stand-in data.", "33 claims: ", *(f'id="p{n}"' for n in wanted)):
        assert text in html


def test_the_page_says_what_is_missing_and_which_bounds_came_late():
    html = page("claims.html", up="../", claims=judged([KEY]))
    assert "missing: Figure 2b" in html
    assert html.count("its bound was written when first numbers were there") == 18
