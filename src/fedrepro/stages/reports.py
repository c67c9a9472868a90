"""Stages exhibit, board, claims, maps and site: figures, tables and pages from finished runs."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pandas as pd

from fedrepro.core.artifacts import SCHEMA_VERSION, write_bytes, write_json, write_table, write_text
from fedrepro.core.component_tokens import shown_name
from fedrepro.core.errors import FedreproError, unknown
from fedrepro.core.spec import Spec
from fedrepro.data.partition_table import read_members
from fedrepro.data.prepared import load_prepared
from fedrepro.drawings.partition_and_graph_maps import (
    GraphMap,
    PartitionMap,
    graph_map,
    partition_map,
    render_map,
)
from fedrepro.numbers.exhibit_files import TIMES, write_claims, write_files
from fedrepro.numbers.exhibit_metadata import exhibit_metadata
from fedrepro.numbers.exhibit_tables import (
    Metrics,
    csv_text,
    read_csv,
    read_metrics,
    summarise,
    tidy,
)
from fedrepro.numbers.run_times import method_times, times_of
from fedrepro.numbers.verdicts.claims import verdicts
from fedrepro.planning.config import load_exhibits
from fedrepro.planning.jobs import specs_of
from fedrepro.planning.plan import Plan, Run
from fedrepro.record.leaderboards import parts_in, write_board
from fedrepro.record.record_results import drawn_keys
from fedrepro.record.site.build import build
from fedrepro.record.site.report_data import drawings_of, read_reports
from fedrepro.stages.job_log import log

# keys of the json that are repeated in the metadata of .metrics.parquet
SOURCE = ("key", "scale", "seed", "data", "components", "computed")
TRIAL = 0  # the trial that maps show
LEADS_ON = (
    '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>fedrepro</title>'
    '<meta http-equiv="refresh" content="0; url=site/index.html"></head>'
    '<body><p><a href="site/index.html">The report</a></p></body></html>\n'
)


def draw_exhibit(key: str, plan: Plan, out_base: Path) -> None:
    """Draw a figure or table from its runs' metrics; write its files to `out_base` + suffix.

    Files are .csv; .choice.csv, the parameter values that were tried; .json, the origin; and
    .metrics.parquet. A figure also has .svg and .png, a table .html and .printed.csv (the paper's
    numbers). Pictures are made from the text of the csv, so the csv has every number that is shown;
    measured times are in .times.csv. `key` is the figure or table as paper/name. `plan` names the
    files of metrics, below the current folder.
    """
    exhibit = plan.exhibit(key)
    files = {run: plan.run_files(run, trials) for run, trials in exhibit.trials.items()}
    tables = {run: read_metrics(paths) for run, paths in files.items()}
    _require_current(key, files, tables)
    rows = {run: table.rows for run, table in tables.items()}
    sources = {run: table.sources for run, table in tables.items()}
    failed = {
        path: source["failed"]
        for run, paths in files.items()
        for path, source in zip(paths, sources[run], strict=True)
        if "failed" in source
    }
    of_board = bool(plan.files[exhibit.paper].boards)
    summary = summarise(exhibit, rows, files, allow_all_failed=of_board or bool(failed))
    numbers = csv_text(summary.numbers)
    described = exhibit_metadata(exhibit, plan, plan.files[exhibit.paper], sources)
    if failed:
        words = dict.fromkeys(itertools.chain(*failed.values()))
        described |= {"notes": [*described["notes"], *words], "failed": failed}
    texts = {".csv": numbers.encode(), ".choice.csv": csv_text(summary.choice).encode()}
    every = read_csv(numbers)
    if exhibit.timed:
        times = csv_text(times_of(exhibit, files, list(summary.numbers.columns)))
        texts[TIMES] = times.encode()
        every = pd.concat([every, read_csv(times)], ignore_index=True)
    elif of_board and exhibit.is_table:
        texts[TIMES] = csv_text(method_times(exhibit, files, summary.numbers)).encode()
    shown = exhibit.settings.drawing.files(exhibit, described, every)
    source = {name: described[name] for name in SOURCE}

    write_table(f"{out_base}.metrics.parquet", tidy(exhibit, rows), "metrics", source, compact=True)
    write_files(f"{out_base}", described, texts | shown, ".metrics.parquet")
    log(f"{key}: {len(summary.numbers)} numbers from {sum(map(len, files.values()))} jobs")


def _require_current(
    key: str, files: Mapping[Run, Sequence[str]], tables: Mapping[Run, Metrics]
) -> None:
    """Raise FedreproError if metrics in `files` are of outdated versions or default parameters.

    Versions are those of data set, partition, model, training and method. Snakemake repeats
    outdated runs by itself, but not if their files were copied here. `tables` are the files'
    metrics, and `key` names the figure or table in the error.
    """
    old = []
    for run, table in tables.items():
        due = {spec.kind: [spec.resolved] for spec in (*specs_of(run.scenario), run.method)}
        for path, source in zip(files[run], table.sources, strict=True):
            for kind, now in due.items():
                then = source.get("resolved", {}).get(kind, now)
                if then != now:
                    old.append(f"{path} is of {then[0]}, which is {now[0]} now")
                    break
    if old:
        more = f", and so are {len(old) - 1} more files: delete them" if old[1:] else ": delete it"
        raise FedreproError(f"{key}: {old[0]}{more}, and start again")


def draw_board(key: str, scale: str, reports: Path, out: Path) -> None:
    """Write the files of the leaderboard `key`, such as arena/1, from its tables in `reports`.

    `scale` is the size of experiments: tiny, quick or paper. `out` is the files' path without
    suffix.
    """
    paper, _, version = key.partition("/")
    files = load_exhibits()
    known = {f"{name}/{board}": file for name, file in files.items() for board in file.boards}
    if paper in files.unread:
        raise files.unread[paper]
    if key not in known:
        raise unknown("leaderboard", key, known)
    write_board(known[key], version, scale, reports, out)
    count = len(parts_in(known[key], version, scale, reports))
    log(f"{key}: from {count} {'exhibit' if count == 1 else 'exhibits'}")


def judge_claims(published: Path, exhibits: Sequence[str], reports: Path, out: Path) -> None:
    """Judge a paper's claims by the numbers of our figures and tables; write verdicts to `out`.

    Verdicts are a csv. `published` is the paper's file of claims; `exhibits` names the figures and
    tables (paper/name), which are in the folder `reports`.
    """
    rows = verdicts(published, exhibits, reports)
    write_claims(out, csv_text(rows))
    counts = rows.groupby("claim")["verdict"].first().value_counts()
    log(f"{out}: " + ", ".join(f"{count} {name}" for name, count in counts.items()))


def draw_maps(kind: str, plan: Plan, exhibits: Sequence[str], out: Path) -> None:
    """Draw the partitions or graphs that figures and tables use, as svg files in the folder `out`.

    `kind` is "partitions" or "graphs"; `exhibits` names the figures and tables as paper/name. A
    json file in `out` lists the drawings.
    """
    found: list[tuple[PartitionMap | GraphMap, Spec, str, Sequence[str], dict[str, Any]]] = []
    if kind == "partitions":
        for (dataset, partition), keys in plan.partitions(exhibits).items():
            prepared = load_prepared(plan.jobs.dataset(dataset))
            file = plan.jobs.partition(dataset, partition, plan.blocks(TRIAL + 1)[-1])
            held = read_members(file, TRIAL, dataset, partition)
            one = partition_map(prepared, partition, held, plan.config.seed, TRIAL)
            numbers = {"skew": asdict(one.skew), "stand_in": prepared.stand_in}
            found.append((one, partition, shown_name(dataset, partition), keys, numbers))
    elif kind == "graphs":
        for (graph, clients), keys in plan.graphs(exhibits).items():
            drawn = graph_map(graph, clients, plan.config.seed, TRIAL)
            numbers = {"numbers": drawn.numbers}
            found.append((drawn, graph, f"{shown_name(graph)}--{clients}", keys, numbers))
    else:
        raise unknown("kind of maps", kind, ("partitions", "graphs"))
    entries = []
    for picture, spec, name, shown, numbers in found:
        write_bytes(out / f"{name}.svg", render_map(picture, [".svg"])[".svg"])
        entry = {
            "image": f"{name}.svg",
            "title": picture.title,
            "alt": picture.alt,
            "words": picture.words,
            "about": spec.component.doc,
            "token": spec.token,
            "exhibits": shown,
        }
        entries.append(entry | numbers)
    head = {"kind": f"{kind.removesuffix('s')}-maps", "schema": SCHEMA_VERSION}
    listed = out / ("maps.json" if kind == "partitions" else "graphs.json")
    write_json(listed, {**head, kind: entries})
    log(f"{out}: {len(entries)} {kind}")


def draw_site(
    scale: str,
    folder: Path,
    out: Path,
    exhibits: Sequence[str] = (),
    maps: Path | None = None,
    graphs: Sequence[Path] = (),
) -> None:
    """Write web pages on the figures and tables in `folder`, all or those in `exhibits`, to `out`.

    `scale` is tiny, quick or paper. `out` is a folder, or an index.html whose pages go to the
    folder `site` next to it. `maps` and `graphs` are folders with drawings of partitions and
    graphs, which `draw_maps` wrote.
    """
    reports = read_reports(folder, scale, list(exhibits) or drawn_keys(folder.parent, scale))
    drawn = drawings_of(maps, "partitions") if maps else []
    heard = [graph for place in graphs for graph in drawings_of(place, "graphs")]
    place = out.parent / "site" if out.suffix else out
    count = build(replace(reports, maps=drawn, graphs=heard), folder, place)
    if out.suffix:
        write_text(out, LEADS_ON)
    log(f"{place / 'index.html'}: {count} pages")
