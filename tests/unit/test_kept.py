"""Figures that were there come back where drawing them anew fails."""

from __future__ import annotations

from fedrepro.cli.kept import keep, put_back


def test_what_is_gone_comes_back_and_what_is_new_stays(tmp_path):
    reports, kept = tmp_path / "reports", tmp_path / "kept"
    drawn = [reports / f"quick/pfnm/figure-2a{suffix}" for suffix in (".svg", ".choice.csv")]
    other = reports / "quick/pfnm/figure-2b.svg"
    other.parent.mkdir(parents=True)
    for path in (*drawn, other):
        path.write_text(f"old {path.name}")
    other.with_suffix(".models").mkdir()
    keep(reports, kept)
    for path in drawn:
        path.unlink()
    new = other.with_name("drawn.tmp")
    new.write_text("new")
    new.replace(other)
    assert put_back(reports, kept) == sorted(drawn)
    assert [path.read_text() for path in drawn] == [f"old {path.name}" for path in drawn]
    # older than whatever they are drawn from
    assert {path.stat().st_mtime for path in drawn} == {1}
    assert other.read_text() == "new"
    assert other.stat().st_mtime > 1


def test_a_later_run_keeps_nothing_of_an_earlier_one(tmp_path):
    reports, kept = tmp_path / "reports", tmp_path / "kept"
    path = reports / "tiny/pfnm/figure-2a.svg"
    path.parent.mkdir(parents=True)
    path.write_text("drawn")
    keep(reports, kept)
    path.unlink()  # by its owner, between two runs
    keep(reports, kept)
    assert put_back(reports, kept) == []


def test_where_nothing_is_drawn_nothing_is_kept(tmp_path):
    keep(tmp_path / "reports", tmp_path / "kept")
    assert put_back(tmp_path / "reports", tmp_path / "kept") == []
