"""docs/partitions.md: every partition is shown, and the one that it adds works."""

from __future__ import annotations

import importlib.util
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from partitioned import NAMES, data_of, rows_of

from fedrepro.core import registry
from fedrepro.core.registry import components, parse_token
from fedrepro.data.partition_files import build_partition

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "partitions.md").read_text()


@pytest.mark.parametrize("name", NAMES)
def test_every_partition_is_on_the_page_with_a_drawing_and_a_token(name: str) -> None:
    section = re.split(r"\n##+ ", PAGE.split(f"\n### {name}\n")[1])[0]
    figure = re.search(r"!\[.+\]\((figures/[\w.-]+)\)", section)
    assert figure
    assert 0 < (DOCS / figure[1]).stat().st_size < 200_000
    assert parse_token("partition", section.split("`")[-2]).name == name


def test_tokens_on_the_page_are_canonical() -> None:
    for token in re.findall(r"`(\w+\+[\w+~@.-]+)`", PAGE):
        assert parse_token("partition", token).token == token


@pytest.fixture
def added(tmp_path: Path) -> Iterator[None]:
    """The example of the page, found as a component for the time of a test."""
    text = PAGE.split("a-file-of-ones-own):\n\n")[1].split("\n- `examples`")[0]
    file = tmp_path / "main_class.py"
    file.write_text(textwrap.dedent(text))
    found = importlib.util.spec_from_file_location("main_class", file)
    assert found
    assert found.loader
    components("partition")
    found.loader.exec_module(importlib.util.module_from_spec(found))
    yield
    del registry._found["partition"]["main_class"]


@pytest.mark.usefixtures("added")
def test_the_partition_that_the_page_adds_works() -> None:
    spec = parse_token("partition", "main_class+clients~5+share~0.8")
    labels = np.arange(2000) % 10
    table = build_partition(spec, data_of(labels, labels[:100]), range(2), 0)
    for trial in (0, 1):
        rows = [(client, i) for client, split, i in rows_of(table, trial) if split == "train"]
        assert sorted(i for _, i in rows) == list(range(2000))
        own = np.mean([labels[i] % 5 == client for client, i in rows])
        assert own == pytest.approx(0.8 + 0.2 / 5, abs=0.03)
