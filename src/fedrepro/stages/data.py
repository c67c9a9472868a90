"""Stages download, prepare and partition: from a publisher's files to each client's examples."""

from __future__ import annotations

from pathlib import Path

from fedrepro.core.errors import FedreproError
from fedrepro.core.provenance import provenance
from fedrepro.core.registry import parse_token
from fedrepro.core.spec import Spec
from fedrepro.data import partitions_populations_and_holdouts as partitions
from fedrepro.data.feature_extraction import always_on_cpu, resolved_features
from fedrepro.data.prepared import Arrays, load_prepared, write_prepared
from fedrepro.data.raw_files import fetch, forms, raw_files, raw_source
from fedrepro.stages.job_log_results_gpu_lock import log


def download(name: str, file: str, mirror: str, out: Path) -> None:
    """Fetch `file` of data set `name` to `out`, from folder `mirror` or a URL, and verify it."""
    url, row = fetch(forms(name, file), out, Path(mirror) if mirror else None)
    checked = "checksum verified" if row.checksum else "no checksum is known"
    log(f"{file}: {out.stat().st_size} bytes from {url or 'an earlier download'}, {checked}")


def resolved(dataset: Spec) -> str:
    return ";".join(filter(None, (dataset.resolved, resolved_features(dataset))))


def is_prepared(dataset: Spec, folder: Path, raw: Path) -> bool:
    """Return whether `folder` has a data set's whole arrays, by this code of the files in `raw`."""
    try:
        prepared = load_prepared(folder)
        prepared.require_whole()
        there = [file for file in raw_files(dataset) if (raw / file).exists()]
        sums = {raw_source(raw / file, forms(dataset.name, file))["sha256"] for file in there}
    except FedreproError:
        return False
    same = not there or sums == {source["sha256"] for source in prepared.info["sources"]}
    return same and bool(prepared.info["provenance"].get("resolved") == resolved(dataset))


def prepare(dataset: Spec, raw: Path, out: Path) -> None:
    """Make a data set's arrays from the files in `raw`; write arrays and dataset.json to `out`."""
    # first of all, because it refuses features that do not exist
    meaning = resolved(dataset)
    sources = [raw_source(raw / file, forms(dataset.name, file)) for file in raw_files(dataset)]
    arrays = dataset.component.make(Arrays, raw, **dataset.values)
    source = provenance(path=dataset.token, resolved=meaning, device=_device(dataset))
    write_prepared(out, arrays, dataset, source, sources)
    log(f"{dataset.token}: {', '.join(f'{k} {len(v)}' for k, v in arrays.y.items())}")
    for note in arrays.notes:
        log(f"{dataset.token}: {note}")


def _device(dataset: Spec) -> str:
    from fedrepro.components.features.by_trained_networks import best_device

    return "cpu" if always_on_cpu(dataset) else best_device()


def partition(data: Path, spec: Spec, trials: range, seed: int, out: Path) -> None:
    """Divide data set `data` by `spec` in each trial; write rows (indices) by client to `out`."""
    prepared = load_prepared(data)
    population = partitions.population_of(parse_token("dataset", prepared.token), spec)
    table = partitions.build_partition(spec, prepared, trials, seed, population)
    source = provenance(
        seed,
        specs=[spec],
        inputs=[prepared.info["provenance"]],
        path=f"{prepared.token}/{spec.token}",
        data=prepared.checksum,
    )
    partitions.write_partition(out, table, source)
    log(f"{spec.token} of {prepared.token}: {table.num_rows} rows")
