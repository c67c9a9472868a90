"""Read and check a user's files: state dicts, examples (csv, npz) and label counts."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedrepro.core.artifacts import one_line, require_file, write_bytes
from fedrepro.core.errors import FedreproError, shown
from fedrepro.core.state_and_model_files import save_state
from fedrepro.data.user_data import (
    PIXEL,
    WHOLE,
    OwnExamples,
    csv_lines,
    looks_like_pixels,
    read_csv_examples,
    read_npz,
)
from fedrepro.planning.figure_interface import is_number
from fedrepro.training.examples import Examples, tensor_of

PYTORCH = (".pt", ".pth")
SUFFIXES = (*PYTORCH, ".safetensors", ".npz")  # the latter hold named tensors and nothing else


def read_state(path: Path) -> Any:
    """Read a state dict (.pt, .safetensors, .npz) without running code from its file.

    Raises:
        FedreproError: the file is missing or cannot be read.
    """
    require_file(path)
    if not path.exists():
        raise FedreproError(f"{path} is missing; name the state dict of each client")
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as arrays:
                return dict(arrays)
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            # the file sorts names as text: here numbers in them count by value, 0, 2, 10
            state = load_file(path)
            parts = {name: re.split("([0-9]+)", name) for name in state}
            by_value = {k: [int(p) if p.isdecimal() else p for p in v] for k, v in parts.items()}
            return {name: state[name] for name in sorted(state, key=by_value.__getitem__)}
        import torch

        return torch.load(path, weights_only=True, map_location="cpu")
    except Exception as error:  # unpickling can raise anything
        code = re.search(r"GLOBAL (\S+)", str(error))
        why = f"it holds {code[1]}, and no code of a file is run" if code else one_line(error)
        inside = isinstance(error, OSError) and error.filename is None
        if inside or isinstance(error, EOFError | KeyError) or "zip archive" in why:
            why = "it is cut short, or no file of PyTorch"
        said = f"{path} cannot be read as a state dict ({why})"
        raise FedreproError(f"{said}; save one with torch.save(net.state_dict(), …)") from error


def write_state(path: Path, state: Mapping[str, Any]) -> None:
    """Write a state dict, or a dict of several with weights, in the format of the file's suffix.

    Raises:
        FedreproError: several state dicts are to be written to a file other than .pt or .pth.
    """
    if path.suffix in PYTORCH:
        save_state(path, state)
    elif "state_dicts" in state:
        raise FedreproError(
            f"cannot write {path}: several networks with their weights go into one .pt file only"
        )
    elif path.suffix == ".npz":
        buffer = io.BytesIO()
        np.savez(buffer, **{k: v.numpy() for k, v in state.items()})  # its date is always 1980
        write_bytes(path, buffer.getvalue())
    else:
        from safetensors.torch import save

        write_bytes(path, save({name: tensor.contiguous() for name, tensor in state.items()}))


# --------------------------------------------------------------------------------------- examples


@dataclass(frozen=True)
class DataForm:
    """How a user's files of examples are read, so that examples fit the inputs of networks.

    shape, classes: of the networks. label: the column of a csv that has the class. divide: the
    number that inputs are divided by. channels: "first" or "last", the axis of colours in an npz.
    """

    shape: tuple[int, ...]
    classes: int
    label: str = "label"
    divide: float = 1.0
    channels: str = ""

    def read(self, path: Path, labelled: bool = True) -> OwnExamples:
        """Read one file of examples (.csv or .npz), with labels or without."""
        kind = path.suffix.lower()
        if kind not in (".csv", ".npz"):
            raise FedreproError(
                f"{path} is neither .csv nor .npz, with a column of classes or the arrays x and y"
            )
        require_file(path)
        if kind == ".csv":
            return read_csv_examples(path, self.label, least=1, labelled=labelled)
        return read_npz(path, least=1, labelled=labelled, channels=self.channels)

    def fitted(self, path: Path, data: OwnExamples, outputs: Mapping[str, int]) -> Examples:
        """Return data of a file as inputs (N, D), divided, and indices of networks' `outputs`."""
        shape, wanted = data.x.shape[1:], self.shape
        sides = [[size for size in each if size > 1] for each in (shape, wanted)]
        flat = len(shape) == 1 or len(wanted) == 1
        if math.prod(shape) != math.prod(wanted) or not (flat or sides[0] == sides[1]):
            found, due = ("×".join(map(str, each)) for each in (shape, wanted))
            raise FedreproError(
                f"{path} has examples of shape {found}, and the networks take {due}"
            )
        inputs = data.x.reshape(len(data.x), -1).astype(np.float32) / np.float32(self.divide)
        number = np.array([outputs[name] for name in data.classes], np.int64)
        return Examples(tensor_of(inputs), tensor_of(number[data.y]))


