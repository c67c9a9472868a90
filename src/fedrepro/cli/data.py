"""`fedrepro data` and `draw`: list and fetch data sets, draw who holds which, and draw graphs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedrepro.cli.printing import console, number, say, show
from fedrepro.core.errors import FedreproError
from fedrepro.core.params import LARGEST

if TYPE_CHECKING:
    from fedrepro.core.spec import Spec
    from fedrepro.data.prepared import Prepared
    from fedrepro.drawings.partition_and_graph_maps import PartitionMap

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
        say("None is prepared yet: fedrepro data fetch NAME.")
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
    """Return a text of a split's number of examples, in all and in its first classes."""
    pairs = list(zip(classes, counts, strict=False))[:SHOWN_CLASSES]
    each = [f"{c if c.isprintable() and c.strip() else repr(c)}: {n:,}" for c, n in pairs]
    each += ["…"] if len(classes) > SHOWN_CLASSES else []
    return f"{sum(counts):,}" + (f" ({', '.join(each)})" if each else "")


@data_app.command("fetch")
def fetch_data(
    tokens: Annotated[
        list[str], typer.Argument(help="data sets, such as mnist or cifar10+validation~5000")
    ],
    scale: Scale = "",
) -> None:
    """Download data sets, and prepare them in results/`scale` for runs of this size."""
    from fedrepro.core.component_notation import setting_names
    from fedrepro.core.registry import parse_token
    from fedrepro.data.raw_files import raw_files
    from fedrepro.planning.config import load_config
    from fedrepro.stages import data

    wanted, config = [parse_token("dataset", token) for token in tokens], load_config()
    for spec in wanted:
        for file in raw_files(spec):
            place = RESOURCES / spec.name / file
            data.download(spec.name, file, config.mirror_folder(), place)
        out = _datasets_folder(scale) / setting_names([spec], [spec])
        if data.is_prepared(spec, out):
            say(f"{spec.token}: ready in {out}")
            continue
        with console.status(f"preparing {spec.token}"):
            data.prepare(spec, RESOURCES / spec.name, out)
        say(f"{spec.token}: prepared in {out}")


def _datasets_folder(scale: str) -> Path:
    from fedrepro.planning.config import SCALES, load_config

    config = load_config()
    if scale and scale not in SCALES:
        raise FedreproError(f"scale must be tiny, quick or paper, not '{scale}'")
    return Path("results") / (scale or config.scale) / "prepare"


# ------------------------------------------------------------------------------------------ maps

draw_app = typer.Typer(help="Draw a partition or a graph.", no_args_is_help=True)
SUFFIXES = (".svg", ".png")
MOST_NODES = 1_000  # of a graph that is drawn: its matrices are of nodes times nodes
SKEW = {
    "examples of a client": ("size_min", "size_median", "size_max"),
    "distance from all": ("", "distance_mean", "distance_max"),
    "classes of a client": ("classes_min", "classes_median", "classes_max"),
}
Trial = Annotated[int, typer.Option(min=0, max=LARGEST, help="which trial's draw")]
Seed = Annotated[int, typer.Option(min=0, help="seed of every draw")]
Out = Annotated[Path | None, typer.Option(help="svg or png; by default named after its contents")]


@draw_app.command("partition")
def draw_partition(
    token: Annotated[str, typer.Argument(help="such as dirichlet+alpha~0.5+clients~10")],
    data: Annotated[str, typer.Option(help="data set's token")] = "digits",
    trial: Trial = 0,
    seed: Seed = 0,
    out: Out = None,
) -> None:
    """Draw how a partition divides data: a map of clients and classes, with the skew in numbers."""
    from fedrepro.core.artifacts import require_target, write_bytes
    from fedrepro.core.component_notation import shown_name
    from fedrepro.core.registry import parse_token
    from fedrepro.drawings.partition_and_graph_maps import render_map

    partition, dataset = parse_token("partition", token), parse_token("dataset", data)
    path = out or Path(f"{shown_name(dataset, partition)}.svg")
    require_target(path, SUFFIXES)
    drawn = drawn_partition(partition, dataset, trial, seed)
    write_bytes(path, render_map(drawn, [path.suffix])[path.suffix])
    skew, rows = drawn.skew, []
    for name, keys in SKEW.items():
        rows.append((name, *(number(skew[key]) if key else "" for key in keys)))
    show(("", "least", "median or mean", "most"), rows)
    say(f"drawn: {path}")


@draw_app.command("graph")
def draw_graph(
    token: Annotated[str, typer.Argument(help="such as ring, or star+weights~uniform")],
    clients: Annotated[int, typer.Option(min=1, max=MOST_NODES, help="number of nodes")] = 16,
    trial: Trial = 0,
    seed: Seed = 0,
    out: Out = None,
) -> None:
    """Draw a communication graph: nodes, edges and weights, with how fast averages spread."""
    from fedrepro.core.artifacts import require_target, write_bytes
    from fedrepro.core.component_notation import shown_name
    from fedrepro.core.registry import parse_token
    from fedrepro.drawings.partition_and_graph_maps import graph_map, render_map

    graph = parse_token("graph", token)
    path = out or Path(f"{shown_name(graph)}--{clients}.svg")
    require_target(path, SUFFIXES)
    drawn = graph_map(graph, clients, seed, trial)
    write_bytes(path, render_map(drawn, [path.suffix])[path.suffix])
    say(drawn.words)
    say(f"drawn: {path}")


def drawn_partition(partition: Spec, dataset: Spec, trial: int, seed: int) -> PartitionMap:
    """Divide a data set among clients as the workflow would, and return the map to draw."""
    from fedrepro.core.artifacts import temporary_folder
    from fedrepro.core.provenance import provenance
    from fedrepro.data.partition_files import (
        build_partition,
        population_of,
        read_partition,
        write_partition,
    )
    from fedrepro.drawings.partition_and_graph_maps import partition_map

    with temporary_folder() as folder:
        prepared = _prepared(dataset, folder)
        path = folder / "partition.parquet"
        clients = population_of(dataset, partition)
        table = build_partition(partition, prepared, range(trial, trial + 1), seed, clients)
        write_partition(path, table, provenance(seed))
        members = read_partition(path, trial, clients)
        return partition_map(prepared, partition, members, seed, trial)


def _prepared(dataset: Spec, folder: Path) -> Prepared:
    """Load the data that an earlier run prepared, or prepare them in `folder`."""
    from fedrepro.core.provenance import provenance
    from fedrepro.data.prepared import Arrays, load_prepared, write_prepared
    from fedrepro.data.raw_files import raw_files
    from fedrepro.planning.jobs import dataset_folder

    for scale in ("quick", "paper", "tiny"):
        path = Path(dataset_folder(scale, dataset))
        if (path / "dataset.json").exists():
            return load_prepared(path)
    source = RESOURCES / dataset.name
    for path in (source / name for name in raw_files(dataset)):
        if not path.exists():
            raise FedreproError(
                f"data set '{dataset.name}' is not here: {path} is missing; get it with: fedrepro "
                f"data fetch {dataset.name}"
            )
    arrays = dataset.component.make(Arrays, source, **dataset.values)
    write_prepared(folder, arrays, dataset, provenance())
    return load_prepared(folder)
