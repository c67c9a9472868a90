"""`fedrepro data`: lists data sets and fetches them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TransferSpeedColumn,
)

from fedrepro.core.errors import FedreproError

if TYPE_CHECKING:
    from fedrepro.core.spec import Spec
    from fedrepro.data.raw_files import DatasetTable

data_app = typer.Typer(help="The data sets: what there is, and fetching it.", no_args_is_help=True)
console = Console(highlight=False)

RESOURCES = Path("resources")
SHOWN_CLASSES = 12

Scale = Annotated[str, typer.Option(help="tiny, quick or paper; empty: that of config.yaml")]


@data_app.command("list")
def list_data(scale: Scale = "") -> None:
    """List every data set with files and licence, and the contents of those prepared at a scale."""
    from fedrepro.core.registry import components
    from fedrepro.data.raw_files import read_dataset_table

    table = read_dataset_table()
    for name, item in sorted(components("dataset").items()):
        console.print(f"{name}: {item.meta['title']}", style="bold")
        _print_lines([f"licence: {item.meta['licence']}", *_files(name, table)])
    paths = sorted(_datasets_folder(scale).glob("*/dataset.json"))
    if not paths:
        console.print("None is prepared yet: fedrepro data fetch NAME, or --all.")
    for path in paths:
        _print_prepared(path.parent)


@data_app.command("fetch")
def fetch_data(
    tokens: Annotated[
        list[str] | None,
        typer.Argument(help="data sets, such as mnist or cifar10+validation~5000"),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="every data set there is")] = False,
    scale: Scale = "",
    jobs: Annotated[int, typer.Option(min=1, max=64, help="downloads at a time")] = 4,
) -> None:
    """Bring the raw files of data sets here and prepare them where the workflow looks for them."""
    from fedrepro.core.registry import components, parse_token

    if everything == bool(tokens):
        raise FedreproError("name one or more data sets, or give --all for every one")
    wanted = [parse_token("dataset", token) for token in tokens or ()]
    wanted += [item.spec() for _, item in sorted(components("dataset").items()) if everything]
    failed = _download(wanted, jobs)
    for spec in wanted:
        if spec.name not in failed:
            _prepare(spec, _datasets_folder(scale))
    if failed:
        raise FedreproError("; ".join(failed.values()))


def _datasets_folder(scale: str) -> Path:
    from fedrepro.planning.config import SCALES, load_config

    config = load_config()
    if scale and scale not in SCALES:
        raise FedreproError(
            f"scale must be {', '.join(SCALES[:-1])} or {SCALES[-1]}, not '{scale}'"
        )
    return Path("results") / (scale or config.scale) / "prepare"


# ---------------------------------------------------------------------------------- fetching


def _download(wanted: Sequence[Spec], jobs: int) -> dict[str, str]:
    """Fetch all raw files, several at a time; return the errors by data set."""
    from fedrepro.data.raw_files import fetch, raw_files, read_dataset_table
    from fedrepro.planning.config import load_config

    folder = load_config().mirror_folder()
    mirror = Path(folder) if folder else None
    table = read_dataset_table()
    files = dict.fromkeys((spec.name, file) for spec in wanted for file in raw_files(spec))
    failed: dict[str, str] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with (
        Progress(*columns, TransferSpeedColumn(), console=console) as bars,
        ThreadPoolExecutor(jobs) as pool,
    ):

        def one(name: str, file: str) -> None:
            bar, path = bars.add_task(f"{name}/{file}", total=None), RESOURCES / name / file

            def progress(done: int, total: int) -> None:
                bars.update(bar, completed=done, total=total or None)

            try:
                fetch(name, file, path, mirror, table, progress=progress)
            except FedreproError as error:
                failed.setdefault(name, str(error))
                bars.remove_task(bar)
            else:
                size = path.stat().st_size
                bars.update(bar, completed=size, total=size)

        for _ in pool.map(lambda pair: one(*pair), files):
            pass
    return failed


def _prepare(spec: Spec, folder: Path) -> None:
    from fedrepro.core.tokens import setting_names
    from fedrepro.stages import data

    out = folder / setting_names([spec], [spec])
    if data.is_prepared(spec, out):
        console.print(f"{spec.token}: ready in {out}", soft_wrap=True)
        return
    with console.status(f"preparing {spec.token}"):
        data.prepare(spec, RESOURCES / spec.name, out)
    console.print(f"{spec.token}: prepared in {out}", soft_wrap=True)


# ----------------------------------------------------------------------------------- listing


def _files(name: str, table: DatasetTable) -> Iterator[str]:
    """Write a line for each form of each file: its size, checksum, and whether urls are known."""
    rows = [row for row in table.rows if row.name == name]
    for row in rows:
        size = "size not known" if row.bytes is None else f"{row.bytes:,} bytes"
        where = "" if row.urls else ", in mirrors only"
        checksum = row.checksum or "no checksum known"
        yield f"file {row.file} ({row.form}{where}): {size}, {checksum}"
    if not rows:
        yield "no file: it comes with a library, or is generated"


def _print_lines(lines: Sequence[str]) -> None:
    for line in lines:
        console.print(f"  {line}", soft_wrap=True, markup=False)


def _print_prepared(folder: Path) -> None:
    from fedrepro.data.prepared import SPLITS, load_prepared

    try:
        prepared = load_prepared(folder)
    except FedreproError as error:
        console.print(f"\n{error}", soft_wrap=True)
        return
    info = prepared.info
    shape = "×".join(map(str, prepared.shape))
    console.print(f"\n{prepared.token}", style="bold", soft_wrap=True)
    lines = [f"{prepared.kind} of {shape}, {info['dtype']}; licence: {info['licence']}"]
    lines += [f"{split}: {_counts(info, split)}" for split in SPLITS if sum(info["counts"][split])]
    if prepared.group_names:
        lines.append(f"natural groups: {len(prepared.group_names):,}")
    lines.append(f"sha256 of the arrays: {prepared.checksum}")
    lines += [f"note: {note}" for note in info["notes"]]
    if prepared.stand_in:
        lines.append(f"stand-in: {prepared.stand_in}")
    _print_lines(lines)


def _counts(info: dict[str, Any] | Any, split: str) -> str:
    """Write the examples of a split, then of each class, or of the most frequent classes."""
    counts = info["counts"][split]
    if not info["classes"]:
        return f"{sum(counts):,}"
    pairs = list(zip(info["classes"], counts, strict=True))
    if len(pairs) > SHOWN_CLASSES:
        pairs = sorted(pairs, key=lambda pair: -pair[1])[:SHOWN_CLASSES]
    each = ", ".join(f"{_printable(name)}: {count:,}" for name, count in pairs)
    more = len(counts) - len(pairs)
    return f"{sum(counts):,} ({each}{f', and {more} more classes' if more else ''})"


def _printable(name: str) -> str:
    return name if name.isprintable() and name.strip() else repr(name)
