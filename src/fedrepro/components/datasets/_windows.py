"""From what each role says to examples: windows of characters, and the character that follows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedrepro.components.datasets._plays import Lines
from fedrepro.data.prepared import SPLITS, Arrays

PAD = "\n"


def texts_of(
    lines: Lines, roles: Sequence[str], test: float, validation: float
) -> dict[str, list[str]]:
    """Cut the text of each role into splits, its lines in the order of the play."""
    texts: dict[str, list[str]] = {split: [] for split in SPLITS}
    for role in roles:
        role_lines = lines[role]
        last = len(role_lines) - min(max(1, math.ceil(test * len(role_lines))), len(role_lines) - 1)
        first = max(1, last - math.floor(validation * len(role_lines)))
        parts = {
            "train": role_lines[:first],
            "validation": role_lines[first:last],
            "test": role_lines[last:],
        }
        for split, part in parts.items():
            texts[split].append("\n".join(part))
    return texts


@dataclass(frozen=True)
class Windows:
    """A way to cut texts into windows.

    size, stride: characters of a window, and from one to the next. whole: whether all windows lie
    in the text; else its beginning is filled with line breaks.
    """

    size: int
    stride: int
    whole: bool = False

    def alphabet(self, texts: list[str]) -> str:
        """List the characters that training examples ask for: each class then has examples."""
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
        """Cut windows uint8 (N, size), next characters int64 (N,), roles int32 (N,)."""
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
        """Make a data set of what roles say in each split, a group for every role."""
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
