"""Stages exhibit, board, claims and site: figures, tables and pages from finished runs.

A scale is a size of experiments: tiny, quick or paper. `reports` and `folder` have results of one.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from fedrepro.core.checksummed_files import temporary_folder, write_bytes, write_table, write_text
from fedrepro.core.errors import FedreproError
from fedrepro.core.params import comparable_text
from fedrepro.numbers import exhibit_files
from fedrepro.numbers import tables_and_selection as tables
from fedrepro.numbers.exhibit_files import TIMES, ExhibitFiles
from fedrepro.numbers.run_times import method_times, times_of
from fedrepro.numbers.trial_statistics import COLUMNS, with_pairs
from fedrepro.numbers.verdicts.claim_verdicts import verdicts
from fedrepro.planning.config_files import load_config, load_exhibits
from fedrepro.planning.drawing_base import final
from fedrepro.planning.plan import Exhibit, Plan, Run
from fedrepro.planning.scenarios_runs_and_jobs import public_data_of, specs_of
from fedrepro.record import record_entries_and_leaderboards as records
from fedrepro.record.site.build import build
from fedrepro.record.site.report_data import read_reports
from fedrepro.stages.data import resolved
from fedrepro.stages.job_log_results_gpu_lock import log

# keys of the json that are repeated in the metadata of .metrics.parquet
SOURCE = ("key", "scale", "seed", "data", "components", "computed")
KEPT = ("data", "components", "computed", "timings")  # of the json: where numbers come from
LEADS_ON = (
    '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>fedrepro</title>'
    '<meta http-equiv="refresh" content="0; url=site/index.html"></head>'
    '<body><p><a href="site/index.html">The report</a></p></body></html>\n'
)


def draw_exhibit(key: str, plan: Plan, out_base: Path) -> None:
    """Draw the figure or table `key`, such as pfnm/figure-2a, from the metrics of runs in `plan`.

    Files are `out_base` + .csv, the means; .choice.csv, the parameter values that were tried;
    .json, the inputs and code that gave the results; .metrics.parquet, the metrics by trial; for
    some tables .times.csv. A figure also has .svg and .png; a table has .html and .printed.csv (the
    paper's numbers). Pictures are made from the csv files, so these have every number shown.
    """
    exhibit = plan.exhibit(key)
    files = {run: plan.run_files(run, trials) for run, trials in exhibit.trials.items()}
    metrics = {run: tables.read_metrics(paths) for run, paths in files.items()}
    rows, sources = ({run: own[at] for run, own in metrics.items()} for at in (0, 1))
    pairs = {run: dict(zip(files[run], own, strict=True)) for run, own in sources.items()}
    _require_current(key, pairs)
    every_source = itertools.chain.from_iterable(own.items() for own in pairs.values())
    failed = {path: source["failed"] for path, source in every_source if "failed" in source}
    of_board = bool(plan.files[exhibit.paper].boards)
    summary = tables.summarise(exhibit, rows, files, allow_all_failed=of_board or bool(failed))
    numbers = tables.csv_text(summary.numbers)
    described = exhibit_files.exhibit_metadata(exhibit, plan, sources)
    described |= _failures(described, failed)
    texts = {".csv": numbers.encode(), ".choice.csv": tables.csv_text(summary.choice).encode()}
    every = tables.read_csv(numbers)
    if exhibit.timed:
        times = tables.csv_text(times_of(exhibit, files, list(summary.numbers.columns)))
        texts[TIMES] = times.encode()
        every = pd.concat([every, tables.read_csv(times)], ignore_index=True)
    elif of_board and exhibit.is_table:
        texts[TIMES] = tables.csv_text(method_times(exhibit, files, summary.numbers)).encode()
    shown = exhibit.settings.drawing.files(exhibit, described, every)
    source = {name: described[name] for name in SOURCE}

    tidied = tables.tidy(exhibit, rows)
    write_table(f"{out_base}.metrics.parquet", tidied, "metrics", source, compact=True)
    exhibit_files.write_files(f"{out_base}", described, texts | shown, ".metrics.parquet")
    log(f"{key}: {len(summary.numbers)} numbers from {sum(map(len, files.values()))} jobs")


def _require_current(key: str, files: Mapping[Run, Mapping[str, Any]]) -> None:
    """Raise FedreproError if `files`, {run: {path: provenance}}, are of outdated code versions."""
    old = {}
    for run, sources in files.items():
        for spec in (*specs_of(run.scenario), run.method):
            for path, source in sources.items():
                then = source.get("resolved", {}).get(spec.kind, [spec.resolved])
                if then != [spec.resolved] and path not in old:
                    old[path] = f"{path} is of {then[0]}, which is {spec.resolved} now"
        public, tune = public_data_of(run.method), run.tune
        now = (public and resolved(public)), (tune and tune.resolved)
        for path, source in sources.items():
            then = [source.get("public_data", {}).get("resolved"), source.get("tune")]
            for was, due in zip(then, now, strict=True):
                if was and due and was != due:
                    old[path] = f"{path} is of {was}, which is {due} now"
    first, *others = [*old.values()] or [""]
    if first:
        more = f", and so are {len(others)} more files: delete them" if others else ": delete it"
        raise FedreproError(f"{key}: {first}{more}, and start again")


def redraw(scale: str, keys: Sequence[str], target: Path = records.RECORD) -> records.Recorded:
    """Redraw figures and tables kept in `target` by present code; return new files and warnings.

    FedreproError is raised if one of `keys` (paper/name) is not in `target`, or must be computed
    again, because recorded methods, swept values or trials differ from the configured ones.
    """
    plan = Plan(load_config(), load_exhibits(), scale)
    with temporary_folder() as folder:
        for key in keys:
            exhibit = plan.exhibit(key)  # first, since it refuses a leaderboard by its name
            _draw(plan, exhibit, exhibit_files.open_recorded(target / scale, key, scale), folder)
        return records.record(scale, keys, folder, target)


def _draw(plan: Plan, exhibit: Exhibit, files: ExhibitFiles, folder: Path) -> None:
    numbers = files.table(".csv")
    _require_all(exhibit, numbers, plan.scale)
    if exhibit.pairs:
        plain = numbers.drop(columns=list(COLUMNS), errors="ignore")
        paired = with_pairs(plain.to_dict("records"), exhibit)
        numbers = pd.DataFrame(paired, columns=[*plain.columns, *COLUMNS])
    text = tables.csv_text(numbers)
    about = files.about
    described = {name: about[name] for name in KEPT} | exhibit_files.describe(exhibit, plan)
    _require_same(exhibit, about, described)
    described |= _failures(described, about.get("failed", {}))
    run = {name: files.run[name] for name in records.RUN if name in files.run}
    base = folder / plan.scale / exhibit.key
    contents = {".csv": text.encode(), ".choice.csv": files.read(".choice.csv")}
    every = tables.read_csv(text)
    if TIMES in files.suffixes:
        contents[TIMES] = files.read(TIMES)
        every = pd.concat([every, tables.read_csv(contents[TIMES].decode())], ignore_index=True)
    contents |= exhibit.settings.drawing.files(exhibit, described, every)
    base.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(Path(f"{base}.metrics.parquet"), files.read(".metrics.parquet"))
    exhibit_files.write_files(str(base), described | {"run": run}, contents, ".metrics.parquet")


def _failures(about: Mapping[str, Any], failed: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return what `failed`, {metrics file: sentences}, changes in a figure's json `about`."""
    words = dict.fromkeys(itertools.chain(*failed.values()))
    return {"notes": [*about["notes"], *words], "failed": failed} if failed else {}


def _require_same(exhibit: Exhibit, about: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise FedreproError if the record `about` has another seed or scenario than `now` says."""
    differing = [] if about["seed"] == now["seed"] else [f"seed {about['seed']}"]
    for kind, then in about["scenario"].items():
        ours = now["scenario"].get(kind, {"name": "", "values": {}})
        differing += [kind] if then["name"] != ours["name"] else []
        differing += [k for k, v in then["values"].items() if ours["values"].get(k, v) != v]
    tokens, others = ({m["label"]: m["token"] for m in one["methods"]} for one in (about, now))
    differing += [label for label, token in tokens.items() if others.get(label) != token]
    if differing:
        said = f"{exhibit.key} is recorded with other values than the config has, of"
        raise FedreproError(f"{said} {', '.join(differing)}: compute it again")


def _require_all(exhibit: Exhibit, numbers: pd.DataFrame, scale: str) -> None:
    """Raise FedreproError unless recorded `numbers` have just the configured methods and trials."""
    recorded, chosen, wanted, settings = dict[Any, int](), set[Any](), dict[Any, int](), set[Any]()
    for row in final(numbers).to_dict("records"):
        at = (*(comparable_text(row[key]) for key in exhibit.swept), row["method"])
        recorded[at] = int(row["trials"])
        chosen |= {(*at, row["setting"])} if isinstance(row["setting"], str) else set()
    for point in exhibit.points:
        place = tuple(map(comparable_text, point.values.values()))
        wanted |= {(*place, label): trials for label, trials in point.trials.items()}
        settings |= {(*place, m.label, one.token) for m in point.measures for one in m.settings}
    differing = {key[-1] for key, trials in wanted.items() if recorded.get(key) != trials}
    other = sorted(differing | {key[-2] for key in chosen - settings if key[-1]})
    if other or len(recorded) > len(wanted):
        said = f"{exhibit.key}: the record has other methods, points or numbers of trials than the"
        fix = f"compute it again with: {exhibit_files.command(scale, exhibit.key, exhibit.suffix)}"
        raise FedreproError(f"{said} config, of {', '.join(other) or 'all'}; {fix}")


def draw_board(key: str, scale: str, reports: Path, out: Path) -> None:
    """Write leaderboard `key` (paper/name, such as arena/1) from tables in the folder `reports`.

    Paths are `out` + a suffix: .csv (leaderboard), .scenarios.csv (numbers by scenario), .times.csv
    (seconds), .json (settings, tables used). Pictures end in .groups or .bytes, then .svg or .png.
    """
    paper, _, version = key.partition("/")
    file = load_exhibits()[paper]
    records.write_board(file, version, scale, reports, out)
    log(f"{key}: from {len(records.parts_in(file, version, scale, reports))} exhibits")


def judge_claims(published: Path, exhibits: Sequence[str], reports: Path, out: Path) -> None:
    """Judge claims of file `published` by `exhibits` (paper/name) in `reports`; write csv `out`."""
    rows = verdicts(published, exhibits, reports)
    exhibit_files.write_claims(out, tables.csv_text(rows))
    counts = rows.groupby("claim")["verdict"].first().value_counts()
    log(f"{out}: " + ", ".join(f"{count} {name}" for name, count in counts.items()))


def draw_site(scale: str, folder: Path, out: Path, exhibits: Sequence[str] = ()) -> None:
    """Write web pages on figures and tables in `folder`, all or `exhibits` (paper/name), to `out`.

    `out` is a folder, or an index.html whose pages go to the folder `site` next to it.
    """
    keys = list(exhibits) or records.drawn_keys(folder.parent, scale)
    reports = read_reports(folder, scale, keys)
    place = out.parent / "site" if out.suffix else out
    count = build(reports, folder, place)
    if out.suffix:
        write_text(out, LEADS_ON)
    log(f"{place / 'index.html'}: {count} pages")
