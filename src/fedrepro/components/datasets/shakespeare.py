"""Shakespeare, the next character of a text, where every role of every play is a group.

Data set of FedAvg (H. B. McMahan et al., Communication-efficient learning of deep networks from
decentralized data, AISTATS 2017) and of LEAF (S. Caldas et al., arXiv:1812.01097).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from fedrepro.components.datasets._plays import read_leaf, read_plays, read_tiny
from fedrepro.components.datasets._windows import PAD, Windows, texts_of
from fedrepro.core.artifacts import corrupt_file_error
from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import register
from fedrepro.core.spec import Arg
from fedrepro.data.prepared import Arrays

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
    whole: Annotated[
        bool, Arg("only windows that lie in a text, and none where it is too short")
    ] = False,
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
    the character that follows; LEAF steps by one character. The beginning of a text is filled with
    line breaks up to a full window, so that no role is too short for an example (LEAF drops such
    roles); `whole` takes windows of the text alone. Classes are the characters that training
    examples ask for; any other is left out. Validation lines come before the test lines of roles
    that have enough of them.

    Kind text; x uint8 (N, window), character codes that are also the class numbers; scale 1.
    """
    file = FILES[source][0]
    lines = READERS[source](raw / file)
    if not lines:
        raise corrupt_file_error(raw / file, "no role says anything in it")
    roles = [role for role in sorted(lines) if len(lines[role]) >= min_lines]
    if not roles:
        raise FedreproError(
            f"data set 'shakespeare': no role has min_lines~{min_lines} lines: choose a lower one"
        )
    texts = texts_of(lines, roles, test, validation)
    kinds = len({PAD, *"".join(texts["train"])})
    if kinds > LETTERS:
        raise corrupt_file_error(
            raw / file, f"it has {kinds:,} kinds of letters, at most {LETTERS} may be"
        )
    return Windows(window, stride, whole).arrays(
        texts,
        roles,
        STAND_INS[source].format(roles=len(roles), lines=min_lines),
        f"{len(lines):,} roles, {len(roles):,} of them with {min_lines} lines or more",
    )
