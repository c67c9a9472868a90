"""`fedrepro draw`: pictures that need no run of the workflow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from fedrepro.core.artifacts import require_target, write_bytes
from fedrepro.core.errors import FedreproError
from fedrepro.core.provenance import provenance
from fedrepro.core.registry import read_token
from fedrepro.core.spec import Spec
from fedrepro.core.temporary_folders import temporary_folder
from fedrepro.core.tokens import shown_name
from fedrepro.data.partition_table import partition_table_of, read_members, write_partition
from fedrepro.data.prepared import Arrays, Prepared, load_prepared, write_prepared
from fedrepro.data.raw_files import raw_files
from fedrepro.drawings import partition_and_graph_maps
from fedrepro.drawings.partition_and_graph_maps import PartitionMap, graph_map, render_map
from fedrepro.planning.jobs import dataset_folder

SUFFIXES = (".svg", ".png")


def draw_partition(
    token: str, dataset: str, trial: int, seed: int, raw: Path | None, out: Path | None
) -> tuple[Path, dict[str, float]]:
    """Draw one trial of a partition; return the file written and the skew in numbers.

    Raises:
        FedreproError: if the token is unknown, data are missing, or the file is not svg or png.
    """
    partition, data = read_token("partition", token), read_token("dataset", dataset)
    files = [(raw or Path("resources") / data.name) / name for name in raw_files(data)]
    target = _target(out, shown_name(data, partition), files)
    drawn = drawn_partition(partition, data, trial, seed, raw)
    write_bytes(target, render_map(drawn, [target.suffix])[target.suffix])
    return target, asdict(drawn.skew)


def draw_graph(
    token: str, clients: int, trial: int, seed: int, out: Path | None
) -> tuple[Path, str]:
    """Draw a graph; return the file written and the graph's numbers in words.

    Raises:
        FedreproError: if the token is unknown, the graph does not fit, or `out` is not svg or png.
    """
    graph = read_token("graph", token)
    target = _target(out, f"{shown_name(graph)}--{clients}")
    drawn = graph_map(graph, clients, seed, trial)
    write_bytes(target, render_map(drawn, [target.suffix])[target.suffix])
    return target, drawn.words


def _target(out: Path | None, name: str, read: Sequence[Path] = ()) -> Path:
    """Return the file to write, after `require_target`."""
    target = out or Path(f"{name}.svg")
    require_target(target, SUFFIXES, read)
    return target


def drawn_partition(
    partition: Spec, dataset: Spec, trial: int, seed: int, raw: Path | None
) -> PartitionMap:
    """Partition the data as the workflow would, and return the map."""
    with temporary_folder() as folder:
        prepared = _prepared(dataset, raw, folder)
        path = folder / "partition.parquet"
        table = partition_table_of(dataset, partition, prepared, range(trial, trial + 1), seed)
        write_partition(path, table, provenance(seed))
        members = read_members(path, trial, dataset, partition)
        return partition_and_graph_maps.partition_map(prepared, partition, members, seed, trial)


def _prepared(dataset: Spec, raw: Path | None, folder: Path) -> Prepared:
    """Load the data set that a run left, or prepare it in `folder` from its raw files."""
    for scale in ("quick", "paper", "tiny"):
        path = Path(dataset_folder(scale, dataset))
        if raw is None and (path / "dataset.json").exists():
            return load_prepared(path)
    source = raw or Path("resources") / dataset.name
    missing = [name for name in raw_files(dataset) if not (source / name).exists()]
    if missing:
        raise FedreproError(
            f"data set '{dataset.name}' is not here: {source / missing[0]} is missing; get it "
            f"with: fedrepro data fetch {dataset.name}, or give the folder of its files with --raw"
        )
    arrays = dataset.component.make(Arrays, source, **dataset.values)
    write_prepared(folder, arrays, dataset, provenance())
    return load_prepared(folder)
