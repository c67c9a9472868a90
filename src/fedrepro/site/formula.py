"""Formulas as paths of svg, drawn by matplotlib when pages are built: they need no network."""

from __future__ import annotations

from dataclasses import dataclass

SIZE = 17.0  # of letters, in pixels
COMMANDS = {1: "M", 2: "L", 3: "Q", 4: "C", 79: "Z"}


@dataclass(frozen=True)
class Formula:
    """A formula's text, its size in pixels, and its outline as svg has it."""

    text: str
    wide: float
    high: float
    path: str


def formula(text: str) -> Formula:
    """Typeset a formula in the notation of TeX.

    Raises:
        ValueError: if it cannot be read.
    """
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath

    letters = FontProperties(math_fontfamily="stix")
    outline = TextPath((0, 0), f"${text}$", size=SIZE, prop=letters)
    box = outline.get_extents()
    parts = []
    for points, code in outline.iter_segments(simplify=False, curves=True):
        pairs = zip(points[::2] - box.x0, box.y1 - points[1::2], strict=True)
        ends = "" if code == 79 else " ".join(f"{x + 1:.1f} {y + 1:.1f}" for x, y in pairs)
        parts.append(f"{COMMANDS[int(code)]}{ends}")
    return Formula(text, round(box.width + 2, 1), round(box.height + 2, 1), "".join(parts))
