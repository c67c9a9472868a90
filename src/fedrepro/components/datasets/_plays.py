"""From texts of plays to what each role says: {role: its lines in the order of the play}.

Three sources, three layouts; a role is a speaker of one play, and a line is one uninterrupted
speech of a role.
"""

from __future__ import annotations

import re
from pathlib import Path

from fedrepro.core.artifacts import corrupt_file_error
from fedrepro.data.archive import decompress_file, unpack_archive

Lines = dict[str, list[str]]

HEADING = re.compile(r"(ACT|SCENE)\b")
DIRECTION = re.compile(r"\[[^\]]*\]")
TINY_SPEAKER = re.compile(r"([A-Z][^\n:]*):$")
LEAF_YEAR = re.compile(r"1[56]\d\d$")
LEAF_SPEAKER = re.compile(r"  ([A-Z][A-Za-z ]*)\. (.*)")
LEAF_ERRORS = re.compile(r"([A-Z][A-Z ]*)\. (.*)")


class _Speeches:
    """Collects speeches; what nobody says (directions in brackets) is left out."""

    def __init__(self) -> None:
        self.lines: Lines = {}
        self.open: list[str] | None = None
        self.role = ""

    def begin(self, role: str, text: str = "") -> None:
        self.end()
        self.role, self.open = role, [text] if text else []

    def more(self, text: str) -> None:
        if self.open is not None:
            self.open.append(text)

    def end(self) -> None:
        if self.open is not None:
            spoken = DIRECTION.sub("", "\n".join(self.open))
            text = "\n".join(line.strip() for line in spoken.splitlines() if line.strip())
            if text:
                self.lines.setdefault(self.role, []).append(text)
        self.open = None


def read_plays(path: Path) -> Lines:
    """`plays.tar.xz`: a file for each play, `SPEAKER<tab>text`, continued by lines `<tab>text`."""
    speeches = _Speeches()
    with unpack_archive("shakespeare", path, _is_text) as folder:
        for play in sorted(folder.rglob("*.txt")):
            _read_play(_text(play, path), play.stem, speeches)
    return speeches.lines


def _is_text(member: str) -> bool:
    return member.endswith(".txt")


def _text(play: Path, archive: Path) -> str:
    try:
        return play.read_text(encoding="utf-8")
    except ValueError as error:
        raise corrupt_file_error(archive, f"{play.name} is not a text in UTF-8") from error


def _read_play(text: str, play: str, speeches: _Speeches) -> None:
    started = False
    for line in text.splitlines():
        speaker, tab, speech = line.partition("\t")
        if HEADING.match(line):
            # what stands before the first act is the list of roles
            started = started or line.startswith("ACT")
            speeches.end()
        elif started and tab and speaker:
            speeches.begin(f"{play}/{speaker}", speech)
        elif started and tab and not speech.isupper():
            speeches.more(speech)
        elif started and tab:
            speeches.end()  # the title of the play, again
    speeches.end()


def read_tiny(path: Path) -> Lines:
    """`tiny_shakespeare.txt.xz`: parts of plays one after another, `Speaker:` above a speech."""
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
    """Read the zip of Project Gutenberg that LEAF and FedAvg start from, all works in one text.

    A play begins with its year, then its title; a speech is `  ROLE. text`, indented by two (not at
    all in The Comedy of Errors), and goes on with lines indented by four.
    """
    speeches = _Speeches()
    with unpack_archive("shakespeare", path, _is_text) as folder:
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
            speeches.begin(f"{play}/{speaker[1].strip()}", speaker[2])
        elif play and line.startswith("  " if errors else "    "):
            speeches.more(line)
        else:
            speeches.end()
    speeches.end()
    return speeches.lines
