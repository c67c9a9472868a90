"""Stage site: the pages of a scale from its exhibits, or of the record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fedrepro.core.artifacts import write_text
from fedrepro.record.record_results import drawn_keys
from fedrepro.record.site.build import build
from fedrepro.record.site.report_data import graphs_of, maps_of, read_reports
from fedrepro.stages.common import log

LEADS_ON = (
    '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>fedrepro</title>'
    '<meta http-equiv="refresh" content="0; url=site/index.html"></head>'
    '<body><p><a href="site/index.html">The report</a></p></body></html>\n'
)


def run(
    scale: str,
    folder: Path,
    out: Path,
    exhibits: Sequence[str] = (),
    maps: Path | None = None,
    graphs: Sequence[Path] = (),
) -> None:
    """Write the site of the exhibits in `folder`, all of them if none is named.

    Args:
        scale: of the exhibits.
        folder: of the drawn exhibits.
        out: a folder, or an index.html whose pages go to `site` in its folder.
        exhibits: keys of those to show.
        maps: folder of stage partition-maps.
        graphs: folders of stage graph-maps.
    """
    reports = read_reports(folder, scale, list(exhibits) or drawn_keys(folder.parent, scale))
    drawn = maps_of(maps) if maps else []
    heard = [graph for place in graphs for graph in graphs_of(place)]
    place = out.parent / "site" if out.suffix else out
    count = build(replace(reports, maps=drawn, graphs=heard), folder, place)
    if out.suffix:
        write_text(out, LEADS_ON)
    log(f"{place / 'index.html'}: {count} pages")
