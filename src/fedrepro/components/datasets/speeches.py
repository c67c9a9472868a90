"""Speeches: a small generated text with roles, for figures about Shakespeare at small scales."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np

from fedrepro.components.datasets._windows import Windows, texts_of
from fedrepro.core.registry import register
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.data.prepared import Arrays

# a sentence is the, one of NOUNS, one of DEEDS, the, one of NOUNS, with KINDS before a noun or not
NOUNS = [
    *("king", "queen", "fool", "ghost", "sea", "crown"),
    *("letter", "sword", "night", "garden", "moon", "rose"),
]
KINDS = ["old", "sad", "merry", "pale", "golden", "silent"]
DEEDS = ["loves", "fears", "finds", "forgets", "follows", "calls", "breaks", "keeps"]
ENDS = ".!?"
SENTENCES = 3  # of a line, at most
TASTE = 0.3  # concentration of a role's words: the smaller, the fewer it uses
NOTE = "The text is generated: sentences of a small grammar, of which each role has its words."


@register(
    "dataset",
    "speeches",
    version=1,
    files=(),
    title="Speeches",
    licence="MIT (generated)",
    citation="Written by this project",
)
def speeches(
    raw: Path,
    *,
    roles: Annotated[int, Arg("roles that speak", least=1, most=10_000)] = 20,
    lines: Annotated[int, Arg("lines of a role", unit="lines", least=2, most=10_000)] = 40,
    window: Annotated[int, Arg("characters that an example shows", least=1)] = 20,
    stride: Annotated[int, Arg("characters from one example to the next", least=1)] = 20,
    test: Annotated[float, Arg("last lines of each role, for testing", above=0, most=0.9)] = 0.2,
    validation: Annotated[
        float, Arg("lines of each role before these, for validation", least=0, most=0.9)
    ] = 0.0,
) -> Arrays:
    """Generate text: 20 characters of what a role says, and the next one; roles are groups.

    Sentences of a small grammar; which words a role likes is drawn for it, so that roles differ, as
    those of plays do. Drawn with a fixed seed, so that the text is the same in all runs; `raw` is
    not used. Cut as `shakespeare+whole~true` cuts plays. Kind text; x uint8 (N, window), character
    codes that are also the class numbers; scale 1.
    """
    names = [f"role {number}" for number in range(roles)]
    by_role = {name: _lines(number, lines) for number, name in enumerate(names)}
    texts = texts_of(by_role, names, test, validation)
    return Windows(window, stride, whole=True).arrays(texts, names, NOTE, NOTE)


def _lines(role: int, count: int) -> list[str]:
    """Draw the lines of a role; a line does not depend on how many there are."""
    draw = RngKey(0, client=role).stream("speeches")
    taste = {
        words: draw.dirichlet(np.full(len(words), TASTE))
        for words in (tuple(NOUNS), tuple(KINDS), tuple(DEEDS))
    }
    return [_line(draw, taste) for _ in range(count)]


def _line(draw: np.random.Generator, taste: dict[tuple[str, ...], np.ndarray]) -> str:
    nouns, kinds, deeds = ((words, share) for words, share in taste.items())

    def noun() -> str:
        kind = f"{draw.choice(kinds[0], p=kinds[1])} " if draw.random() < 0.5 else ""
        return f"the {kind}{draw.choice(nouns[0], p=nouns[1])}"

    sentences = []
    for _ in range(draw.integers(1, SENTENCES + 1)):
        end = ENDS[draw.integers(len(ENDS))]
        sentences.append(f"{noun()} {draw.choice(deeds[0], p=deeds[1])} {noun()}{end}")
    return " ".join(sentences)