def read_files(
    files: Mapping[str, Sequence[Path]], form: DataForm
) -> tuple[dict[str, list[Examples]], list[str]]:
    """Read a user's files of examples, and return examples by purpose and notes on assumptions.

    `files` has the paths by purpose, such as validation; `form` says how to read them. The result
    has an item per file, with inputs float32 (N, D) and labels int64 (N,), indices of the networks'
    outputs. Classes that are whole numbers are indices, from 0; classes named by words are numbered
    in alphabetic order, over all files.

    Raises:
        FedreproError: a file cannot be read, numbers are not finite, inputs have another shape, or
            classes are not outputs.
    """
    if not (math.isfinite(form.divide) and form.divide > 0):
        raise FedreproError(f"--divide {form.divide:g} must be a number above 0")
    read = {path: form.read(path) for paths in files.values() for path in paths}
    outputs, notes = _outputs(read, form.classes)
    notes += [note for data in read.values() for note in data.notes]
    stored = [path for path, data in read.items() if looks_like_pixels(data.x)]
    if stored and form.divide == 1:
        notes.append(
            f"{stored[0]} has numbers up to {read[stored[0]].x.max():g}, which are taken as they "
            f"are: if the networks were trained on them divided by {PIXEL}, say --divide {PIXEL}"
        )
    examples = {path: form.fitted(path, data, outputs) for path, data in read.items()}
    return {what: [examples[path] for path in paths] for what, paths in files.items()}, notes


def read_inputs(path: Path, form: DataForm) -> Examples:
    """Read a file of inputs in the way that `form` describes; labels in it are ignored.

    Raises:
        FedreproError: the file cannot be read, a number is not finite, or inputs do not fit.
    """
    data = form.read(path, labelled=False)
    return form.fitted(path, data, dict.fromkeys(data.classes, 0))


def _outputs(read: Mapping[Path, OwnExamples], classes: int) -> tuple[Mapping[str, int], list[str]]:
    """Return ({class name: index of the networks' output}, notes); `classes` counts outputs."""
    where = {name: path for path, data in read.items() for name in data.classes}
    if not all(WHOLE.fullmatch(name) for name in where):
        names = sorted(where)
        if len(names) != classes:
            raise FedreproError(
                f"the data have {len(names)} classes that are named by words ({_some(names)}), and "
                f"the networks have {classes} outputs: number classes as outputs are, from 0"
            )
        note = f"classes are taken in the order of their names: {', '.join(names)}"
        return {name: output for output, name in enumerate(names)}, [note]
    numbers = {name: int(name) for name in where}
    for name, number in numbers.items():
        if not 0 <= number < classes:
            raise FedreproError(
                f"{where[name]} has the class {shown(name)}: number classes as the networks' "
                f"outputs are, from 0 to {classes - 1}"
            )
    lacking = sorted(set(range(classes)) - set(numbers.values())) if numbers else []
    note = (
        f"no example has the label {_some(lacking)}: label 0 is the networks' first output, so "
        "labels that count from 1 have to be lowered by 1"
    )
    return numbers, [note] if lacking else []


