"""fedrepro submit and verify: an honest entry holds, and each alteration is found out."""

from __future__ import annotations

import json
import shutil
import socket
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from submissions import (
    MEDIAN,
    SAYS,
    chdir,
    folder_of,
    ground_folder,
    repacked,
    with_number,
    working_folder,
)

from fedrepro.cli import entries
from fedrepro.cli.main import main
from fedrepro.core.artifacts import read_json, read_source, read_table, write_table
from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import components
from fedrepro.machine import isolated
from fedrepro.planning.config import load_exhibits
from fedrepro.planning.described import ToldMethod, described, standing_in
from fedrepro.record import entry as archives
from fedrepro.record.boards import ARCHIVE, entries_in, write_board
from fedrepro.record.entry import unpack
from fedrepro.site.pages import board_part
from fedrepro.site.reading import read_reports
from fedrepro.stages import verify as module
from fedrepro.stages.verify import Here, verify

ARCHIVE_NAME = "entry.zip"
HERE = Here(entries._stage, "", 600)  # isolation has tests of its own
NOTHING_RUNS = Here(lambda words: pytest.fail(f"{words} ran"), "", 600)


@pytest.fixture(scope="module")
def submitter():
    """The folder of a submitter, with the archive."""
    return working_folder()


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The folder of a verifier: the leaderboard, and nothing of the method."""
    folder_of(tmp_path / "here", "")
    (tmp_path / "here/median.py").unlink()
    (tmp_path / "here/config/config.yaml").write_text("{}\n")
    with chdir(tmp_path / "here"):
        yield tmp_path


@pytest.mark.long
def test_an_honest_entry_is_verified_in_processes_without_network(submitter, place, capsys):
    """Where nothing isolates a process, without that."""
    words = [] if isolated.isolation() else ["--unprotected"]
    assert main(["verify", str(submitter / ARCHIVE_NAME), "--runs", "1", *words]) == 0
    said = capsys.readouterr().out
    assert "median of others, verified: 1 of 2 files of runs were computed again, with the" in said


@pytest.mark.long
def test_one_altered_number_is_found_out_however_well_it_is_packed(submitter, place, capsys):
    def change(told, files):
        name = next(name for name in files if name.endswith("metrics.parquet"))
        files[name] = with_number(place, name, files[name], 0.987)

    archive = repacked(submitter / ARCHIVE_NAME, place / "altered", change)
    assert main(["verify", str(archive), "--runs", "all", "--unprotected"]) == 1
    said = capsys.readouterr().out
    assert "accuracy: 0.987 in the archive, 0." in said
    assert "does not hold: 2 of 2 files of runs were computed again, 1 of them came out ot" in said
    assert main(["verify", str(archive), "--runs", "0", "--enter", "reports"]) == 2  # no board yet


def other_file(told, files):
    files["median.py"] = files["median.py"].replace(b"np.median", b"np.mean")


def other_settings(told, files):
    told["says"] = SAYS | {"settings": [{"trim": 0.1}]}


def other_label_and_parameter(told, files):
    told["says"] = SAYS | {"label": "mine", "epochs": 3}


def other_training(told, files):
    told["says"] = SAYS | {"training": {"epochs": 50}}


def other_needs(told, files):
    told["method"]["one_start"] = True


def other_origin(told, files):
    told["origin"][0]["digest"] = "0" * 32


def other_machine(told, files):
    told["origin"][0]["machine"]["cpu"] = "a fast one"


def other_seed(told, files):
    told["seed"] = 1


def fewer_runs(told, files):
    folder = next(name for name in files if name.endswith("metrics.parquet")).rpartition("/")[0]
    for name in [name for name in files if name.startswith(f"{folder}/")]:
        del files[name]


def without_times(told, files):
    del files[next(name for name in files if name.endswith("timings.parquet"))]


def swapped_runs(told, files):
    one, other = (name for name in files if name.endswith("metrics.parquet"))
    files[one], files[other] = files[other], files[one]


def a_number_in_place(told, files):
    name = next(name for name in files if name.endswith("metrics.parquet"))
    at = len(files[name]) // 4  # among the numbers, which come first
    files[name] = files[name][:at] + bytes([files[name][at] ^ 1]) + files[name][at + 1 :]


def unknown_exhibit(told, files):
    told["exhibits"] = ["1-digits", "1-letters"]


def unknown_paper(told, files):
    told["paper"] = "minor"


def as_a_reference(told, files):
    told["says"] = SAYS | {"reference": True}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (other_file, "metrics.parquet is of another method's file than the entry"),
        (other_settings, "unknown parameter 'trim'"),
        (other_label_and_parameter, "cannot set 'epochs', by which it would stand on another gro"),
        (other_training, "cannot set 'training'"),
        (as_a_reference, "cannot set 'reference'"),
        (other_origin, "its origin is not that of its files"),
        (other_machine, "its origin is not that of its files"),
        (other_seed, "it lacks results/tiny/aggregate/digits-median-"),
        (fewer_runs, "it lacks results/tiny/aggregate/digits-median-"),
        (without_times, r"it lacks .*timings.parquet"),
        (swapped_runs, "it was made as"),
        (a_number_in_place, "is damaged|cannot be read"),
        (unknown_exhibit, "unknown exhibit 'mini/1-letters'"),
        (unknown_paper, "unknown leaderboard 'minor'"),
    ],
)
def test_what_was_altered_is_refused_before_anything_of_it_is_run(
    submitter, place, monkeypatch, change, why
):
    archive = repacked(submitter / ARCHIVE_NAME, place / "altered", change)
    monkeypatch.setattr(isolated, "run", None)
    with pytest.raises(FedreproError, match=why):
        verify(archive, None, HERE)


@pytest.mark.parametrize("kind", ["metrics", "timings"])
def test_a_table_of_more_rows_than_any_run_has_is_refused_unread(
    submitter, place, monkeypatch, kind
):
    """A table of equal numbers takes few bytes in an archive, and all memory once it is read."""

    def longer(told, files):
        name = next(name for name in files if name.endswith(f"{kind}.parquet"))
        path = place / "longer" / name
        path.parent.mkdir(parents=True)
        path.write_bytes(files[name])
        source, table = read_source(path), read_table(path, kind)
        rows = pa.concat_tables([table.replace_schema_metadata()] * 2000)
        write_table(path, rows, kind, source)
        files[name] = path.read_bytes()

    archive = repacked(submitter / ARCHIVE_NAME, place / "altered", longer)
    monkeypatch.setattr(module, "MOST_NUMBERS", 12_000)
    with pytest.raises(FedreproError, match=rf"{kind}\.parquet holds [0-9,]+ rows of"):
        verify(archive, 0, HERE)


def test_a_file_that_is_another_method_than_it_was_described_as_is_refused(submitter, place):
    archive = repacked(submitter / ARCHIVE_NAME, place / "altered", other_needs)
    with pytest.raises(FedreproError, match=r"median\.py is not the method that it describes"):
        verify(archive, 1, HERE)


# ------------------------------------------------------------------------------ untrusted archives


def rezipped(archive: Path, out: Path, change) -> Path:
    """The same members, some otherwise: `change` gets (info, data) and gives a list of such."""
    with zipfile.ZipFile(archive) as given, zipfile.ZipFile(out, "w") as made:
        for info in given.infolist():
            for one, data in change(info, given.read(info)):
                made.writestr(one, data)
    return out


def named(name):
    return lambda info, data: (
        [(info, data), (name, b"x")] if info.filename == "entry.json" else [(info, data)]
    )


def linked(info, data):
    if info.filename == "median.py":
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        data = b"/etc/passwd"
    return [(info, data)]


def doubled(info, data):
    return [(info, data)] * (2 if info.filename == "median.py" else 1)


def without_manifest(info, data):
    return [] if info.filename == "entry.json" else [(info, data)]


def other_manifest(info, data):
    if info.filename == "entry.json":
        data = data.replace(b'"by": "a test"', b'"by": "another"')
    return [(info, data)]


def other_python(info, data):
    return [(info, data + b"\n" if info.filename == "median.py" else data)]


def missing(info, data):
    return [] if info.filename.endswith("timings.parquet") else [(info, data)]


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    ("change", "why"),
    [
        (named("../evil.py"), r"holds '\.\./evil\.py', a name that no file of an entry has"),
        (named("/etc/cron.d/evil"), "a name that no file of an entry has"),
        (named("results/tiny/../../x/metrics.parquet"), "a name that no file of an entry has"),
        (named("results/tiny/.x/metrics.parquet"), "a name that no file of an entry has"),
        (named("results\\tiny\\x\\metrics.parquet"), "a name that no file of an entry has"),
        (named("state.pkl"), "a name that no file of an entry has"),
        (named("other.py"), r"it has other\.py, which entry\.json does not name"),
        (named("folder/"), "a name that no file of an entry has"),
        (linked, r"median\.py is no plain file"),
        (doubled, r"it holds median\.py twice"),
        (without_manifest, r"it has no entry\.json"),
        (other_manifest, r"entry\.json is damaged, or was altered"),
        (other_python, r"median\.py is not the file that entry\.json names: it was altered"),
        (missing, r"timings\.parquet is missing, which entry\.json names"),
    ],
)
def test_an_archive_leads_nowhere_and_holds_what_an_entry_has(submitter, tmp_path, change, why):
    archive = rezipped(submitter / ARCHIVE_NAME, tmp_path / "bad.zip", change)
    (tmp_path / "out/deep").mkdir(parents=True)
    with pytest.raises(FedreproError, match=f"bad.zip is not taken: .*{why}"):
        unpack(archive, tmp_path / "out/deep")
    assert not list(tmp_path.rglob("*evil*"))


def test_an_archive_that_macos_packed_again_is_taken(submitter, tmp_path):
    def packed(info, data):
        name = info.filename
        added = [(part, b"") for part in ("results/", "__MACOSX/", ".DS_Store")]
        added = added if name == "entry.json" else []
        return [*added, (info, data), (f"__MACOSX/._{name}", b"x")]

    archive = rezipped(submitter / ARCHIVE_NAME, tmp_path / "mac.zip", packed)
    (tmp_path / "out").mkdir()
    (tmp_path / "plain").mkdir()
    plain = unpack(submitter / ARCHIVE_NAME, tmp_path / "plain")
    assert unpack(archive, tmp_path / "out").entry == plain.entry


def test_archives_that_are_none_or_too_large_are_refused(submitter, tmp_path, monkeypatch):
    bad = tmp_path / "bad.zip"
    for content in (b"", b"PK\x05\x06", (submitter / ARCHIVE_NAME).read_bytes()[:-300]):
        bad.write_bytes(content)
        with pytest.raises(FedreproError, match=r"no zip archive, or damaged|has no entry\.json"):
            unpack(bad, tmp_path)
    with pytest.raises(FedreproError, match=r"nowhere\.zip is missing"):
        unpack(tmp_path / "nowhere.zip", tmp_path)
    for limit, why in (("LARGEST", "it is larger"), ("LARGEST_FILE", "is larger than"),
                       ("MOST_FILES", "it holds more than 1 files")):  # fmt: skip
        with monkeypatch.context() as patch:
            patch.setattr(archives, limit, 1)
            with pytest.raises(FedreproError, match=why):
                unpack(submitter / ARCHIVE_NAME, tmp_path)
    with zipfile.ZipFile(bad, "w", zipfile.ZIP_DEFLATED) as archive:  # a bomb
        archive.writestr("entry.json", bytes(archives.LARGEST_FILE + 1))
    assert bad.stat().st_size < 2**20
    with pytest.raises(FedreproError, match="is larger than"):
        unpack(bad, tmp_path)
    with zipfile.ZipFile(bad, "w") as archive:
        archive.writestr("entry.json", json.dumps({"kind": "entry", "schema": 1}))
    with pytest.raises(FedreproError, match=r"entry\.json, \w+: "):
        unpack(bad, tmp_path)


def test_equal_entries_are_equal_archives(submitter, tmp_path):
    again = repacked(submitter / ARCHIVE_NAME, tmp_path / "again", lambda told, files: None)
    assert again.read_bytes() == (submitter / ARCHIVE_NAME).read_bytes()


# ------------------------------------------------------------------------- on the leaderboard


@pytest.fixture
def ground(tmp_path):
    """A folder with the leaderboard, of which nothing is read only."""
    shutil.copytree(ground_folder(), tmp_path / "ground")
    with chdir(tmp_path / "ground"):
        yield tmp_path / "ground"


def board_of(folder: Path) -> pd.DataFrame:
    return pd.read_csv(folder / "reports/tiny/mini/1.csv").set_index("method")


@pytest.mark.long
def test_rows_say_who_computed_them_where_there_are_entries_of_others(submitter, ground, capsys):
    archive, label = str(submitter / ARCHIVE_NAME), SAYS["label"]
    before = {path: path.read_bytes() for path in Path("reports/tiny/mini").iterdir()}
    assert "computed" not in board_of(ground)
    assert main(["verify", archive, "--runs", "0", "--enter", "reports"]) == 0
    assert f"{label}, reported: nothing was computed again" in capsys.readouterr().out
    table = board_of(ground)
    assert table["computed"].to_dict() == dict.fromkeys(table.index, "computed here") | {
        label: "reported"
    }
    told = str(table.loc[label, "without_rank"])
    assert told.startswith("reported by others, not verified; it would have score ")
    single = pd.read_csv("reports/tiny/mini/1.scenarios.csv")
    assert set(single[single["method"] == label]["computed"]) == {"reported"}
    for name in ("groups", "gains", "scenarios"):  # no picture shows what nobody here has seen
        assert label.encode() not in Path(f"reports/tiny/mini/1.{name}.svg").read_bytes()
    assert main(["verify", archive, "--runs", "all", "--enter", "reports", "--unprotected"]) == 0
    assert f"{label}, verified: 2 of 2 files of runs were" in capsys.readouterr().out
    table = board_of(ground)
    assert table.loc[label, "computed"] == "verified"
    assert pd.notna(table.loc[label, "score"])  # of two scenarios there are no groups
    (place,) = Path("reports/tiny/mini/1.entries").iterdir()
    told = read_json(place / "verdict.json")
    assert (told["status"], told["by"], told["runs"], len(told["computed"])) == (
        *("verified", "a test", 2, 2),
    )
    kept = {path: path.read_bytes() for path in before if path.name.startswith("1-digits")}
    assert kept == {path: before[path] for path in kept}  # the ground's own exhibit is as it was
    shutil.rmtree(place)
    write_board(load_exhibits()["mini"], "1", "tiny", Path("reports/tiny"))
    assert {path: path.read_bytes() for path in before} == before


def test_the_page_of_a_leaderboard_tells_them_apart(submitter, ground):
    assert main(["verify", str(submitter / ARCHIVE_NAME), "--runs", "0", "--enter", "reports"]) == 0
    (paper,) = read_reports(Path("reports/tiny"), "tiny", ["mini/1-digits"]).papers
    page = board_part(paper.boards[0], {})
    assert "Some rows are entries of others." in page
    assert ">Computed<" in page
    row = next(line for line in page.split("<tr>") if SAYS["label"] in line)
    assert "<i>reported</i>" in row
    assert ">here<" in next(line for line in page.split("<tr>") if "<td>FedAvg</td>" in line)


def test_an_entry_with_the_label_of_another_method_or_of_no_leaderboard_is_refused(
    submitter, ground, tmp_path
):
    def same(told, files):
        told["says"] = SAYS | {"label": "FedAvg"}

    archive = repacked(submitter / ARCHIVE_NAME, tmp_path / "same", same)
    with pytest.raises(FedreproError, match="an entry is called 'FedAvg', as another method"):
        verify(archive, None, NOTHING_RUNS, Path("reports"))
    # nothing of it stays, with which the leaderboard could not be drawn any more
    assert not Path("reports/tiny/mini/1.entries").exists()
    with pytest.raises(FedreproError, match="is no folder of reports"):
        verify(archive, None, NOTHING_RUNS, Path("elsewhere"))
    assert not Path("elsewhere").exists()


def test_a_later_entry_that_is_refused_leaves_the_earlier_one(submitter, ground, tmp_path):
    assert main(["verify", str(submitter / ARCHIVE_NAME), "--runs", "0", "--enter", "reports"]) == 0
    (place,) = Path("reports/tiny/mini/1.entries").iterdir()
    before = {path.name: path.read_bytes() for path in place.iterdir() if path.is_file()}

    def same(told, files):
        told["says"] = SAYS | {"label": "FedAvg"}

    archive = repacked(submitter / ARCHIVE_NAME, tmp_path / "same", same)
    with pytest.raises(FedreproError, match="an entry is called 'FedAvg'"):
        verify(archive, 0, HERE, Path("reports"))
    assert {path.name: path.read_bytes() for path in place.iterdir() if path.is_file()} == before


def test_an_archive_that_was_exchanged_after_its_verdict_is_told(submitter, ground):
    assert main(["verify", str(submitter / ARCHIVE_NAME), "--runs", "0", "--enter", "reports"]) == 0
    (place,) = Path("reports/tiny/mini/1.entries").iterdir()
    (place / ARCHIVE).write_bytes(b"other")
    with pytest.raises(FedreproError, match="it is not the archive of its verdict"):
        entries_in(Path("reports/tiny"), "mini", "1", "tiny")


# ---------------------------------------------------------------------------------- submitting


def test_what_cannot_be_submitted_is_a_sentence(submitter, tmp_path, capsys):
    shutil.copytree(submitter, tmp_path / "mine")
    with chdir(tmp_path / "mine"):
        words = ["submit", "mini/1", "--scale", "tiny", "--out", "out.zip"]
        for more, told in (
            (["--method", "mean"], "has no method 'mean' for mini (it has median of others)"),
            (["--scale", "quick"], "no exhibit of mini/1 is computed whole with 'median' at scale"),
        ):
            assert main([*words, *more]) == 2
            assert told in capsys.readouterr().err
        assert main(["submit", "minor/1"]) == 2
        assert "unknown leaderboard 'minor/1'" in capsys.readouterr().err
        Path("median.py").write_text(MEDIAN + "\n# mended\n")
    with chdir(tmp_path / "mine"):  # with version="dev" these are runs of another version
        assert main(words) == 2
        assert "of another median.py than is there now" in capsys.readouterr().err
    beside = "from fedrepro.core.rng import Rng\n"
    Path(tmp_path / "mine/other.py").write_text("x = 1\n")
    Path(tmp_path / "mine/median.py").write_text(MEDIAN.replace(beside, beside + "import other\n"))
    with chdir(tmp_path / "mine"):
        assert main(words) == 2
        assert "median.py alone cannot be used: " in capsys.readouterr().err
    assert not (tmp_path / "mine/out.zip").exists()


def test_every_method_can_be_described_and_stood_in_for():
    for name, item in components("method").items():
        if item.meta["scenario"]:
            with pytest.raises(FedreproError, match="sets its own"):
                described(item)
            continue
        told = ToldMethod.model_validate_json(described(item).model_dump_json())
        other = told.component()
        assert (other.params, other.doc, other.file) == (item.params, item.doc[:400], "")
        assert {k: v for k, v in other.meta.items() if k != "prepare"} == {
            k: v for k, v in item.meta.items() if k != "prepare"
        }
        if not any(param.required for param in item.params.values()):
            assert other.spec().resolved == item.spec().resolved
        with pytest.raises(FedreproError, match=f"'{name}' is there already"), standing_in(told):
            pass


# ------------------------------------------------------------------------------------ isolation

LOOK = """
import os, socket, sys
assert [name for _, name in socket.if_nameindex()] == ["lo"]
try:
    socket.create_connection(("127.0.0.1", int(sys.argv[1])), 5)
    raise SystemExit("it reaches this machine")
