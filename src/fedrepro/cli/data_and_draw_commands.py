"""`fedrepro data` lists and fetches data sets; `fedrepro draw` draws partitions and graphs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from fedrepro.cli.printing import console, say
from fedrepro.core.checksummed_files import require_target, temporary_folder, write_bytes
from fedrepro.core.errors import FedreproError
from fedrepro.core.params import LARGEST
from fedrepro.core.registry import components, parse_token
from fedrepro.data.partitions_populations_and_holdouts import population_of, read_partition
from fedrepro.data.prepared import load_prepared
from fedrepro.planning.config_files import SCALES, load_config
from fedrepro.planning.scenarios_runs_and_jobs import MEMBERS, dataset_folder

if TYPE_CHECKING:
    from fedrepro.core.spec import Spec
    from fedrepro.drawings.partition_and_graph_maps import GraphMap, PartitionMap

data_app = typer.Typer(help="The data sets: what there is, and fetching it.", no_args_is_help=True)
RESOURCES = Path("resources")
NO_CHECKSUM = "no checksum known"
Scale = Annotated[str, Option(help="tiny, quick or paper; empty: that of config.yaml")]


@data_app.command("list")
def list_data() -> None:
    """List all data sets, with their licences, files and checksums."""
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
            say("  no file to fetch")


@data_app.command("fetch")
def fetch_data(
    tokens: Annotated[
        list[str], Argument(help="data sets, such as mnist or cifar10+validation~5000")
    ],
    scale: Scale = "",
) -> None:
    """Download data sets, and prepare them in results/`scale` (tiny, …; default: config.yaml's)."""
    from fedrepro.data.raw_files import raw_files
    from fedrepro.stages import data

    wanted, config = [parse_token("dataset", token) for token in tokens], load_config()
    if scale and scale not in SCALES:
        raise FedreproError(f"scale must be tiny, quick or paper, not '{scale}'")
    for spec in wanted:
        for file in raw_files(spec):
            data.download(spec.name, file, config.mirror_folder(), RESOURCES / spec.name / file)
        out = Path(dataset_folder(scale or config.scale, spec))
        if data.is_prepared(spec, out, RESOURCES / spec.name):
            say(f"{spec.token}: ready in {out}")
            continue
        with console.status(f"preparing {spec.token}"):
            data.prepare(spec, RESOURCES / spec.name, out)
        say(f"{spec.token}: prepared in {out}")


# ------------------------------------------------------------------------------------------ maps

draw_app = typer.Typer(help="Draw a partition or a graph.", no_args_is_help=True)
SUFFIXES = (".svg", ".png")
MOST_NODES = 1_000  # of a graph that is drawn: its matrices are of nodes times nodes
Trial = Annotated[int, Option(min=0, max=LARGEST, help="which trial's draw")]
Seed = Annotated[int, Option(min=0, help="seed of every draw")]
Out = Annotated[Path, Option(help="an svg or png file")]


@draw_app.command("partition")
def draw_partition(
    token: Annotated[str, Argument(help="such as dirichlet+alpha~0.5+clients~10")],
    data: Annotated[str, Option(help="data set's token")] = "digits",
    trial: Trial = 0,
    seed: Seed = 0,
    out: Out = Path("partition.svg"),
) -> None:
    """Draw how a partition divides data, by clients and classes; print how much clients differ."""
    partition, dataset = parse_token("partition", token), parse_token("dataset", data)
    _draw(lambda: drawn_partition(partition, dataset, trial, seed), out)


@draw_app.command("graph")
def draw_graph(
    token: Annotated[str, Argument(help="such as ring, or star+weights~uniform")],
    clients: Annotated[int, Option(min=1, max=MOST_NODES, help="number of nodes")] = 16,
    trial: Trial = 0,
    seed: Seed = 0,
    out: Out = Path("graph.svg"),
) -> None:
    """Draw a communication graph: nodes, edges, weights; print how fast averaging on it mixes."""
    from fedrepro.drawings.partition_and_graph_maps import graph_map

    graph = parse_token("graph", token)
    _draw(lambda: graph_map(graph, clients, seed, trial), out)


def _draw(make: Callable[[], PartitionMap | GraphMap], out: Path) -> None:
    from fedrepro.drawings.partition_and_graph_maps import render_map

    require_target(out, SUFFIXES)
    drawn = make()
    write_bytes(out, render_map(drawn, out.suffix))
    say(drawn.words, f"drawn: {out}")


def drawn_partition(partition: Spec, dataset: Spec, trial: int, seed: int) -> PartitionMap:
    """Divide a data set among clients as the workflow would, and return the map to draw."""
    from fedrepro.data.raw_files import raw_files
    from fedrepro.drawings.partition_and_graph_maps import partition_map
    from fedrepro.stages import data

    raw, population = RESOURCES / dataset.name, population_of(dataset, partition)
    if population:
        raise FedreproError(f"'{dataset.token}' makes clients when they train: none can be drawn")
    with temporary_folder() as folder:
        earlier = (Path(dataset_folder(scale, dataset)) for scale in ("quick", "paper", "tiny"))
        place = next((one for one in earlier if data.is_prepared(dataset, one, raw)), folder)
        if place == folder:
            for path in (at for name in raw_files(dataset) if not (at := raw / name).exists()):
                said = f"data set '{dataset.name}' is not here: {path} is missing"
                raise FedreproError(f"{said}; get it with: fedrepro data fetch {dataset.name}")
            data.prepare(dataset, raw, folder)
        data.partition(place, partition, range(trial, trial + 1), seed, folder / MEMBERS)
        members = read_partition(folder / MEMBERS, trial)
        return partition_map(load_prepared(place), partition, members, seed, trial)