def _some(values: Sequence[object]) -> str:
    return ", ".join(map(str, values[:8])) + (", …" if len(values) > 8 else "")


# ---------------------------------------------------------------------- which client a file is of

CLIENT = "client"  # the column of a table of label counts that names files
MOST_PAIRS = 20  # pairs that a sentence lists at most


def paired_files(
    option: str, files: Sequence[Path], models: Sequence[Path], in_order: bool
) -> tuple[list[Path], list[str]]:
    """Sort a user's files in the order of the models that they belong to, by their names.

    client0.npz belongs to client0.pt, and a/data.npz to a/model.pt. If there is not one file for
    each model, files stay as they are. `option` names the files in errors. Returns (files, notes).

    Raises:
        FedreproError: names do not pair up, and the user did not say that files are `in_order`.
    """
    if not len(files) == len(models) > 1:
        return list(files), []
    for part in ("stem", "parent"):
        given, wanted = ([Path(getattr(p, part)).name for p in paths] for paths in (files, models))
        if sorted(given) == sorted(wanted) and len(set(given)) == len(given):
            named = dict(zip(given, files, strict=True))
            return [named[name] for name in wanted], [f"{option}: paired with the models by name"]
    ambiguous = (
        f"the names of {option} do not say which file belongs to which model: name both alike, "
        "such as client0.npz and client0.pt"
    )
    return list(files), [_in_order(option, files, models, in_order, ambiguous)]


def _in_order(
    what: str, parts: Sequence[object], models: Sequence[Path], in_order: bool, ambiguous: str
) -> str:
    """Write which `what` in `parts` is which model's; raise FedreproError if not `in_order`."""
    pairs = [f"{part} of {model}" for part, model in zip(parts, models, strict=True)]
    more = len(pairs) - MOST_PAIRS
    listed = ", ".join(pairs[:MOST_PAIRS]) + (f" and {more} more" if more > 0 else "")
    if not in_order:
        raise FedreproError(f"{ambiguous}, or add --in-order if this is right: {listed}")
    return f"{what}: {listed}"


def read_counts(path: Path, files: Sequence[Path], in_order: bool) -> tuple[np.ndarray, list[str]]:
    """Read label counts, int64 (J, K), from a csv; return them with notes on assumptions.

    A row is of a client, a column of a class; a single column counts examples of all classes. A
    first row without numbers is a header. A first column called `client` names the models' `files`,
    with or without suffix; otherwise rows belong to `files` in their order, which the user has to
    confirm by `in_order` unless all rows are equal.
    """
    require_file(path)
    head, lines = csv_lines(path)
    rows = [head, *([cell.strip() for cell in fields] for _, fields in lines)]
    by_name = head[0].lower() == CLIENT
    body = rows[1:] if by_name or not any(map(is_number, head)) else rows
    if len(body) != len(files):
        raise FedreproError(
            f"{path} has {len(body)} rows of counts for {len(files)} models; one for each, and "
            "names of classes that are no numbers if there is a header"
        )
    if by_name:
        named, body = body, []
        for file in files:
            body += (own := [r[1:] for r in named if r[0] in (str(file), file.name, file.stem)])
            if len(own) != 1:
                raise FedreproError(f"{path} has {len(own)} rows, not one, of client '{file.stem}'")
    whole = all(re.fullmatch("[0-9]{1,13}", cell) for row in body for cell in row)
    if len({len(row) for row in body}) > 1 or not whole:
        raise FedreproError(
            f"{path} must hold whole numbers of at most 13 digits, as many in each row"
        )
    notes = []
    if not by_name and any(row != body[0] for row in body):
        ambiguous = (
            f"{path} does not say which client a row is of: name the models in a first column "
            f"'{CLIENT}'"
        )
        numbered = [f"row {place}" for place in range(1, len(body) + 1)]
        notes = [_in_order("label counts", numbered, files, in_order, ambiguous)]
    return np.array(body, np.int64), notes
