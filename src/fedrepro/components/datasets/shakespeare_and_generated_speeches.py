"""Shakespeare's plays, or a small generated text: windows of characters of each role's speeches.

Data set of FedAvg (H. B. McMahan et al., AISTATS 2017) and of LEAF (S. Caldas et al.,
arXiv:1812.01097). Three sources have three layouts; a role is a speaker of one play, and a line is
one uninterrupted speech of a role.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np

from fedrepro.core.checksummed_files import corrupt_file_error
from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import register
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Arg
from fedrepro.data.archive import decompress_file, unpack_archive
from fedrepro.data.prepared import SPLITS, Arrays

Lines = dict[str, list[str]]

HEADINGS = ("PROLOGUE", "EPILOGUE")
HEADING = re.compile(r"(ACT|SCENE)\b")
DIRECTION = re.compile(r"\[[^\]]*\]")
TINY_SPEAKER = re.compile(r"([A-Z][^\n:]*):$")
LEAF_YEAR = re.compile(r"1[56]\d\d$")
LEAF_SPEAKER = re.compile(r"  ([A-Z][A-Za-z ]*)\. (.*)")
LEAF_ERRORS = re.compile(r"([A-Z][A-Z ]*)\. (.*)")


class _Speeches:
    """Collects speeches by role while a text is read; stage directions in brackets are left out."""

    def __init__(self) -> None:
        self.lines: Lines = {}
        self.open: list[str] | None = None
        self.role = ""

    def begin(self, role: str, text: str = "") -> None:
        self.end()
        self.role, self.open = role, [text]

    def more(self, text: str) -> None:
        if self.open is not None:
            self.open.append(text)

    def end(self) -> None:
        spoken = DIRECTION.sub("", "\n".join(self.open or ()))
        text = "\n".join(line.strip() for line in spoken.splitlines() if line.strip())
        if text:
            self.lines.setdefault(self.role, []).append(text)
        self.open = None


def _plain(title: str) -> str:
    return title.replace("'", "").strip(" .")


def read_plays(path: Path) -> Lines:
    """Read the speeches of each role from `plays.tar.xz`: {role: speeches}.

    The archive has a file for each play, with lines `SPEAKER<tab>text`, continued by `<tab>text`.
    """
    speeches = _Speeches()
    with unpack_archive("shakespeare", path, lambda member: member.endswith(".txt")) as folder:
        for play in sorted(folder.rglob("*.txt")):
            try:
                lines = play.read_text(encoding="utf-8").splitlines()
            except ValueError as error:
                raise corrupt_file_error(path, f"{play.name} is not a text in UTF-8") from error
            started, title = False, next((line for line in lines if line.strip()), "")
            for line in lines:
                speaker, tab, speech = line.partition("\t")
                if HEADING.match(line):
                    # what stands before the first act is the list of roles
                    started = started or line.startswith("ACT")
                    speeches.end()
                elif started and tab and speaker:
                    speeches.begin(f"{play.stem}/{speaker}", speech)
                elif started and tab and _plain(speech) in {_plain(title), *HEADINGS}:
                    speeches.end()  # the title of the play, again
                elif started and tab:
                    speeches.more(speech)
            speeches.end()
    return speeches.lines


def read_tiny(path: Path) -> Lines:
    """Read the speeches of each role from `tiny_shakespeare.txt.xz`: {role: speeches}.

    The file has parts of plays, with `Speaker:` above each speech.
    """
    speeches = _Speeches()
    with decompress_file("shakespeare", path) as stream:
        text = stream.read().decode("utf-8")
    above = ""
    for line in text.splitlines():
        speaker = TINY_SPEAKER.fullmatch(line)
        if speaker and not above:
            speeches.begin(speaker[1])
        else:
            speeches.more(line)
        above = line
    speeches.end()
    return speeches.lines


def read_leaf(path: Path) -> Lines:
    """Read the speeches of each role from the zip of Project Gutenberg that LEAF uses.

    All works are in one text. A play begins with its year, then its title. A speech is a role's
    name, indented by two spaces (by none in The Comedy of Errors), a full stop and the text, and
    continues in lines indented by four. Returns {role: speeches}.
    """
    speeches = _Speeches()
    with unpack_archive("shakespeare", path, lambda member: member.endswith(".txt")) as folder:
        texts = sorted(folder.rglob("*.txt"))
        if not texts:
            raise corrupt_file_error(path, "it holds no text")
        lines = texts[0].read_text(encoding="latin-1").splitlines()
    play, awaiting = "", False
    for line in lines:
        errors = "COMEDY OF ERRORS" in play
        speaker = (LEAF_ERRORS if errors else LEAF_SPEAKER).match(line)
        if LEAF_YEAR.match(line.strip()):
            speeches.end()
            play, awaiting = "", True
        elif awaiting and line.strip():
            play, awaiting = line.strip(), False
        elif play and HEADING.match(line.strip()):
            speeches.end()
        elif play and speaker:
            speeches.begin(f"{play}/{speaker[1].strip().upper()}", speaker[2])
        elif play and line.startswith("  " if errors else "    "):
            speeches.more(line)
        else:
            speeches.end()
    speeches.end()
    return speeches.lines


PAD = "\n"


def texts_of(
    lines: Lines, roles: Sequence[str], test: float, validation: float
) -> dict[str, list[str]]:
    """Cut the lines of each role into training, validation and test texts, in the play's order.

    Of a role's speeches in `lines` the last, a share `test` and at least one, are for testing; the
    share `validation` is before these. Returns {split: a list with one text per role in `roles`}.
    """
    texts: dict[str, list[str]] = {split: [] for split in SPLITS}
    for role in roles:
        role_lines = lines[role]
        last = len(role_lines) - min(max(1, math.ceil(test * len(role_lines))), len(role_lines) - 1)
        first = max(1, last - math.floor(validation * len(role_lines)))
        parts = role_lines[:first], role_lines[first:last], role_lines[last:]
        for split, part in zip(SPLITS, parts, strict=True):
            texts[split].append("\n".join(part))
    return texts


@dataclass(frozen=True)
class Windows:
    """Cuts texts into windows of characters: examples whose label is the next character.

    size: characters of a window. stride: characters from one window's start to the next. whole:
    whether all windows lie within the text. If not, line breaks fill up windows at its beginning.
    """

    size: int
    stride: int
    whole: bool = False

    def alphabet(self, texts: list[str]) -> str:
        """Return the classes, sorted: the line break, and characters after windows of `texts`."""
        alphabet = "".join(sorted({PAD, *"".join(texts)}))
        while True:
            asked = np.unique(self.examples(texts, alphabet)[1])
            kept = "".join(sorted({PAD, *(alphabet[code] for code in asked)}))
            # a character left out moves the steps of a stride above 1, so look again
            if kept == alphabet:
                return alphabet
            alphabet = kept

    def examples(
        self, texts: list[str], alphabet: str
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Cut the texts of roles into windows, uint8 (N, size); return windows, labels, roles.

        A character's code is its position in `alphabet`; all other characters are dropped. Labels,
        int64 (N,), are codes of next characters; roles, int32 (N,), positions in `texts`.
        """
        code = {ord(character): chr(number) for number, character in enumerate(alphabet)}
        keep = dict.fromkeys(map(ord, set("".join(texts)) - set(alphabet))) | code
        sizes, codes, ends = [], [], []
        offset = 0
        for text in texts:
            text_codes = np.frombuffer(text.translate(keep).encode("latin-1"), np.uint8)
            filled = np.concatenate([np.full(self.size, alphabet.index(PAD), np.uint8), text_codes])
            ends.append(
                np.arange(self.size if self.whole else 0, text_codes.size, self.stride) + offset
            )
            sizes.append(ends[-1].size)
            codes.append(filled)
            offset += filled.size
        whole, first = np.concatenate(codes), np.concatenate(ends)
        windows = np.lib.stride_tricks.sliding_window_view(whole, self.size)
        role = np.repeat(np.arange(len(texts), dtype=np.int32), sizes)
        return windows[first], whole[first + self.size].astype(np.int64), role

    def arrays(
        self, texts: Mapping[str, list[str]], roles: Sequence[str], stand_in: str, note: str
    ) -> Arrays:
        """Return a data set of windows of `texts`, {split: one text for each of `roles`}.

        `stand_in` says how data differ from the papers', `note` is a remark for the log.
        """
        alphabet = self.alphabet(texts["train"])
        cut = {split: self.examples(texts[split], alphabet) for split in SPLITS}
        return Arrays(
            x={split: cut[split][0] for split in SPLITS},
            y={split: cut[split][1] for split in SPLITS},
            scale=1.0,
            shape=(self.size,),
            classes=tuple(alphabet),
            stand_in=stand_in,
            notes=(note,),
            kind="text",
            groups={split: cut[split][2] for split in SPLITS},
            group_names=tuple(roles),
        )


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
TestShare = Annotated[
    float, Arg("share of each role's lines, its last ones, for testing", above=0, most=0.9)
]
ValidationShare = Annotated[
    float, Arg("share of each role's lines before these, for validation", least=0, most=0.9)
]


