"""Widths of words in figures, lines that fit, and numbers of trials in words."""

from __future__ import annotations

import numpy as np

from fedrepro.drawings.style import TEXT


def text_width(text: str, size: float) -> float:
    """Return the width in points of a line of text in figures; `size` in points."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.path import Path
    from matplotlib.textpath import TextPath

    font = FontProperties(family=TEXT["font.family"])
    path = TextPath((0, 0), text, size=size, prop=font, usetex=False)
    # Most letters reach no further than the ends of their strokes, which are soon found; where a
    # curve bends beyond them, matplotlib works out how far each goes, in 20 ms a line.
    curved = path.codes == Path.CURVE3
    between = np.zeros_like(curved)
    between[curved] = np.arange(curved.sum()) % 2 == 0
    ends = path.vertices[~between & (path.codes != Path.CLOSEPOLY), 0]
    bends = path.vertices[between, 0]
    if not len(ends) or (path.codes == Path.CURVE4).any():
        return float(path.get_extents().width)
    low, high = ends.min(), ends.max()
    if ((bends < low) | (bends > high)).any():
        return float(path.get_extents().width)
    return float(high - low)


def wrapped(text: str, size: float, room: float) -> list[str]:
    """Break a text into lines of at most `room` inches; a long word stays whole."""
    lines: list[str] = []
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines else ""
        if lines and text_width(longer, size) <= 72 * room:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def trials_text(*counts: int) -> str:
    """Write numbers of trials: 5 trials, or 5 or 10 trials."""
    return f"{' or '.join(map(str, counts))} {'trial' if counts == (1,) else 'trials'}"
