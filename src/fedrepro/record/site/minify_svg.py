"""Drawings of the record with fewer bytes, for pages that are sent and opened from disk."""

from __future__ import annotations

import re
from collections import Counter

# attributes with places; the scale of a letter is not one
PLACES = re.compile(r' (?:d|x|y)="[^"]*"|translate\([^)]*\)')
LONG = re.compile(r"\d+\.\d{3,}")
SPARE = re.compile(r"<metadata>.*?</metadata>|<!--.*?-->|<!DOCTYPE[^>]*>|<\?xml[^>]*>", re.DOTALL)
ID, REFERENCE = re.compile(r' id="([^"]*)"'), re.compile(r"#([\w.-]+)")
LINES, COMMAND = re.compile(r'(?<= d=")[^"]*'), re.compile(r"\s*([A-Za-z])\s*")
STYLE, AFTER = re.compile(r' style="([^"]*)"'), re.compile(r"(?<=[:;]) ")
SHEET = "</style>"
BETWEEN = re.compile(r">\s+<")
LINK, SPACE = re.compile(r"\bxlink:href="), ' xmlns:xlink="http://www.w3.org/1999/xlink"'
LETTER = re.compile(r'(<use href="[^"]*") transform="translate\(([-\d.]+) ([-\d.]+)\)"(?=/>)')


def minify_svg(svg: str) -> str:
    """Write the picture in a third of its bytes, to a hundredth of a point.

    It leaves out metadata, comments, names without a reference, and spaces that say nothing; other
    names are a letter and a number. A style that several elements have is a class.
    """
    short = LINK.sub("href=", SPARE.sub("", svg))
    short = short if "xlink:" in short.replace(SPACE, "") else short.replace(SPACE, "")
    referred = set(REFERENCE.findall(short))
    named = [name for name in dict.fromkeys(ID.findall(short)) if name in referred]
    names = {name: f"n{number}" for number, name in enumerate(named)}
    short = ID.sub(lambda match: f' id="{names[match[1]]}"' if match[1] in names else "", short)
    short = REFERENCE.sub(lambda match: f"#{names.get(match[1], match[1])}", short)
    short = PLACES.sub(lambda match: LONG.sub(_rounded, match[0]), short)
    short = LINES.sub(lambda match: COMMAND.sub(r"\1", match[0]), short)
    short = STYLE.sub(lambda match: AFTER.sub("", match[0]), short)
    short = LETTER.sub(_placed, _classed(short))
    return BETWEEN.sub("><", short).strip() + "\n"


def _classed(svg: str) -> str:
    """Turn styles that occur twice or more into classes of the drawing's own sheet."""
    counts = Counter(STYLE.findall(svg))
    names = {style: f"s{n}" for n, style in enumerate(s for s in counts if counts[s] > 1)}
    before, sheet, after = svg.partition(SHEET)
    if not sheet or " class=" in after:
        return svg
    classes = "".join(f".{name}{{{style}}}" for style, name in names.items())
    after = STYLE.sub(
        lambda match: f' class="{names[match[1]]}"' if match[1] in names else match[0], after
    )
    return before + classes + sheet + after


def _rounded(match: re.Match[str]) -> str:
    return f"{float(match[0]):.2f}".rstrip("0").rstrip(".")


def _placed(match: re.Match[str]) -> str:
    """Place a letter by x and y, a third of the bytes of `translate`."""
    x, y = (f' {axis}="{value}"' for axis, value in zip("xy", match.groups()[1:], strict=True))
    return match[1] + x + (y if float(match[3]) else "")
