"""The files of an exhibit belong together: drawn, recorded, and recorded before checksums."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from synthetic import KEY, draw, made_once, plan, undrawn, workplace

from fedrepro.core.artifacts import read_json, write_json
from fedrepro.core.errors import FedreproError
from fedrepro.numbers.exhibit_files import open_exhibit, open_recorded, read_claims
from fedrepro.record.compare import compare
from fedrepro.record.record_results import RECORD, drawn_keys, record
from fedrepro.record.site.report_data import claims_of, drawings_of, read_reports
from fedrepro.stages.figures_and_pages import judge_claims

__all__ = ["undrawn", "workplace"]

ROOT = Path(__file__).parents[2]
FOLDER = Path("reports/tiny")
PUBLISHED = ROOT / "src/fedrepro/papers/pfnm/claims.yaml"
TABLES = [".csv", ".choice.csv", ".json"]
OTHER = "pfnm/figure-2b"

in_a_workplace = pytest.mark.usefixtures("workplace", "undrawn")


def test_everything_that_is_recorded_can_be_opened():
    folder = ROOT / "reports/record"
    for key in drawn_keys(folder, "paper"):
        files = open_recorded(folder / "paper", key, "paper")
        assert all(files.read(suffix) for suffix in files.suffixes)
        assert len(files.table(".csv")) > 0
        assert files.about["key"] == key


def two_exhibits():
    draw(plan())
    draw(plan(), OTHER, lambda *place: 0.5)


@in_a_workplace
@pytest.mark.parametrize("suffix", TABLES)
@pytest.mark.parametrize("how", ["cut", "another exhibit's", "not UTF-8"])
def test_what_is_not_the_exhibits_is_a_sentence_on_the_page_and_for_claims(suffix, how):
    made_once("two exhibits", two_exhibits)
    base, other = (FOLDER / key for key in (KEY, OTHER))
    good = Path(f"{base}{suffix}").read_bytes()
    bad = {
        "cut": good[:-40],
        "another exhibit's": Path(f"{other}{suffix}").read_bytes(),
        "not UTF-8": good[:50] + b"\xff" + good[50:],
    }
    Path(f"{base}{suffix}").write_bytes(bad[how])
    for reading in (
        lambda: read_reports(FOLDER, "tiny", [KEY]),
        lambda: record("tiny", [KEY]),
        lambda: judge_claims(PUBLISHED, [KEY], FOLDER, Path("out/pfnm/claims.csv")),
    )[: 2 if suffix == ".choice.csv" else 3]:
        with pytest.raises(FedreproError, match="figure-2a"):
            reading()


@in_a_workplace
def test_an_exhibit_of_before_checksums_is_drawn_again():
    base = draw(plan())
    kept = {k: v for k, v in read_json(f"{base}.json").items() if k != "files"}
    Path(f"{base}.json").write_text(json.dumps({**kept, "schema": 1}))
    with pytest.raises(FedreproError, match="make the figure again from the results that are"):
        open_exhibit(FOLDER, KEY, "tiny")


@in_a_workplace
def test_a_record_of_an_earlier_schema_is_read_and_an_altered_one_is_not():
    base = draw(plan())
    record("tiny", [KEY])
    kept = f"{RECORD}/tiny/{KEY}"
    write_json(f"{kept}.json", read_json(f"{kept}.json") | {"schema": 2})
    assert open_exhibit(RECORD / "tiny", KEY, "tiny").about["key"] == KEY
    assert compare("tiny", KEY).same_bytes
    assert record("tiny", [KEY], source=RECORD, target=Path("again")).files
    text = Path(f"{kept}.csv").read_text()
    Path(f"{kept}.csv").write_text(text.replace("0.", "1.", 1))
    with pytest.raises(FedreproError, match=r"incomplete or was altered: .*figure-2a\.csv is not"):
        compare("tiny", KEY)
    assert Path(f"{base}.csv").read_text() == text


@in_a_workplace
@pytest.mark.parametrize("bad", [b"claim,verdict\n", b"\xff\xfe"])
def test_verdicts_that_are_not_those_of_their_json_are_a_sentence(bad):
    draw(plan())
    table = FOLDER / "pfnm/claims.csv"
    judge_claims(PUBLISHED, [KEY], FOLDER, table)
    assert claims_of(read_claims(table))
    for path in (table, table.with_suffix(".json")):
        good = path.read_bytes()
        path.write_bytes(bad)
        with pytest.raises(FedreproError, match=rf"{path.name} cannot be read"):
            claims_of(read_claims(table))
        path.write_bytes(good)


@pytest.mark.parametrize("bad", ["", "[]", "{}", '{"partitions": 3}', "[[", '{"schema": 2}'])
def test_a_list_of_drawings_that_is_none_says_what_to_delete(tmp_path, bad):
    (tmp_path / "maps.json").write_text(bad)
    with pytest.raises(FedreproError, match=f"delete the folder {tmp_path}"):
        drawings_of(tmp_path, "partitions")
    write_json(tmp_path / "maps.json", {"schema": 2, "partitions": []})
    assert drawings_of(tmp_path, "partitions") == []
