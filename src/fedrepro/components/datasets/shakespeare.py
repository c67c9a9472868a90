"""Shakespeare, the next character of a text, where every role of every play is a group.

Data set of FedAvg (H. B. McMahan et al., Communication-efficient learning of deep networks from
decentralized data, AISTATS 2017) and of LEAF (S. Caldas et al., arXiv:1812.01097).
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Literal

import numpy as np

from fedrepro.components.datasets._plays import Lines, read_leaf, read_plays, read_tiny
from fedrepro.core.artifacts import damaged
from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import register
from fedrepro.core.spec import Arg
from fedrepro.data.prepared import SPLITS, Arrays

FILES = {
    "plays": ("plays.tar.xz",),
    "leaf": ("1994-01-100.zip",),
    "tiny": ("tiny_shakespeare.txt.xz",),
}
READERS = {"plays": read_plays, "leaf": read_leaf, "tiny": read_tiny}
STAND_INS = {
    "plays": "Shakespeare's plays from another edition than that of FedAvg and LEAF: "
    "{roles:,} roles of {lines} lines or more.",
    "leaf": "",
    "tiny": "Parts of Shakespeare's plays, a megabyte in all, stand in for the complete works.",
}
PAD = "\n"
LETTERS = 256  # kinds of characters that fit a byte


@register(
    "dataset",
    "shakespeare",
    version=1,
    files=FILES,
    title="Shakespeare",
    licence="public domain",
    citation="The complete works of William Shakespeare; as a federated data set: McMahan et al.: "
    "Communication-efficient learning of deep networks from decentralized data. AISTATS 2017",
)
def shakespeare(
    raw: Path,
    *,
    source: Annotated[
        Literal["plays", "leaf", "tiny"],
        Arg("complete plays, the file that LEAF starts from, or a megabyte of plays"),
    ] = "plays",
    window: Annotated[int, Arg("characters that an example shows", least=1)] = 80,
    stride: Annotated[int, Arg("characters from one example to the next", least=1)] = 1,
    min_lines: Annotated[int, Arg("lines that a role must have", unit="lines", least=2)] = 2,
    test: Annotated[float, Arg("last lines of each role, for testing", above=0, most=0.9)] = 0.2,
    validation: Annotated[
        float, Arg("lines of each role before these, for validation", least=0, most=0.9)
    ] = 0.0,
) -> Arrays:
    """Shakespeare: 80 characters of what a role says, and the next one; a group for every role.

    As FedAvg (section 3) and LEAF: each speaking role with at least two lines is a client; its
    first 80 % of lines are for training and the last 20 %, at least one, for testing. A line is a
    speech. An example is a window over the role's lines of one split, joined by line breaks, and
    the character that follows; LEAF steps by one character. The beginning of a text is filled
    with line breaks up to a full window, so that no role is too short for an example (LEAF drops
    such roles). Classes are the characters that training examples ask for; any other is left out.
    Validation lines come before the test lines of roles that have enough of them.
    Kind text; x uint8 (N, window), character codes that are also the class numbers; scale 1.
    Errors: FedreproError for a missing or damaged file, or if no role has so many lines.
    """
    file = FILES[source][0]
    lines = READERS[source](raw / file)
    if not lines:
        raise damaged(raw / file, "no role says anything in it")
    roles = [role for role in sorted(lines) if len(lines[role]) >= min_lines]
    if not roles:
        raise FedreproError(
            f"data set 'shakespeare': no role has min_lines~{min_lines} lines: choose a lower one"
        )
    texts = _texts(lines, roles, test, validation)
    kinds = len({PAD, *"".join(texts["train"])})
    if kinds > LETTERS:
        raise damaged(raw / file, f"it has {kinds:,} kinds of letters, at most {LETTERS} may be")
    alphabet = _alphabet(texts["train"], window, stride)
    examples = {s: _examples(texts[s], alphabet, window, stride) for s in SPLITS}
    return Arrays(
        x={split: examples[split][0] for split in SPLITS},
        y={split: examples[split][1] for split in SPLITS},
        scale=1.0,
        shape=(window,),
        classes=tuple(alphabet),
        stand_in=STAND_INS[source].format(roles=len(roles), lines=min_lines),
        notes=(f"{len(lines):,} roles, {len(roles):,} of them with {min_lines} lines or more",),
        kind="text",
        groups={split: examples[split][2] for split in SPLITS},
        group_names=tuple(roles),
    )


def _texts(lines: Lines, roles: list[str], test: float, validation: float) -> dict[str, list[str]]:
    """The text of each role in each split, its lines in the order of the play."""
    texts: dict[str, list[str]] = {split: [] for split in SPLITS}
    for role in roles:
        said = lines[role]
        last = len(said) - min(max(1, math.ceil(test * len(said))), len(said) - 1)
        first = max(1, last - math.floor(validation * len(said)))
        parts = {"train": said[:first], "validation": said[first:last], "test": said[last:]}
        for split, part in parts.items():
            texts[split].append("\n".join(part))
    return texts


def _alphabet(texts: list[str], window: int, stride: int) -> str:
    """Characters that training examples ask for; without the others each class has examples."""
    alphabet = "".join(sorted({PAD, *"".join(texts)}))
    while True:
        asked = np.unique(_examples(texts, alphabet, window, stride)[1])
        kept = "".join(sorted({PAD, *(alphabet[code] for code in asked)}))
        # a character left out moves the steps of a stride above 1, so look again
        if kept == alphabet:
            return alphabet
        alphabet = kept


def _examples(
    texts: list[str], alphabet: str, window: int, stride: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Windows uint8 (N, window), next characters int64 (N,), roles int32 (N,)."""
    code = {ord(character): chr(number) for number, character in enumerate(alphabet)}
    keep = dict.fromkeys(map(ord, set("".join(texts)) - set(alphabet))) | code
    sizes, codes, ends = [], [], []
    at = 0
    for text in texts:
        own = np.frombuffer(text.translate(keep).encode("latin-1"), np.uint8)
        filled = np.concatenate([np.full(window, alphabet.index(PAD), np.uint8), own])
        ends.append(np.arange(0, own.size, stride) + at)
        sizes.append(ends[-1].size)
        codes.append(filled)
        at += filled.size
    whole, first = np.concatenate(codes), np.concatenate(ends)
    windows = np.lib.stride_tricks.sliding_window_view(whole, window)
    role = np.repeat(np.arange(len(texts), dtype=np.int32), sizes)
    return windows[first], whole[first + window].astype(np.int64), role
