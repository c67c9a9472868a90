"""Models of one's own, combined by a one-shot method: from files to a file, or in Python.

Nothing of the workflow is needed: no data, no partition, no exhibit.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedrepro.api import NEEDS, ClientInfo, GlobalModel, LocalModels
from fedrepro.core.artifacts import one_line, require_file, save_state, target_of
from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import components, read_token
from fedrepro.core.rng import Rng
from fedrepro.core.spec import Spec
from fedrepro.stages.aggregate import Prepare

# what label counts answer, and what does not arise, because one setting is given
COUNTED = {"example_counts", "label_counts"}
OF_CHOICE = {"pooled_train_accuracy", "client_train_accuracy"}
DIGITS, COUNT = re.compile("[0-9]{1,7}"), re.compile("[0-9]{1,13}")
CLIENT = "client"  # the column of a table of label counts that names files


@dataclass(frozen=True)
class Combined:
    """What was made, and what was assumed on the way, in words."""

    model: GlobalModel
    notes: tuple[str, ...]


def combine(
    models: LocalModels, method: str | Spec, /, *, seed: int = 0, **values: Any
) -> GlobalModel:
    """A one-shot method applied to models of one's own (`LocalModels.from_state_dicts`).

    method: a token, such as "pfnm" or "pfnm+sigma2~0.1"; values: its parameters by name, over
    those of the token. Draws are those of trial 0 of the workflow with this seed. Errors:
    FedreproError for a method that is not one-shot, that does not combine such models, or that
    needs what only data could tell.
    """
    spec = _setting(method, values)
    _require_able(spec, models)
    needs = spec.component.meta["needs"]
    counts = models.label_counts
    info = ClientInfo(
        training=components("training")["adam"].spec(),
        example_counts=None if counts is None or "example_counts" not in needs else counts.sum(1),
        label_counts=counts if "label_counts" in needs else None,
    )
    bare = replace(models, label_counts=None, layers=None)
    rng = Rng(seed, 0)
    costly = Prepare(spec.component.meta["prepare"], bare, info, rng)
    made = spec.component.fn(bare, info, rng=rng, **spec.values, **costly(spec))
    if not isinstance(made, GlobalModel):
        raise FedreproError(
            f"'{spec.token}' makes no global model of these {bare.clients} clients; choose another "
            "size, or another method"
        )
    if not made.finite or not np.isfinite(0.0 if made.weights is None else made.weights).all():
        raise FedreproError(
            f"'{spec.token}' makes a model of these clients with numbers that are not finite; "
            "choose other settings, or another method"
        )
    return replace(made, layers=models.layers)


def _setting(method: str | Spec, values: Mapping[str, Any]) -> Spec:
    given = read_token("method", method) if isinstance(method, str) else method
    return given.component.spec({**given.values, **values}).single()


def _require_able(method: Spec, models: LocalModels) -> None:
    meta = method.component.meta
    if meta["kind"] != "one_shot":
        raise FedreproError(
            f"method '{method.name}' is {meta['kind'].replace('_', '-')}: only one-shot methods "
            "combine models that are trained already; `fedrepro methods` lists them"
        )
    if meta["models"] and models.model.name not in meta["models"]:
        raise FedreproError(
            f"method '{method.name}' combines {', '.join(sorted(meta['models']))} models, not "
            f"'{models.model.token}'"
        )
    lacking = sorted(meta["needs"] - COUNTED - OF_CHOICE)
    if lacking:
        raise FedreproError(
            f"method '{method.name}' needs {NEEDS[lacking[0]]}, which files of models do not hold"
        )
    if meta["needs"] & COUNTED and models.label_counts is None:
        raise FedreproError(
            f"method '{method.name}' needs the number of training examples of each client and "
            "class: give label_counts, or --labels with a row per client and a column per class"
        )


# --------------------------------------------------------------------------------------- in files


def run(
    method: str,
    files: Sequence[Path],
    out: Path,
    labels: Path | None = None,
    settings: Sequence[str] = (),
    seed: int = 0,
    model: str | None = None,
    shape: str | None = None,
    layers: str | None = None,
) -> Combined:
    """Combine `.pt` files of state dicts into one; several networks go in as a list with weights.

    settings: key=value as in tokens. shape, layers: as lists with commas between.
    """
    target_of(out)  # refuses what it must not replace before anything is computed
    names = [str(path) for path in files]
    if len(set(names)) < len(names):
        raise FedreproError("a file of a model is given twice; give each client's once")
    spec = _with_settings(method, settings)
    counts, said = (None, ()) if labels is None else read_counts(labels, files)
    models = LocalModels.from_state_dicts(
        [_loaded(path) for path in files],
        label_counts=counts,
        model=model,
        shape=_numbers(shape),
        layers=layers.split(",") if layers else None,
        names=names,
    )
    made = combine(models, spec, seed=seed)
    save_state(out, as_state(made, models.classes))
    return Combined(made, (*_assumed(models), *said, _made(made, out)))


def _with_settings(method: str, settings: Sequence[str]) -> Spec:
    given = read_token("method", method)
    for written in settings:
        setting = written.replace("e+", "e")  # 1e+5, as other programs write it
        key, equals, text = setting.partition("=")
        if not equals or not text:
            raise FedreproError(f"--set '{setting}' is not of the form name=value")
        if set("+~") & set(setting):
            raise FedreproError(f"--set '{setting}' is more than one name=value; give each its own")
        # as a token, so that values are read and refused in the one place that does so
        read = read_token("method", f"{given.name}+{key}~{text.replace(',', '@')}")
        given = given.component.spec({**given.values, key: read.values[key]})
    return given


def _loaded(path: Path) -> Any:
    """What a `.pt` file holds, read without running code from it."""
    import torch

    require_file(path)
    try:
        return torch.load(path, weights_only=True, map_location="cpu")
    except FileNotFoundError:
        raise FedreproError(f"{path} is missing; name the state dict of each client") from None
    except Exception as error:  # unpickling can raise anything
        raise FedreproError(
            f"{path} is no state dict that can be read ({one_line(error)}); save one with "
            "torch.save(network.state_dict(), …)"
        ) from error


def _numbers(shape: str | None) -> tuple[int, ...] | None:
    if not shape:
        return None
    parts = shape.split(",")
    if not all(DIGITS.fullmatch(part.strip()) and int(part) for part in parts):
        raise FedreproError(f"--shape '{shape}' is not of the form 28,28 or 3,32,32")
    return tuple(map(int, parts))


def read_counts(path: Path, files: Sequence[Path]) -> tuple[np.ndarray, tuple[str, ...]]:
    """Label counts (J, K) from csv: a row per client, a column per class, a header if you like.

    A header is a first row without a number. A first column called `client` names the files, with
    or without `.pt`; otherwise rows are in the order of the files. Returns the counts and what was
    assumed.
    """
    require_file(path)
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
        rows = [[cell.strip() for cell in row] for row in csv.reader(lines) if row]
    except (OSError, ValueError, csv.Error) as error:
        raise FedreproError(f"{path} cannot be read ({one_line(error)})") from None
    by_name = bool(rows) and rows[0][0].lower() == CLIENT
    body = rows[1:] if by_name or (rows and not any(map(_is_number, rows[0]))) else rows
    if len(body) != len(files):
        raise FedreproError(
            f"{path} has {len(body)} rows of counts for {len(files)} models; give a row for each, "
            "and names of classes that are no numbers if there is a header"
        )
    if by_name:
        body = [_row_of(file, body, path) for file in files]
        said: tuple[str, ...] = ()
    else:
        said = (f"label counts: rows are taken in the order of the files, {files[0]} first",)
    if len({len(row) for row in body}) > 1 or not all(COUNT.fullmatch(c) for r in body for c in r):
        raise FedreproError(
            f"{path} must hold whole numbers of at most 13 digits, as many in each row: examples "
            "of each class"
        )
    return np.array([[int(cell) for cell in row] for row in body], np.int64), said


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _row_of(file: Path, rows: Sequence[list[str]], path: Path) -> list[str]:
    found = [row[1:] for row in rows if row[0] in (str(file), file.name, file.stem)]
    if len(found) != 1:
        raise FedreproError(
            f"{path} has {len(found)} rows of the client '{file.stem}'; one of each is needed"
        )
    return found[0]


def as_state(made: GlobalModel, classes: int) -> Any:
    """A state dict; for a mixture all of them, and the weight of each network and class.

    vote: there if they vote, instead of their probabilities being summed.
    """
    import torch

    if made.networks == 1:
        return made.state_dict()
    even = np.full((made.networks, classes), 1 / made.networks)
    weights = even if made.weights is None else made.weights
    found = {"state_dicts": made.state_dicts(), "weights": torch.from_numpy(np.array(weights))}
    return found | ({"vote": True} if made.ties else {})


def _assumed(models: LocalModels) -> tuple[str, str]:
    """What a state dict does not say."""
    shape = "×".join(map(str, models.shape))
    return (
        f"read as {models.model.token} on examples of shape {shape} with {models.classes} "
        f"classes, {models.clients} clients; layers in order: {', '.join(models.layers or ())}",
        "assumed: weights of fully connected layers are (out, in), as PyTorch keeps them, and "
        "ReLU stands between layers",
    )


def _made(made: GlobalModel, out: Path) -> str:
    numbers = sum(value.size for value in made.tensors.values())
    if made.networks == 1:
        return f"{out}: one network of {numbers:,} parameters, as a state dict"
    return (
        f"{out}: a mixture of {made.networks} networks, {numbers:,} parameters; `state_dicts` "
        "holds them, `weights` the share of each network in each class's "
        + ("votes" if made.ties else "probability")
    )
