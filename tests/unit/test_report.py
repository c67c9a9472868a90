"""The page: figure, numbers, command, what methods see; valid and escaped."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from synthetic import KEY, ORIGIN, draw, plan, undrawn, workplace, write_training_times

from fedrepro.api import DISCLOSED, NEEDS
from fedrepro.core.artifacts import read_json, write_json
from fedrepro.core.errors import FedreproError
from fedrepro.numbers.summary import read_csv
from fedrepro.numbers.times import exhibit_seconds, timings_of
from fedrepro.report.page import duration, load
from fedrepro.stages import report

__all__ = ["undrawn", "workplace"]
pytestmark = pytest.mark.usefixtures("workplace", "undrawn")

OTHER = "pfnm/figure-2b"
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


def made_page(made=None, keys=(KEY,)) -> str:
    """The page of these exhibits, made by their stages."""
    made = made or plan()
    for key in keys:
        draw(made, key)
    out = Path(made.paths.index)
    report.run(made, keys, out)
    return out.read_text()


def test_page_is_nested_well_and_stands_alone():
    html = made_page(keys=(KEY, OTHER))
    page = Nesting(html)
    assert html.startswith("<!DOCTYPE html>")
    assert page.all("html") == [{"lang": "en"}]
    assert not page.all("script")
    assert not page.all("link")
    assert not re.search(r"(src|href)=\"(https?:|/)", html)
    ids = [attrs["id"] for _, attrs in page.found if "id" in attrs]
    assert ids == ["pfnm-figure-2a", "pfnm-figure-2b"]


def test_every_link_leads_to_a_file_or_a_place_on_the_page():
    made = plan()
    page = Nesting(made_page(made))
    folder = Path(made.paths.index).parent
    links = [a["href"] for a in page.all("a")] + [a["src"] for a in page.all("img")]
    ids = {f"#{attrs['id']}" for _, attrs in page.found if "id" in attrs}
    assert f"{KEY}.svg" in links
    for link in links:
        assert link in ids or (folder / link).exists()


def test_figure_has_words_for_those_who_do_not_see_it():
    image = Nesting(made_page()).all("img")[0]
    assert "Test accuracy against the number of clients" in image["alt"]
    assert "PFNM" in image["alt"]


def test_page_names_command_data_settings_and_versions():
    text = Nesting(made_page()).text
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


def test_page_says_what_computed_and_what_drew_also_in_the_earlier_form():
    made = plan()
    draw(made)
    base = Path(made.paths.index).parent / KEY
    about = read_json(f"{base}.json")
    old = {"revision": "of the runs", "versions": {"torch": "2"}}
    drawn = {"revision": "of the drawing", "versions": {"pandas": "3"}}
    forms = (
        about | {"computed": [{**ORIGIN, **old, "changed_to": "56" * 16}], "drawn": drawn},
        {key: value for key, value in about.items() if key != "drawn"}
        | {"computed": [old], **drawn},
    )
    for form, said in zip(forms, (True, False), strict=True):
        write_json(f"{base}.json", form)
        report.run(made, [KEY], Path(made.paths.index))
        text = Nesting(Path(made.paths.index).read_text()).text
        assert "at revision of the runs" in text
        assert "at revision of the drawing; pandas 3" in text
        new = ("sources 121212121212, on cpu", "3 cores (of the files, Linux)", "sources changed")
        assert [part in text for part in new] == [said] * 3


def test_page_shows_accuracy_size_and_the_chosen_setting():
    made = plan()
    html = made_page(made)
    base = Path(made.paths.index).parent / KEY
    numbers = read_csv(Path(f"{base}.csv").read_text())
    row = numbers.query("method == 'PFNM' and split == 'test' and clients == 4").iloc[0]
    assert f"{100 * row['mean']:.2f} ± {100 * row['sd']:.2f}" in html
    assert "80 of 100 units" in html
    choice = read_csv(Path(f"{base}.choice.csv").read_text())
    for value in choice[choice["chosen"] == "true"]["value"]:
        assert f"<span>sigma2 = {value}</span>" in html


def test_page_says_what_every_method_sees():
    text = " ".join(Nesting(made_page()).text.split())
    for measure in plan().exhibit(KEY).measures:
        for need in measure.needs:
            assert NEEDS[need] in text
    assert DISCLOSED["pooled_train_accuracy"] in text
    assert "The test split is not read for it." in text


def test_only_rivals_are_called_best():
    made = plan()
    made_page(made)
    shown = load(Path(made.paths.index).parent, KEY, "tiny")
    rows = shown.table.rows
    assert sum(cell.best for row in rows for cell in row.cells) == 2
    assert not any(cell.best for row in rows if row.soft for cell in row.cells)


def test_text_is_escaped():
    made = plan()
    draw(made)
    base = Path(made.paths.index).parent / KEY
    about = read_json(f"{base}.json")
    evil = "<script>alert('&')</script>\"><b>"
    about |= {"title": evil, "caption": evil, "notes": [evil]}
    about["methods"][1]["label"] = evil
    write_json(f"{base}.json", about)
    report.run(made, [KEY], Path(made.paths.index))
    html = Path(made.paths.index).read_text()
    assert "<script" not in html
    assert "<b>" not in html
    assert not Nesting(html).all("script")


def test_run_time_counts_every_local_model_once():
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
    report.run(made, [KEY], Path(made.paths.index))
    assert "training local models 42 s" in Path(made.paths.index).read_text()


def test_without_times_the_page_says_so():
    made = plan()
    base = draw(made)
    timings_of(read_json(f"{base}.json"))[0].unlink()
    report.run(made, [KEY], Path(made.paths.index))
    assert "not measured" in Path(made.paths.index).read_text()


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.44, "0.4 s"),
        (12.4, "12 s"),
        (59.6, "1 min 0 s"),
        (200, "3 min 20 s"),
        (4320, "1 h 12 min"),
    ],
)
def test_durations_are_in_words(seconds, words):
    assert duration(seconds) == words


@pytest.mark.parametrize("suffix", [".json", ".csv", ".choice.csv"])
def test_a_missing_exhibit_is_a_sentence_with_its_command(suffix):
    made = plan()
    base = draw(made)
    Path(f"{base}{suffix}").unlink()
    with pytest.raises(
        FedreproError,
        match=r"2a[a-z.]* is missing; make it with: snakemake --cores 2 reports/tiny",
    ):
        report.run(made, [KEY], Path(made.paths.index))


def test_an_unknown_exhibit_is_named():
    with pytest.raises(FedreproError, match="did you mean 'pfnm/figure-2a'"):
        report.run(plan(), ["pfnm/figure-2aa"], Path("index.html"))


def test_an_exhibit_without_a_sweep_of_settings_has_no_table_of_choices():
    made = plan()
    made_page(made)
    shown = load(Path(made.paths.index).parent, KEY, "tiny")
    assert replace(shown, choice=shown.choice.iloc[:0]).choices == ""


def test_a_damaged_table_is_a_sentence():
    made = plan()
    base = draw(made)
    Path(f"{base}.csv").write_text("")
    with pytest.raises(FedreproError, match=r"figure-2a\.csv cannot be read"):
        report.run(made, [KEY], Path(made.paths.index))
