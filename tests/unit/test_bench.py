"""Benchmarks run at a small size and fail where a target is; a tool plays other processors."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import loaded
import pytest
import yaml
from mirror import MIRROR, ROOT, needs_mirror

from fedrepro.cli.main import main
from fedrepro.core.errors import FedreproError
from fedrepro.planning.config_files import load_exhibits
from fedrepro.planning.exhibit import exhibit_of

pytestmark = pytest.mark.usefixtures("in_root")
sys.path.insert(0, str(ROOT / "benchmarks"))
import harness  # noqa: E402


def bench(name: str, folder: Path, *words: object) -> tuple[int, dict]:
    script = f"benchmarks/{name}.py"
    done = loaded.python([script, *map(str, words), "--results", str(folder)], ROOT)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    (path,) = folder.glob("*.json")
    return done.returncode, json.loads(path.read_text())


def runs(*seconds: float) -> list[harness.Timed]:
    return [harness.Timed(one, {"accuracy": one}) for one in seconds]


@pytest.mark.parametrize(("bound", "status"), [(2.0, 0), (2.5, 1)])
def test_a_missed_target_is_exit_status_1(tmp_path, capsys, bound, status):
    measured = {"ours": runs(1, 2, 9), "theirs": runs(3, 4, 5)}
    ratio = harness.times_faster(measured, "ours", "theirs")
    assert ratio == 2.0
    target = harness.Target("times faster", ratio, bound)
    assert harness.Target("share", ratio, bound, at_least=False).met  # a ceiling
    assert not harness.Target("share", ratio, 1.9, at_least=False).met
    assert harness.conclude("x", tmp_path, {"size": 1}, measured, [target], note="n") == status
    assert ("MISSED" in capsys.readouterr().out) == bool(status)
    found = json.loads((tmp_path / "x.json").read_text())
    ours = {"median_seconds": 2, "seconds": [1, 2, 9], "values": {"accuracy": 2}}
    assert found["contenders"]["ours"] == ours
    assert found["targets"][0]["met"] is not bool(status)
    assert found["note"] == "n"
    assert {"cpu", "cores", "versions", "revision", "load"} <= set(found["machine"])


def test_the_page_names_every_benchmark(capsys):
    assert main(["bench"]) == 0
    names = capsys.readouterr().out.partition("names are ")[2].split()
    (row,) = [line for line in Path("docs/using.md").read_text().splitlines() if "bench tr" in line]
    assert {name.strip(",") for name in names} == {
        *row.split("also ")[1].split("`")[1::2],
        "training",
    }


def test_a_benchmark_is_a_script_of_its_own_and_contenders_run_in_turn(capfd):
    assert main(["bench", "quick", "--help"]) == 0
    assert "fedrepro bench quick" in capfd.readouterr().out
    assert main(["bench", "matchin"]) == 2
    assert "did you mean 'matching'" in capfd.readouterr().err
    order = []
    both = {n: harness.timed(lambda n=n: order.append(n) or {}) for n in "ab"}
    harness.in_turn(both, 3)
    assert order == [*"ab", *"ab", *"ba", *"ab"]


LIBRARIES = ("MKL", "OpenBLAS", "oneDNN")


PRODUCTS = {
    f"{kind}, {library}": {}
    for kind in ("products", "products with matching")
    for library in LIBRARIES
}
ROUNDS = {"fedrepro": {}, "with matching": {}} | PRODUCTS


@pytest.mark.parametrize(
    ("name", "words", "least"),
    [
        (
            *("training", "--dataset digits --clients 3 --epochs 1"),
            {name: {"accuracy": 0.5} for name in ("fedrepro", "loop of slices")}
            | {f"products by {name}": {} for name in LIBRARIES},
        ),
        (
            *("gems", "--dataset digits+validation~200 --points 5 --clusters 9 7"),
            {"neural trial": {"hidden_units": 9}, "second setting": {"hidden_units": 7}},
        ),
        pytest.param(
            *("revisions", f"--before {ROOT} --works lr-mnist", {"lr-mnist before": {}}),
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            *("rounds", "--workload rm-mlp --rounds 1", ROUNDS), marks=pytest.mark.nightly
        ),
        pytest.param("steps", "--only lenet-28-64", {}, marks=pytest.mark.nightly),
        ("matching", "--clients 3 --units 4 --inputs 6", {}),
        pytest.param("memory", "--clients 2 4 --block 2", {}, marks=pytest.mark.nightly),
        pytest.param("checksums", "--clients 2 3 --epochs 1", {}, marks=pytest.mark.nightly),
        pytest.param("planning", "--jobs 50", {}, marks=pytest.mark.nightly),
    ],
)
def test_benchmarks_run_small(tmp_path, name, words, least):
    once = () if name == "memory" else ("--runs", 1)
    _, found = bench(name, tmp_path, *once, *words.split())
    for contender, values in least.items():
        made = found["contenders"][contender]["values"]
        assert all(made[key] >= value for key, value in values.items())
    if name == "matching":
        assert found["targets"][1]["what"].startswith("same assignments")
        assert found["targets"][1]["met"]
    assert all(0 < share < 1 for share in found.get("shares", {}).values())
    if name == "planning":
        about = found["settings"]
        assert about["jobs"] == pytest.approx(about["bare_jobs"], rel=0.3)


@needs_mirror
def test_rounds_without_peers(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDREPRO_MIRROR", str(MIRROR))
    words = ("--runs", 1, "--rounds", 2, "--peers")
    status, found = bench("rounds", tmp_path, *words)
    assert status == 0
    for name in ("fedrepro", "loop of slices"):
        assert found["contenders"][name]["values"]["accuracy"] > 0.5


def test_peers_that_are_missing_are_named_and_the_population_can_be_planned(tmp_path, monkeypatch):
    import peer  # sets variables
    import population

    monkeypatch.setattr(peer, "PYTHON", harness.ROOT / "absent" / "python")
    with pytest.raises(FedreproError, match="make bench-peers"):
        peer.Peer("pfl_rounds.py", tmp_path / "p.npz", tmp_path / "log")
    (tmp_path / "population.yaml").write_text(yaml.safe_dump(population.exhibits(10_000)))
    planned = exhibit_of(load_exhibits(tmp_path)["population"], "rounds", "quick")
    assert [point.values["clients"] for point in planned.points] == [10_000]


def test_without_a_checkout_there_are_no_benchmarks(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["bench", "quick"]) == 2
    assert "only a checkout has the benchmarks; start in its root" in capsys.readouterr().err


TOOL = Path(__file__).parents[2] / "tools/other_processors.py"
# in the place of QEMU: says what it was given, and whose tests fail
STAND_IN = """#!/bin/sh
echo "qemu-x86_64: warning: TCG doesn't support requested feature"
grep -h . "$2/proc/cpuinfo"
echo "numba $NUMBA_CACHE_DIR; mkl $MKL_CBWR; words $*"
test "$QEMU_CPU" != "$FAILING"
"""


def run(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    own = os.environ | {"PATH": f"{folder}:/usr/bin:/bin"} | variables
    return subprocess.run(
        [sys.executable, str(TOOL), *words], env=own, capture_output=True, text=True, timeout=60
    )


@pytest.mark.skipif(platform.machine() != "x86_64", reason="only x86-64 plays other processors")
def test_each_processor_has_flags_and_a_cache_of_its_own(tmp_path):
    (tmp_path / "qemu-x86_64").write_text(STAND_IN)
    (tmp_path / "qemu-x86_64").chmod(0o755)
    found = run(tmp_path, "tests/unit", "-m", "bytes", MKL_CBWR="COMPATIBLE")
    assert found.returncode == 0
    parts = found.stdout.split("== ")[1:]
    assert [part.splitlines()[0] for part in parts] == ["Haswell-noTSX", "EPYC"]
    assert len({part.partition("numba ")[2].partition(";")[0] for part in parts}) == 2
    for part in parts:
        assert "flags\t\t: avx avx2 fma\n" in part
        assert "mkl ;" in part  # fedrepro names the branch, as it would there
        assert part.rstrip().endswith("-k not lstm and not sorting tests/unit -m bytes")
        assert "warning" not in part
    assert run(tmp_path, FAILING="Haswell-noTSX").returncode == 1
    (tmp_path / "qemu-x86_64").unlink()
    found = run(tmp_path, PATH=str(tmp_path))
    assert found.returncode == 2
    assert "qemu-user" in found.stderr
