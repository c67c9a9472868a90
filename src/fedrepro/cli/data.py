"""`fedrepro data`: lists data sets and fetches them."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedrepro.cli.printing import console, say
from fedrepro.core.errors import FedreproError

if TYPE_CHECKING:
    from fedrepro.core.spec import Spec

data_app = typer.Typer(help="The data sets: what there is, and fetching it.", no_args_is_help=True)
RESOURCES = Path("resources")
SHOWN_CLASSES, NO_CHECKSUM = 12, "no checksum known"
Scale = Annotated[str, typer.Option(help="tiny, quick or paper; empty: that of config.yaml")]


@data_app.command("list")
def list_data(scale: Scale = "") -> None:
    """List data sets, files, licences; count each class's examples where prepared for `scale`."""
    from fedrepro.core.registry import components
    from fedrepro.data.prepared import SPLITS, load_prepared
    from fedrepro.data.raw_files import read_dataset_table

    table = read_dataset_table()
    for name, item in sorted(components("dataset").items()):
        console.print(f"{name}: {item.meta['title']}", style="bold")
        say(f"  licence: {item.meta['licence']}")
        rows = [row for row in table if row.name == name]
        for row in rows:
            where = "" if row.urls else ", in mirrors only"
            size = f"{row.bytes:,} bytes" if row.bytes else "size not known"
            say(f"  file {row.file} ({row.form}{where}): {size}, {row.checksum or NO_CHECKSUM}")
        if not rows:
            say("  no file: it comes with a library, or is generated")
    paths = sorted(_datasets_folder(scale).glob("*/dataset.json"))
    if not paths:
        say("None is prepared yet: fedrepro data fetch NAME, or --all.")
    for path in paths:
        try:
            prepared = load_prepared(path.parent)
        except FedreproError as error:
            say(f"\n{error}")
            continue
        info = prepared.info
        console.print(f"\n{prepared.token}", style="bold", soft_wrap=True)
        shape = "×".join(map(str, prepared.shape))
        say(f"  {prepared.kind} of {shape}, {info['dtype']}; licence: {info['licence']}")
        for split in SPLITS:
            if sum(info["counts"][split]):
                say(f"  {split}: {_counts(info['classes'], info['counts'][split])}")
        if prepared.group_names:
            say(f"  natural groups: {len(prepared.group_names):,}")
        say(f"  sha256 of the arrays: {prepared.checksum}")
        for note in info["notes"]:
            say(f"  note: {note}")
        if prepared.stand_in:
            say(f"  stand-in: {prepared.stand_in}")


def _counts(classes: Sequence[str], counts: Sequence[int]) -> str:
    """Return a text of a split's number of examples, in all and in its most frequent classes."""
    if not classes:
        return f"{sum(counts):,}"
    pairs = list(zip(classes, counts, strict=True))
    if len(pairs) > SHOWN_CLASSES:
        pairs = sorted(pairs, key=lambda pair: -pair[1])[:SHOWN_CLASSES]
    each = ", ".join(f"{c if c.isprintable() and c.strip() else repr(c)}: {n:,}" for c, n in pairs)
    more = f", and {len(counts) - len(pairs)} more classes" if len(counts) > len(pairs) else ""
    return f"{sum(counts):,} ({each}{more})"


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
    """Download data sets, and prepare them in results/`scale` for runs of this size."""
    from fedrepro.core.component_notation import setting_names
    from fedrepro.core.registry import components, parse_token
    from fedrepro.stages import data

    if everything == bool(tokens):
        raise FedreproError("name one or more data sets, or give --all for every one")
    wanted = [parse_token("dataset", token) for token in tokens or ()]
    wanted += [item.spec() for _, item in sorted(components("dataset").items()) if everything]
    failed = _download(wanted, jobs)
    for spec in (spec for spec in wanted if spec.name not in failed):
        out = _datasets_folder(scale) / setting_names([spec], [spec])
        if data.is_prepared(spec, out):
            say(f"{spec.token}: ready in {out}")
            continue
        with console.status(f"preparing {spec.token}"):
            data.prepare(spec, RESOURCES / spec.name, out)
        say(f"{spec.token}: prepared in {out}")
    if failed:
        raise FedreproError("; ".join(failed.values()))


def _datasets_folder(scale: str) -> Path:
    from fedrepro.planning.config import SCALES, load_config

    config = load_config()
    if scale and scale not in SCALES:
        raise FedreproError(f"scale must be tiny, quick or paper, not '{scale}'")
    return Path("results") / (scale or config.scale) / "prepare"


def _download(wanted: Sequence[Spec], jobs: int) -> dict[str, str]:
    """Download raw files of the data sets `wanted`, `jobs` at a time; return errors by data set."""
    from fedrepro.data.raw_files import raw_files
    from fedrepro.planning.config import load_config
    from fedrepro.stages import data

    mirror, failed = load_config().mirror_folder(), dict[str, str]()
    files = dict.fromkeys((spec.name, file) for spec in wanted for file in raw_files(spec))

    def one(name: str, file: str) -> None:
        try:
            data.download(name, file, mirror, RESOURCES / name / file)
        except FedreproError as error:
            failed.setdefault(name, str(error))

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(one, *zip(*files, strict=True)))
    return failed
