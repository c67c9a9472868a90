"""How wide words are in figures, and lines that fit."""

from __future__ import annotations

from fedrepro.drawings.style import TEXT


def text_width(text: str, size: float) -> float:
    """Points that a line of text takes in figures; size in points."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath

    font = FontProperties(family=TEXT["font.family"])
    return float(TextPath((0, 0), text, size=size, prop=font, usetex=False).get_extents().width)


def wrapped(text: str, size: float, room: float) -> list[str]:
    """The lines of a text that is to fit into `room` inches; a long word stays whole."""
    found: list[str] = []
    for word in text.split():
        longer = f"{found[-1]} {word}" if found else ""
        if found and text_width(longer, size) <= 72 * room:
            found[-1] = longer
        else:
            found.append(word)
    return found