@register(
    "dataset",
    "shakespeare",
    version=2,
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
        Arg("complete plays, LEAF's source file, or a megabyte of plays"),
    ] = "plays",
    window: Annotated[int, Arg("characters of an example", least=1)] = 80,
    stride: Annotated[int, Arg("characters from one example to the next", least=1)] = 1,
    whole: Annotated[bool, Arg("only windows that lie within a role's text")] = False,
    min_lines: Annotated[int, Arg("least lines of a role", unit="lines", least=2)] = 2,
    test: TestShare = 0.2,
    validation: ValidationShare = 0.0,
) -> Arrays:
    """Read Shakespeare: an example is a window of a role's speeches, its label the next character.

    As in FedAvg (section 3) and LEAF, a client is a speaking role with at least two lines
    (speeches). Its first 80 % are for training, the last 20 %, at least one, for testing.
    `validation` is the share of lines before the test lines. A role's lines of one split are joined
    by line breaks and cut into windows, one character apart as in LEAF. Line breaks fill up windows
    at the beginning of a text, so that no role is too short (LEAF drops short roles). With `whole`
    no windows are filled up. Classes are the characters that follow training windows; all other
    characters are dropped. Inputs x are uint8 (N, window): character codes, which are also the
    class numbers, used unscaled. `raw` is the folder of the downloaded file.
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
    roles: Annotated[int, Arg("number of roles", least=1, most=10_000)] = 20,
    lines: Annotated[int, Arg("lines of each role", unit="lines", least=2, most=10_000)] = 40,
    window: Annotated[int, Arg("characters of an example", least=1)] = 20,
    stride: Annotated[int, Arg("characters from one example to the next", least=1)] = 20,
    test: TestShare = 0.2,
    validation: ValidationShare = 0.0,
) -> Arrays:
    """Generate text: examples are 20 characters of a role's speeches, labels the next character.

    Sentences follow a small grammar, with words that each role prefers, so that roles (the natural
    groups) differ as in plays. The seed is fixed, so the text is the same in all runs; `raw` is not
    used. A role's last lines, a share `test`, are for testing, the share `validation` before these
    for validation. Windows lie within a role's text. Inputs x are uint8 (N, window): character
    codes, which are also the class numbers, used unscaled.
    """
    names = [f"role {number}" for number in range(roles)]
    by_role = {name: _lines(number, lines) for number, name in enumerate(names)}
    texts = texts_of(by_role, names, test, validation)
    return Windows(window, stride, whole=True).arrays(texts, names, NOTE, NOTE)


def _lines(role: int, count: int) -> list[str]:
    """Draw `count` lines of role number `role`; a line does not depend on `count`."""
    draw = RngKey(0, client=role).stream("speeches")
    nouns, kinds, deeds = (
        (words, draw.dirichlet(np.full(len(words), TASTE))) for words in (NOUNS, KINDS, DEEDS)
    )

    def word(words: list[str], chances: np.ndarray) -> str:
        return str(draw.choice(words, p=chances))

    def noun() -> str:
        kind = f"{word(*kinds)} " if draw.random() < 0.5 else ""
        return f"the {kind}{word(*nouns)}"

    def sentence() -> str:
        end = ENDS[draw.integers(len(ENDS))]
        return f"{noun()} {word(*deeds)} {noun()}{end}"

    lengths = (draw.integers(1, SENTENCES + 1) for _ in range(count))
    return [" ".join(sentence() for _ in range(length)) for length in lengths]
