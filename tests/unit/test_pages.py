"""Pages of exhibits that were just drawn: nested well, escaped, with what is known of them."""

from __future__ import annotations

import os
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from synthetic import KEY, draw, plan, undrawn, workplace, write_training_times

from fedrepro.api import NEEDS
from fedrepro.core.artifacts import read_json, write_json
from fedrepro.core.errors import FedreproError
from fedrepro.numbers.run_times import exhibit_seconds, of_methods, timings_of
from fedrepro.record.site.build import write_source
from fedrepro.record.site.pages import home, page, paper_page
from fedrepro.record.site.report_data import read_reports

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

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.found if name == tag]


def shown(keys=(KEY,)) -> str:
    """The paper's page and how its exhibits were made, of what is drawn."""
    (paper,) = read_reports(FOLDER, "tiny", keys).papers
    return paper_page(paper, "", (), frozenset()) + page("numbers.md", up="../", paper=paper)


def test_pages_are_nested_well():
    for key in (KEY, OTHER):
        draw(plan(), key)
    parsed = Nesting(shown((KEY, OTHER)))
    ids = [attrs["id"] for _, attrs in parsed.found if "id" in attrs]
    assert ids == ["figure-2a", "figure-2b"] * 2
    image = next(one for one in parsed.all("img") if one["src"] == f"../shown/{KEY}.svg")
    assert "Test accuracy against the number of clients" in image["alt"]
    assert "PFNM" in image["alt"]
    Nesting(home(read_reports(FOLDER, "tiny", [KEY, OTHER]), {}, ()))


def test_pages_name_command_data_settings_needs_and_versions():
    draw(plan())
    text = Nesting(shown()).text
    settings = plan().exhibit(KEY).settings
    for wanted in (
        f"snakemake --cores 2 reports/tiny/{KEY}.svg",
        settings.caption,
        "ab" * 32,
        "Digits (8×8) stand in for MNIST",
        "clients 2, 4",
        "epochs 2",
        "matplotlib ",
        "0123456789ab",
        *settings.notes,
    ):
        assert wanted in text
    for measure in plan().exhibit(KEY).measures:
        for need in measure.needs:
            assert NEEDS[need] in text


def test_a_folder_without_guides_has_pages_whose_links_all_lead_somewhere():
    """As `fedrepro start` makes it, where there is no docs."""
    draw(plan())
    found = write_source(read_reports(FOLDER, "tiny", [KEY]), FOLDER, Path(), Path("source"))
    assert not any(name.startswith("docs/") for name in found)
    for name, text in found.items():
        for link in re.findall(r"\]\(([^()\s#]+\.md)", text):
            assert os.path.normpath(Path(name).parent / link) in found, (name, link)


def test_text_is_escaped():
    draw(plan())
    base = FOLDER / KEY
    about = read_json(f"{base}.json")
    evil = "<script>alert('&')</script>\"><b>"
    about |= {"caption": evil, "notes": [evil]}
    about["methods"][1]["label"] = evil
    write_json(f"{base}.json", about)
    html = shown()
    assert "<script" not in html
    assert html.count("&lt;script&gt;") >= 4


def test_core_hours_count_every_local_model_once():
    made = plan(granularity={"clients_per_job": 1, "trials_per_job": 1})
    write_training_times(made, seconds=3.0)
    base = draw(made)
    timings = timings_of(read_json(f"{base}.json"))
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


def test_without_times_the_page_says_so():
    base = draw(plan())
    of_methods(timings_of(read_json(f"{base}.json")))[0].unlink()
    reports = read_reports(FOLDER, "tiny", [KEY])
    assert "not recorded" in page("reproduce.md", reports=reports, origin="")


@pytest.mark.parametrize("suffix", [".json", ".csv", ".choice.csv"])
def test_a_missing_exhibit_is_a_sentence_with_its_command(suffix):
    base = draw(plan())
    Path(f"{base}{suffix}").unlink()
    with pytest.raises(
        FedreproError,
        match=r"2a[a-z.]* is missing; make it with: snakemake --cores 2 reports/tiny",
    ):
        read_reports(FOLDER, "tiny", [KEY])


def test_a_damaged_table_is_a_sentence():
    base = draw(plan())
    Path(f"{base}.csv").write_text("")
    with pytest.raises(FedreproError, match=r"figure-2a\.csv cannot be read"):
        read_reports(FOLDER, "tiny", [KEY])
