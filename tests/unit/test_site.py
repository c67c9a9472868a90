"""The site of the record: small copies of it, and every page in a browser."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import once
import pandas as pd
import pytest
from findings import RECORD, ROOT

from fedrepro.core.checksummed_files import checksum_of, read_json, write_json, write_table
from fedrepro.core.errors import FedreproError
from fedrepro.core.paper_files import published_file
from fedrepro.core.registry import components
from fedrepro.numbers.run_times import seconds_by_setting
from fedrepro.numbers.verdicts.verdicts_on_printed_values import read_published
from fedrepro.record.record_entries_and_leaderboards import drawn_keys
from fedrepro.record.site import pages as site_pages
from fedrepro.record.site import verdict_and_leaderboard_texts as texts
from fedrepro.record.site.build import _require_own, build, linked, numbered
from fedrepro.record.site.report_data import claims_of, cost_table, read_reports

KEY = "rm/table-1"
pytestmark = pytest.mark.usefixtures("in_root")


def test_a_guide_leads_to_pages_and_to_copies_of_tables():
    shown = {"config/README.md": "config/README.md", "docs/graphs.md": "docs/graphs.md"}
    text = "[keys](../config/README.md#drawings), [graphs](graphs.md)"
    asked = f"{text}, [it](../config/config.yaml), [data](../config/datasets.csv)"
    told = linked(asked, Path("docs/data.md"), "docs/x.md", shown)
    assert told == f'{text}, it, <a href="../files/config/datasets.csv">data</a>'


def test_an_altered_metric_changes_sentence_counts_cell_and_home(tmp_path):
    """As if a mean had been measured and judged so."""
    folder = tmp_path / "paper"
    (folder / "rm").mkdir(parents=True)
    for path in (RECORD / "paper").glob(f"{KEY}.*"):
        shutil.copy(path, folder / "rm")
    asked = f'[98.0](reports/record/paper/{KEY}.csv "FA at case=C = 1.0, iid")'

    def told() -> tuple[str, str, int, int, str, str]:
        """The number and how many are reproduced, on the page and on home; the cell."""
        reports = read_reports(folder, "paper", [KEY])
        answer = numbered(asked, 1, tmp_path)
        page = site_pages.paper_page(reports.papers[0], answer)
        first = site_pages.home(reports, {"rm": f"Nothing yet. It has {answer} %."}, ())
        numbers = [re.search(r'class="number"[^>]*>([^<]+)</a>', text)[1] for text in (page, first)]
        reproduced = re.search(r'(\d+) <a class="word good" [^>]*#reproduced"', page)[1]
        counted = re.search(r"<td>RM\+AH</td>(?:<td>\d+</td>){2}<td>(\d+)</td>", first)[1]
        row = page.partition('<th scope="row">C = 1.0, iid</th>')[2]
        cell = re.match(r'<td class="(?:best )?judged (\w+)".*?</span>([\d.]+)', row)
        return *numbers, int(reproduced), int(counted), *cell.groups()

    before = told()
    assert (before[:2], before[4:]) == (("98.0", "98.0"), ("good", "98.01"))
    about = read_json(folder / f"{KEY}.json")
    wanted = {"method": "FA", "metric": "accuracy", "split": "test", "case": "C = 1.0, iid"}
    for suffix, other in ((".csv", {}), (".printed.csv", {"verdict": "worse"})):
        table = pd.read_csv(folder / f"{KEY}{suffix}", dtype=str, keep_default_na=False)
        fits = (table[list(wanted)] == pd.Series(wanted)).all(axis=1)
        fits &= table["round"] == "" if "round" in table else True
        assert fits.sum() == 1
        table.loc[fits, ["mean", *other]] = ["0.5", *other.values()]
        table.to_csv(folder / f"{KEY}{suffix}", index=False)
        about["files"][suffix] = checksum_of((folder / f"{KEY}{suffix}").read_bytes())
    write_json(folder / f"{KEY}.json", about)
    assert told() == ("50.0", "50.0", before[2] - 1, before[3] - 1, "bad", "50.00")


def test_claims_and_leaderboards_that_were_taken_out_are_not_shown(monkeypatch):
    files = {"arena": SimpleNamespace(boards={"1": None})}
    monkeypatch.setattr("fedrepro.record.site.report_data.load_exhibits", lambda of: files)
    monkeypatch.setattr("fedrepro.record.site.report_data.claims_file", lambda paper: Path("gone"))
    found = read_reports(RECORD / "paper", "paper", [KEY, "arena/2-fashion-mnist-skewed"]).papers
    assert [(len(one.claims), len(one.boards)) for one in found] == [(0, 0), (0, 1)]


def test_a_closed_table_says_its_verdicts_and_claims_of_the_paper_stand_first():
    paper = read_reports(RECORD / "paper", "paper", [KEY]).papers[0]
    drawn = site_pages.paper_page(paper)
    (summary,) = re.findall(r'id="table-1"><summary>(.*?)</summary>', drawn, re.S)
    counts = map(int, re.findall(r'class="count">(\d+)', summary))
    assert sum(counts) == len(paper.printed_of("table-1")) > 0
    absent = drawn.partition('class="absent"')[2].partition("</ul>")[0]
    waiting = [v for v in read_published(published_file("rm")) if v.exhibit == "table-3"]
    found = re.findall(r"<b>(.*?)</b>, (\d+) printed", absent)
    assert ("Table 3", str(len(waiting))) in found
    claims = claims_of((RECORD / "paper/pfnm/claims.csv").read_text())
    names = re.findall(r'<tr id="(\w+)">', site_pages.page("claims.html", up="../", claims=claims))
    assert names[:3] + names[-8:] == ["p1", "p2a", "p2b", *(f"e{number}" for number in range(1, 9))]


@pytest.mark.parametrize(
    ("call", "given", "told"),
    [
        # of a card the first sentence with a number, and all of it
        (site_pages.telling,
         'It holds 94.9 %. It has <a class="number" href="x">3.5</a> or 2.5. 25 more.',
         'It has <a class="number" href="x">3.5</a> or 2.5.'),
        (site_pages.telling, "**All of it.** More", "**All of it.**"),
        # exhibits as papers call them
        (site_pages.plain_name, "figure-2a", "Figure 2a"),
        (site_pages.plain_name, "s-figure-3a-epochs", "Supplement, figure 3a, rounds of an epoch"),
        (site_pages.plain_name, "table-1-iid-10", "Table 1, IID, B = 10"),
        (site_pages.plain_name, "table-2-cnn-50", "Table 2, convolutional network, B = 50"),
        (site_pages.plain_name, "equal-size", "Equal size"),
        (site_pages.docstring, "With `a` and\n`b` a*b.", "With `a` and\n`b` a\\*b."),
    ],
)  # fmt: skip
def test_words_of_pages(call, given, told):
    assert call(given) == told


def test_a_method_page_has_its_options_and_every_word_of_a_verdict_is_one_thing():
    assert set(site_pages.KNOWN) <= set(components("method"))
    names = [word for words, _ in texts.glossary() for word in words]
    assert {*texts.PRINTED, *texts.CLAIMS} < set(names)
    assert len(names) == len(set(names))
    for known in (texts.PRINTED, texts.CLAIMS):
        judged = [word for word in known.values() if word.colour not in ("grey", "blank", "pale")]
        assert len({word.sign for word in judged}) >= len({word.colour for word in judged})
    assert "Source: FedAvg" in " ".join(site_pages.about(components("method")["average"]))
    reports = read_reports(RECORD / "paper", "paper", [KEY, "rm/grid-layout"])
    pages = site_pages.method_pages(reports)
    assert "geometrically from <code>steps</code>" in pages["fedavg"]
    assert "RM+AH: <a" in pages["adaptive_fedavg"]
    # and no file's name
    assert ">How the grid of hyper-parameters is laid out</a>" in pages["adaptive_fedavg"]


@pytest.mark.parametrize(
    ("check", "bound", "numbers", "told"),
    [
        ("accuracy (test) of A minus B: better, above 0.005", "better, above 0.005",
         "0.025188 0.02440 0.02597", "2.52 points (2.44 to 2.60); better, above 0.5 points"),
        ("accuracy (test) of A: at most 0.15", "at most 0.15", "0.1 0.1 0.1",
         "10 %; at most 15 %"),
        ("hidden units of A divided by B: at most 0.5", "at most 0.5", "0.4679 0.453 0.483",
         "0.47 × (0.45 to 0.48); at most 0.5 ×"),
        ("rounds until accuracy (test) of A is within 0.02 of B: above 4000", "above 4000",
         " 8000 ", "more than 8,000 rounds; above 4,000 rounds"),
        ("forward passes of A: at most 1", "at most 1", "1 1 1",
         "1 forward pass; at most 1 forward pass"),
        ("change of accuracy (test) of A along clients: at least -0.02", "at least -0.02",
         "-0.0004 -0.0005 -0.0003", "−0.04 points (−0.05 to −0.03); at least −2 points"),
        ("mean lr of A in the last round: below 0.08", "below 0.08", "0.3 0.2 0.4",
         "0.30 (0.20 to 0.40); below 0.08"),
        ("x", "", "0.5 0.4 0.6 0.995", "0.50 (0.40 to 0.60, at 99.5 %); "),
        ("x", "", "0.5  ", "0.50, error unknown; "),
        ("x", "", " 8000  0.975", "more than 8,000, at 97.5 %; "),
    ],
)  # fmt: skip
def test_the_number_of_a_claim_has_the_digits_that_its_interval_allows_and_a_unit(
    check, bound, numbers, told
):
    value, low, high, level, *_ = [*numbers.split(" "), "0.95"]
    row = {"check": check, "bound": bound, "value": value, "low": low, "high": high}
    row["confidence"] = level
    assert f"{texts.interval(row)}; {texts.bound_text(row)}" == told


def test_costs_are_those_of_the_csv_and_seconds_those_of_the_trials(tmp_path):
    shown = read_reports(RECORD / "paper", "paper", [KEY]).papers[0].exhibits["table-1"]
    numbers = shown.numbers
    rows = {row["Method"]: row for row in cost_table(shown.about, numbers)}
    assert set(rows) == set(numbers["method"])
    own = numbers[numbers["metric"] == "bytes_up"].set_index("method").loc["FA", "mean"]
    ends = [f"{size / 1e9:.3g} GB" for size in (own.min(), own.max())]
    assert rows["FA"]["Clients send"] == " to ".join(dict.fromkeys(ends))
    assert "example counts" in rows["FA"]["It sees"]
    assert "Seconds a round" in cost_table(shown.about, numbers.replace("bytes_down", "seconds"))[0]
    assert cost_table(shown.about, numbers[numbers["method"] == "FA"]) == []
    rows = {"trial": [0, 1, 0], "method": ["a", "a", "b+c~1"], "seconds": [1.0, 3.0, 5.0]}
    paths = [tmp_path / stage / "job/timings.parquet" for stage in ("aggregate", "train")]
    for path, columns in zip(paths, (rows, {"trial": [0], "seconds": [9.0]}), strict=True):
        write_table(path, columns, "timings", {})
    assert seconds_by_setting(paths) == {"a": [2.0], "b+c~1": [5.0]}


def test_only_a_site_is_replaced(tmp_path):
    """Whoever writes `--out ~/thesis` loses nothing."""
    theirs, link = tmp_path / "thesis", tmp_path / "link"
    theirs.mkdir()
    (theirs / "chapter.txt").write_text("one year")
    link.symlink_to(theirs)
    reports = read_reports(RECORD / "paper", "paper", [KEY])
    for out in (theirs, link, theirs / "chapter.txt"):
        with pytest.raises(FedreproError, match="a folder of other files than a site's"):
            build(reports, RECORD / "paper", out)
    assert (theirs / "chapter.txt").read_text() == "one year"
    (theirs / "chapter.txt").unlink()
    _require_own(theirs)
    _require_own(tmp_path / "new")


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
WIDTHS = (1440, 1300, 1100, 800, 375)  # with both lists at the sides, with one, with none
LOOKS = ((1300, "light"), (375, "dark"))


@pytest.fixture(scope="module")
def site() -> Path:
    """The site of the whole record, which no test may change."""

    def made(folder: Path) -> None:
        keys = drawn_keys(RECORD, "paper")
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(ROOT)
            build(read_reports(RECORD / "paper", "paper", keys), RECORD / "paper", folder / "site")

    return once.folder("whole-site", made) / "site"


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not CHROMIUM:
        pytest.skip("there is no chromium (Debian's chromium): pages were not opened")
    with playwright.sync_playwright() as started:
        found = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


def test_the_site_is_small_and_asks_for_nothing_from_elsewhere(site):
    _require_own(site)  # it may be written again
    assert sum(path.stat().st_size for path in site.rglob("*") if path.is_file()) < 22 * 2**20
    assert len([path for path in site.rglob("*.html") if "files" not in path.parts]) <= 120
    for path in site.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"<(?:script|img|link)[^>]+(?:src|href)=\"(?:https?:)?//", text), path


def test_every_link_leads_somewhere(site):
    ids = {
        path: set(re.findall(r'\bid="([^"]+)"', path.read_text(encoding="utf-8")))
        for path in site.rglob("*.html")
    }
    broken = []
    for path in ids:
        text = path.read_text(encoding="utf-8")
        for target in set(re.findall(r'\b(?:href|src)="([^"]*)"', text)):
            if re.match(r"(?:https?|mailto|data):", target) or target in ("", "#"):
                continue
            name, _, anchor = target.partition("#")
            place = (path.parent / name.partition("?")[0]).resolve() if name else path
            if not place.is_file() or (anchor and place in ids and anchor not in ids[place]):
                broken.append(f"{path.relative_to(site)}: {target}")
    assert not broken


# one page of each kind: to look at all of them by axe-core takes minutes
OPENED = (
    *("index.html", "papers/rm.html", "papers/arena.html", "papers/fedavg-numbers.html"),
    *("methods/regmean.html", "docs/claims.html", "reproduce.html", "search.html", "glossary.html"),
)


@pytest.mark.nightly
@pytest.mark.long
def test_pages_are_quiet_fit_and_accessible_in_a_browser(site, browser):
    """No error in the console, no request, no sideways scrolling; nothing serious by axe-core."""
    import axe_playwright_python

    axe = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
    context = browser.new_context(offline=True)
    page = context.new_page()
    faults: list[str] = []
    page.on("console", lambda m: m.type == "error" and faults.append(f"{page.url}: {m.text}"))
    page.on("pageerror", lambda error: faults.append(f"{page.url}: {error}"))
    page.on("request", lambda r: r.url.startswith(("http", "ws")) and faults.append(r.url))
    for path in sorted(path for path in site.rglob("*.html") if "files" not in path.parts):
        name = path.relative_to(site).as_posix()
        page.goto(path.as_uri(), wait_until="load")
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            reach = page.evaluate("document.documentElement.scrollWidth")  # wider cuts lines off
            faults += [f"{name} at {width}: {reach} pixels wide"] if reach > width else []
        for width, theme in LOOKS if name in OPENED else ():
            page.set_viewport_size({"width": width, "height": 900})
            page.emulate_media(color_scheme=theme)
            page.evaluate(axe)
            for one in page.evaluate("() => axe.run(document, {preload: false})")["violations"]:
                if one["impact"] in ("serious", "critical"):
                    html = one["nodes"][0]["html"][:160]
                    faults.append(f"{name} at {width}, {theme}: {one['id']} at {html}")
    assert not faults


@pytest.mark.parametrize("name", ["index", "docs/methods", "papers/arena", "papers/fedavg"])
def test_on_a_telephone_a_wide_table_stands_one_cell_below_the_other(site, browser, name):
    page = opened(browser, site, name, viewport={"width": 375, "height": 800})
    page.evaluate("document.querySelectorAll('details').forEach(fold => fold.open = true)")
    page.wait_for_selector("table.stacked", state="attached")
    scrolling = """[...document.querySelectorAll('.wide, .table-wrapper')]
        .filter(box => box.scrollWidth > box.clientWidth + 1).map(box => box.textContent)"""
    page.wait_for_function(f"!{scrolling}.length")
    row = page.locator("table.stacked tbody tr:visible").first
    first, last = (row.locator("td:visible, th:visible").nth(at).bounding_box() for at in (0, -1))
    assert last["y"] >= first["y"] + first["height"] - 1


def opened(browser, site, name, **options):
    page = browser.new_page(offline=True, **options)
    page.goto((site / f"{name}.html").as_uri())
    return page


def test_bubbles_and_tables_work_from_disk(site, browser):
    page = opened(browser, site, "papers/rm", viewport={"width": 1300, "height": 900})
    page.goto(f"{page.url}#table-1")
    page.locator("td[data-more]").first.focus()
    assert "Printed" in page.locator(".bubble").inner_text()
    page.goto((site / "papers/rm-numbers.html").as_uri())
    for column in ("Ours", "Ours"):
        page.locator("table.data th", has_text=column).click()
    first = page.locator("table.data tbody td:nth-child(6)").all_inner_texts()
    ours = [float(text.split()[0].replace(",", "")) for text in first if text[:1].isdigit()]
    assert len(ours) > 10
    assert ours == sorted(ours, reverse=True)


def test_home_is_readable_without_scripts_and_papers_are_short(site, browser):
    page = opened(browser, site, "index", java_script_enabled=False)
    papers = {path.parent.name for path in RECORD.glob("paper/*/claims.csv")}
    assert page.locator(".card, #what-else-was-checked li").count() == len(papers)
    assert page.locator(".scores .dot").count() > 10
    page = opened(browser, site, "papers/pfnm", viewport={"width": 1300, "height": 900})
    assert page.evaluate("document.querySelector('article').scrollHeight") <= 6000
