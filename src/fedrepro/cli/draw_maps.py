"""`fedrepro draw`: pictures that need no run of the workflow."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedrepro.cli.printing import number, say, show, terminal_table
from fedrepro.core.errors import FedreproError
from fedrepro.core.params import LARGEST

if TYPE_CHECKING:
    from fedrepro.core.spec import Spec
    from fedrepro.data.prepared import Prepared
    from fedrepro.drawings.partition_and_graph_maps import PartitionMap

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
    data: Annotated[str, typer.Option("--data", "--dataset", help="data set's token")] = "digits",
    trial: Trial = 0,
    seed: Seed = 0,
    raw: Annotated[Path | None, typer.Option(help="folder of the data set's own files")] = None,
    out: Out = None,
) -> None:
    """Draw how a partition divides data: a map of clients and classes, with the skew in numbers."""
    from fedrepro.core.artifacts import require_target, write_bytes
    from fedrepro.core.component_notation import shown_name
    from fedrepro.core.registry import read_token
    from fedrepro.data.raw_files import raw_files
    from fedrepro.drawings.partition_and_graph_maps import render_map

    partition, dataset = read_token("partition", token), read_token("dataset", data)
    files = [(raw or Path("resources") / dataset.name) / name for name in raw_files(dataset)]
    path = out or Path(f"{shown_name(dataset, partition)}.svg")
    require_target(path, SUFFIXES, files)
    drawn = drawn_partition(partition, dataset, trial, seed, raw)
    write_bytes(path, render_map(drawn, [path.suffix])[path.suffix])
    skew, table = drawn.skew, terminal_table("", "least", "median or mean", "most")
    for name, keys in SKEW.items():
        table.add_row(name, *(number(skew[key]) if key else "" for key in keys))
    show(table)
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
    from fedrepro.core.registry import read_token
    from fedrepro.drawings.partition_and_graph_maps import graph_map, render_map

    graph = read_token("graph", token)
    path = out or Path(f"{shown_name(graph)}--{clients}.svg")
    require_target(path, SUFFIXES)
    drawn = graph_map(graph, clients, seed, trial)
    write_bytes(path, render_map(drawn, [path.suffix])[path.suffix])
    say(drawn.words)
    say(f"drawn: {path}")


def drawn_partition(
    partition: Spec, dataset: Spec, trial: int, seed: int, raw: Path | None
) -> PartitionMap:
    """Divide a data set among clients as the workflow would, and return the map to draw.

    Data that an earlier run prepared are taken, unless `raw` is a folder with the raw files.

    Raises:
        FedreproError: if the raw files of the data set are missing.
    """
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
        prepared = _prepared(dataset, raw, folder)
        path = folder / "partition.parquet"
        clients = population_of(dataset, partition)
        table = build_partition(partition, prepared, range(trial, trial + 1), seed, clients)
        write_partition(path, table, provenance(seed))
        members = read_partition(path, trial, clients)
        return partition_map(prepared, partition, members, seed, trial)


def _prepared(dataset: Spec, raw: Path | None, folder: Path) -> Prepared:
    from fedrepro.core.provenance import provenance
    from fedrepro.data.prepared import Arrays, load_prepared, write_prepared
    from fedrepro.data.raw_files import raw_files
    from fedrepro.planning.jobs import dataset_folder

    for scale in ("quick", "paper", "tiny"):
        path = Path(dataset_folder(scale, dataset))
        if raw is None and (path / "dataset.json").exists():
            return load_prepared(path)
    source = raw or Path("resources") / dataset.name
    for path in (source / name for name in raw_files(dataset)):
        if not path.exists():
            raise FedreproError(
                f"data set '{dataset.name}' is not here: {path} is missing; get it with: fedrepro "
                f"data fetch {dataset.name}, or give the folder of its files with --raw"
            )
    arrays = dataset.component.make(Arrays, source, **dataset.values)
    write_prepared(folder, arrays, dataset, provenance())
    return load_prepared(folder)
