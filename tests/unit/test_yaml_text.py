"""YAML by libyaml: the values of the plain reader, and a sentence where libyaml would crash."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from fedrepro.core.yaml_text import DEEPEST, parse_yaml

ROOT = Path(__file__).parents[2]
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
