"""The typed config, and the sentences for what it does not allow."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from fedrepro.core.errors import FedreproError
from fedrepro.core.yaml_text import DEEPEST, parse_yaml
from fedrepro.numbers.verdicts.claim_verdicts import load_claims
from fedrepro.planning.config import (
    ExhibitFile,
    load_config,
    load_exhibits,
    merge,
    read_config,
    require_yaml,
)
from fedrepro.planning.plan import Plan

ROOT = Path(__file__).parents[2]


def test_the_repositorys_config_is_valid():
    assert load_config(ROOT / "config/config.yaml") == read_config({})


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"scael": "quick"}, "unknown key 'scael' in config/config.yaml: did you mean 'scale'"),
        ({"scale": "huge"}, "'scale' is 'huge'"),
        ({"seed": -1}, "'seed' is -1"),
        ({"granularity": {"clients_per_job": 0}}, "clients_per_job"),
        ({"granularity": {"trials_per_job": 10**20}}, "'granularity.trials_per_job' is 10+; "),
        ({"exhibits": "headlin"}, "'exhibits' is 'headlin'; input should be 'headline' or"),
        ({"exhibits": 3}, "'exhibits' is 3; .*; or input should be a valid list"),
    ],
)
def test_bad_config_is_a_sentence(values, sentence):
    with pytest.raises(FedreproError, match=sentence):
        read_config(values)


def test_one_exhibit_may_be_named_without_a_list():
    plan = Plan(read_config({"exhibits": "pfnm/figure-2a"}), load_exhibits(), "tiny")
    assert [one.key for one in plan.selected] == ["pfnm/figure-2a"]


@pytest.mark.parametrize(
    "read",
    [
        load_config,
        load_claims,
        lambda path: require_yaml([str(path)]),
        lambda path: load_exhibits(path.parent)["mine"],
    ],
)
def test_a_doubled_key_is_a_sentence_in_every_file(tmp_path, read):
    """An exhibit that is given the name of another would be lost."""
    (tmp_path / "mine.yaml").write_text("seed: 1\nscale: tiny\nseed: 2\n")
    with pytest.raises(FedreproError, match=r"mine.yaml is not valid YAML: the key 'seed' stands"):
        read(tmp_path / "mine.yaml")


def test_files_that_are_missing_or_broken_are_sentences(tmp_path):
    sentence = "is missing; start in a folder that `fedrepro start FOLDER` made"
    with pytest.raises(FedreproError, match=sentence):
        load_config(tmp_path / "config.yaml")
    for text, sentence in (("a: [", "is not valid YAML"), ("text", "must hold keys and values")):
        (tmp_path / "config.yaml").write_text(text)
        with pytest.raises(FedreproError, match=sentence):
            load_config(tmp_path / "config.yaml")
    with pytest.raises(FedreproError, match="no exhibit files"):
        load_exhibits(tmp_path / "nowhere")
    (tmp_path / "config.yaml").write_text("paper: p\ntitle: t\nsource: s\nexhibits: {}\n")
    with pytest.raises(FedreproError, match="paper must be 'config', not 'p'"):
        load_exhibits(tmp_path)["config"]


def test_the_environment_wins_over_the_mirror_in_the_config(monkeypatch):
    for set_there, used in (("", "here"), ("there", "there")):
        monkeypatch.setenv("FEDREPRO_MIRROR", set_there)
        assert read_config({"mirror": "here"}).mirror_folder() == used


def test_mappings_merge_and_another_component_replaces():
    below = {"dataset": {"name": "mnist", "validation": 5}, "sweep": {"a": [1]}, "trials": 2}
    for change, whole in (
        ({"dataset": {"name": "digits"}}, {"dataset": {"name": "digits"}}),
        ({"dataset": {"validation": 6}}, {"dataset": {"name": "mnist", "validation": 6}}),
        ({"sweep": {"a": [2]}, "trials": 3}, {"sweep": {"a": [2]}, "trials": 3}),
    ):
        assert merge(below, change) == below | whole


def test_a_missing_key_of_an_exhibit_says_where():
    file = ExhibitFile(paper="p", title="", source="", exhibits={"f": {"title": "x"}})
    with pytest.raises(FedreproError, match=r"config/exhibits/p.yaml, f at scale quick: the key"):
        file.settings("f", "quick")


def test_python_of_a_paper_that_fails_hides_this_paper_alone(monkeypatch):
    def broken(paper):
        return {"paper": paper}["exhibits"]

    monkeypatch.setattr("fedrepro.planning.config.exhibits_of", broken)
    files = load_exhibits()
    readable = {path.parent.name for path in ROOT.glob("src/fedrepro/papers/*/exhibits.yaml")}
    assert set(files) == readable
    for paper in files.unread:
        with pytest.raises(FedreproError, match=r"\.py cannot be read \(KeyError: 'exhibits'\)"):
            files[paper]


def test_exhibits_as_yaml_say_the_same(tmp_path):
    files = load_exhibits()
    for paper, file in files.items():
        (tmp_path / f"{paper}.yaml").write_text(file.as_yaml(), encoding="utf-8")
    for paper, again in load_exhibits(tmp_path).items():
        assert again.model_dump() == files.pop(paper).model_dump()
    assert not files


# ------------------------------------------------------------------------------------------- YAML

FOLDERS = ("config", "profiles", "src", "tests", "workflow", "envs", ".github")
FILES = sorted(
    path
    for folder in FOLDERS
    for form in ("*.yaml", "*.yml")
    for path in (ROOT / folder).rglob(form)
    if ".snakemake" not in path.parts
)


@pytest.mark.parametrize("path", [*FILES, ROOT / "CITATION.cff"], ids=lambda path: path.name)
def test_files_say_what_the_plain_reader_finds(path):
    """And no key stands twice in one, of which that reader says nothing."""
    assert parse_yaml(path.read_text()) == yaml.safe_load(path.read_text())


@pytest.mark.parametrize("word", ["[", "{a: ", "- ", "? ", "[{a: "])
def test_what_is_nested_too_deeply_is_one_line_and_no_crash(word):
    with pytest.raises(ValueError, match=f"more than {DEEPEST} lists or keys within each other"):
        parse_yaml(word * 300_000)
    assert str(parse_yaml("[" * DEEPEST + "]" * DEEPEST)) == "[" * DEEPEST + "]" * DEEPEST


@pytest.mark.parametrize(
    "bad",
    ["a: [", "\t- x", "*a", "2001-99-99", "!!python/object:os.system x", f"a: {'9' * 5000}"]
    + [f"a: !!{tag}" for tag in ("int ''", "bool maybe", "float x", "timestamp x")],
)
def test_what_is_not_yaml_is_one_line(bad):
    with pytest.raises(ValueError, match=r"^[^\n]+$"):
        parse_yaml(bad)


@pytest.mark.parametrize(
    ("bad", "line"),
    [
        ("a: 1\nb: 2\na: 3", 3),
        ("x:\n- {c: 1}\n- {b: 1,\n   b: 1}", 4),
        ("1: a\n0x1: b", 2),
        ("a: &x {b: 1}\nc: {<<: *x, <<: *x}", 2),
        ("figure-2a: {}\n'figure-2a': {}", 2),
    ],
)
def test_a_key_that_stands_twice_is_refused(bad, line):
    with pytest.raises(
        ValueError, match=f"stands twice in one place, the second time in line {line}"
    ):
        parse_yaml(bad)


def test_a_key_of_its_own_goes_before_a_merged_one():
    """Also where the merged one is itself merged, and read after what it is merged into."""
    assert parse_yaml("a: &x {b: 1}\nc: {<<: *x, d: 2}")["c"] == {"b": 1, "d": 2}
    text = "a: {b: {c: &x {<<: &y {d: 1, e: 1}, d: 2}}}\nf: {<<: *x, e: 3}\ng: {<<: [*x, *y]}"
    assert parse_yaml(text) == yaml.safe_load(text)
    assert parse_yaml(text)["f"] == {"d": 2, "e": 3}
