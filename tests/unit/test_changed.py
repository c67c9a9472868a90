"""A component whose file changed under the same version is named by the next run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from synthetic import KEY, SOURCE, plan, workplace, write_runs

from fedrepro.core.artifacts import read_provenance, read_table, write_table
from fedrepro.core.provenance import provenance
from fedrepro.core.registry import components
from fedrepro.planning import changed
from fedrepro.planning.changed import _stamp, changed_components, component_files

__all__ = ["workplace"]


@pytest.fixture
def computed(workplace, monkeypatch):
    """Results of the tiny plan that say with which files of components they were computed."""
    monkeypatch.setattr("synthetic.write_table", with_components)
    made = plan()
    write_runs(made, KEY)
    return made


def with_components(path, table, kind, source):
    """The metrics of the first figure, as its jobs would write them."""
    if kind == "metrics":
        names = [name for name in table.column_names if name.endswith("_name")]
        kinds = {name.removesuffix("_name"): table[name][0].as_py() for name in names}
        required = {"homogeneous": {"clients": 2}}
        specs = [components(k)[own].spec(required.get(own)) for k, own in kinds.items()]
        own = provenance(0, specs=specs)
        source = {**source, "component_files": own["component_files"]}
    write_table(path, table, kind, source)


def changing(monkeypatch, name):
    """The file of one component gets another digest."""
    was = changed.file_of
    monkeypatch.setattr(
        changed, "file_of", lambda item: "1 " + "0" * 16 if item.name == name else was(item)
    )


def test_a_file_says_which_components_computed_it(computed):
    runs = computed.exhibit(KEY).trials
    (path,) = computed.run_files(next(r for r in runs if r.method.name == "pfnm"), 1)
    found = dict(component_files(_stamp(path)))
    assert found == read_provenance(read_table(path, "metrics"))["component_files"]
    assert set(found) == {
        *("dataset digits", "partition homogeneous", "model mlp", "training adam", "method pfnm")
    }
    assert all(text.split()[0] == "1" and len(text.split()[1]) == 16 for text in found.values())


def test_nothing_is_said_while_nothing_changed(computed):
    assert changed_components(computed) == []
    assert list(component_files(_stamp("nowhere.parquet"))) == []


def test_a_changed_file_is_said_once_with_how_many_runs_stay(computed, monkeypatch):
    changing(monkeypatch, "pfnm")
    (sentence,) = changed_components(computed)
    assert sentence.startswith("method 'pfnm' changed in ")
    assert "since 2 of the runs in results were computed" in sentence
    assert "raise its version" in sentence


def test_a_component_of_another_version_is_not_named(computed, monkeypatch):
    """It runs again by itself."""
    changing(monkeypatch, "pfnm")
    monkeypatch.setattr(changed, "_now", lambda name: "2 " + "0" * 16)
    assert changed_components(computed) == []


def test_results_of_before_say_nothing(workplace):
    assert "component_files" not in SOURCE
    write_runs(plan(), KEY)
    assert changed_components(plan()) == []


MINE = '''
from fedrepro.api import method

@method("mine", kind="one_shot", version="dev")
def mine(clients, info, *, rng):
    """What one works on."""
'''


def test_a_component_in_development_has_a_version_that_changes_with_its_file(tmp_path):
    """What Snakemake compares, so that every change of the file runs it again."""
    start = (
        "import sys, fedrepro.methods as found; found.__path__.append(sys.argv[1])\n"
        "from fedrepro.core.registry import parse_token\n"
        "from fedrepro.core.provenance import provenance\n"
        "spec = parse_token('method', 'mine')\n"
        "print(spec.resolved, provenance(specs=[spec])['component_files']['method mine'])\n"
    )

    def resolved(text):
        (tmp_path / "mine.py").write_text(text)
        command = [sys.executable, "-c", start, str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    one, same, two = resolved(MINE), resolved(MINE), resolved(MINE + "    return clients\n")
    assert one == same != two
    assert one.startswith("mine;vdev-")
    version, digest = one.split()[1:]
    assert version == f"dev-{digest}"


def test_every_component_has_a_file_that_can_be_named():
    for kind in ("dataset", "partition", "model", "training", "feature", "method"):
        assert all(Path(item.file).is_file() for item in components(kind).values())