except OSError:
    pass
assert not os.path.exists(sys.argv[2]), "it sees a folder that it does not need"
assert open("given").read() == "yes"
for place in ("given", "new", os.path.join(sys.prefix, "new"), "/usr/new"):
    try:
        open(place, "w")
        raise SystemExit(f"it writes {place}")
    except OSError:
        pass
open("out/made", "w").write("made")
assert len([one for one in os.listdir("/proc") if one.isdigit()]) <= 2
print("held")
"""


@pytest.mark.parametrize("by", isolated.PROGRAMS)
def test_an_isolated_process_has_no_network_and_only_its_folders(by, tmp_path):
    if not isolated.can(by):
        pytest.skip(f"{by} isolates nothing here")
    folder, secret = tmp_path / "work", tmp_path / "secret"
    for place in (folder / "out", secret):
        place.mkdir(parents=True)
    (folder / "given").write_text("yes")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        ended = isolated.run(
            [sys.executable, "-c", LOOK, port, str(secret)],
            by=by, folder=folder, write=[folder / "out"], seconds=60,
        )  # fmt: skip
    assert ended.stdout == "held\n", ended.stderr
    assert (folder / "out/made").read_text() == "made"
    with pytest.raises(subprocess.TimeoutExpired):
        isolated.run(
            [sys.executable, "-c", "import time; time.sleep(60)"], by=by, folder=folder, seconds=2
        )


def test_without_isolation_nothing_of_a_stranger_is_run(submitter, place, monkeypatch, capsys):
    monkeypatch.setattr("fedrepro.machine.isolated.isolation", lambda: "")
    archive = str(submitter / ARCHIVE_NAME)
    assert main(["verify", archive]) == 2
    assert "nothing here isolates a method's file, which is a stranger's" in capsys.readouterr().err
    assert main(["verify", archive, "--runs", "0"]) == 0
    assert main(["verify", archive, "--runs", "some"]) == 2


def test_a_method_that_fails_or_takes_too_long_does_not_hold(submitter, place):
    found = verify(submitter / ARCHIVE_NAME, 1, Here(entries._stage, "", 1))
    assert "was not done after 0 minutes" in found.differing[0]
    assert found.status == "reported"


def test_a_file_that_is_missing_is_not_asked_for_again(tmp_path):
    from fedrepro.core.registry import components
    from fedrepro.stages.submit import describe

    with pytest.raises(FedreproError, match="is missing"):
        describe("nowhere.py", tmp_path / "told.json")
    assert "average" in components("method")
