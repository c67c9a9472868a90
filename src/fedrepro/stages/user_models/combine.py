"""Combine a user's own models by a one-shot method, or by every one, and measure models.

No data set of the package and no partition is needed.
"""

from __future__ import annotations

import io
import shutil
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedrepro.api import GlobalModel, LocalModels, MethodOutput
from fedrepro.core.artifacts import require_target, write_bytes, write_text
from fedrepro.core.component_notation import method_called
from fedrepro.core.errors import FedreproError, arose, sentence_for
from fedrepro.core.method_kinds import METHOD_KINDS, MODULE
from fedrepro.core.metrics import FLOAT_BYTES
from fedrepro.core.registry import components, parse_token, value_of
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Component, Spec
from fedrepro.core.state_and_model_files import save_state
from fedrepro.networks.predict import network_of
from fedrepro.numbers.cost_words import needs_in_words
from fedrepro.numbers.exhibit_tables import csv_text
from fedrepro.numbers.model_evaluation import (
    Draws,
    EvaluationSplit,
    class_scores,
    confusion,
    measure,
    measure_alone,
    scored,
)
from fedrepro.stages.aggregate import SettingResult, SharedPreparation, run_setting
from fedrepro.stages.export_models import as_state
from fedrepro.stages.job_log_and_gpu_lock import log
from fedrepro.stages.user_models.user_files import (
    ASSUMED,
    PYTORCH,
    SUFFIXES,
    DataForm,
    ModelContext,
    ModelFiles,
    read_context,
    read_files,
    read_state,
)
from fedrepro.training.examples import Examples, tensor_of

# names of methods on leaderboards that are neither a label nor a name in papers
ON_BOARDS = {
    "fedavg": "average",
    "fedavg, one start": "average_shared",
    "mean of probabilities": "uniform_ensemble",
    "class-weighted ensemble": "weighted_ensemble",
}


def combine(
    models: LocalModels, method: str | Spec, /, *, seed: int = 0, **values: Any
) -> GlobalModel:
    """Apply a one-shot method to a user's own models, and return the global model.

    Args:
        models: the clients' models, as `LocalModels.from_state_dicts` makes them.
        method: a name with parameters, such as "pfnm" or "pfnm+sigma2~0.1".
        seed: of random numbers; the pipeline draws equal ones in trial 0.
        values: parameters of the method by name, which override those in `method`.

    Raises:
        FedreproError: the method is not one-shot, cannot combine these models, or needs data.
    """
    spec = parse_token("method", method_named(method)) if isinstance(method, str) else method
    setting = spec.component.spec({**spec.values, **values}).single()
    context = ModelContext.of(models)
    for doubt in context.doubts(setting.component):
        warnings.warn(doubt, stacklevel=2)
    return combined(context, setting, seed)


def combined(context: ModelContext, setting: Spec, seed: int) -> GlobalModel:
    """Apply a one-shot method with its parameters, `setting`, to a user's models in `context`."""
    lacking = context.lacking(setting.component)
    if setting.component.meta["kind"] == "control":
        lacking = "is control: only one-shot methods make a model of others; --method all has both"
    if lacking:
        raise FedreproError(f"method '{setting.name}' {lacking}")
    made = applied(setting, _shared(context, setting, seed)).made
    if not isinstance(made, GlobalModel):
        said = f"method '{setting.token}' makes a network for each client, and not one of all"
        raise FedreproError(f"{said}: take batchnorm~average or batchnorm~recalibrate")
    return replace(made, layers=context.models.layers)


def _shared(context: ModelContext, method: Spec, seed: int) -> SharedPreparation:
    bare = replace(context.models, label_counts=None, layers=None)
    return SharedPreparation(bare, context.info(method), RngKey(seed, 0))


def applied(setting: Spec, costly: SharedPreparation) -> SettingResult:
    """Apply a method with its parameters, `setting`, to the models in `costly`: models and cost.

    Raises:
        FedreproError: the method makes no model of these clients, or weights are not finite.
    """
    done = run_setting(setting, costly)
    if done.made is None:
        said = f"'{setting.token}' makes no global model of these {costly.clients.clients} clients"
        raise FedreproError(f"{said}; choose another size, or another method")
    for made in each(done.made):
        if not made.finite or not np.isfinite(0.0 if made.weights is None else made.weights).all():
            said = f"'{setting.token}' makes a model with numbers that are not finite"
            raise FedreproError(f"{said}; choose other settings, or another method")
    return done


def each(made: MethodOutput) -> Sequence[GlobalModel]:
    return [made] if isinstance(made, GlobalModel) else made or ()


def method_named(words: str) -> str:
    """Return the name here of a method in papers, such as RegMean++; other `words` as they are."""
    name, plus, rest = words.partition("+")
    known = {k: item for k, item in components("method").items() if item.meta["kind"] == "one_shot"}
    if name in known:
        return words
    for called, further in ((words, ""), (name, plus + rest)):
        if board := ON_BOARDS.get(called.lower()):
            return f"{board}{further}"
        if found := method_called(called, known):
            return f"{found.token}{further}"
    return words


def run(
    method: str, files: ModelFiles, out: Path, settings: Sequence[str] = (), seed: int = 0
) -> tuple[str, ...]:
    """Combine state dicts into a file `out`; return notes. `settings`: key=value of the method."""
    require_target(out, SUFFIXES, files.all)
    spec = parse_token("method", method_named(method))
    values: dict[str, Any] = {**spec.values}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not text:
            raise FedreproError(f"--set '{setting}' is not of the form name=value")
        values[key] = value_of(spec.component.params, key, text, f"--set {setting}")
    spec = spec.component.spec(values).single()
    context, _, notes = read_context(files)
    made, models = combined(context, spec, seed), context.models
    write_state(out, as_state(made, models.classes))
    buffers = network_of(made.model, models.shape, models.classes).buffers
    written = f"one network of {made.trained(buffers):,} parameters, as a state dict"
    if made.networks > 1:
        kind = "votes" if made.ties else "probability"
        share = f"`weights` the share of each network in each class's {kind}"
        more = "`gate` the small network that says how much each counts" if made.gate else share
        written = f"a mixture of {made.networks} networks, {made.trained(buffers):,} parameters"
        written += f"; `state_dicts` holds them, {more}"
    return (*notes, *context.doubts(spec.component), f"{out}: {written}")


def write_state(path: Path, state: Mapping[str, Any]) -> None:
    """Write a state dict in the format of the file's suffix.

    An ensemble, several state dicts with weights, can only be written to a .pt file.
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


# ------------------------------------------------------------------------------------ all methods

COSTS = ("bytes_up", "bytes_down", "rounds", "passes", "parameters", "forward_passes")
# a method's numbers in the table, in the order of columns
NUMBERS = ["settings_tried", "accuracy", "accuracy_worst", "times_the_models", *COSTS]
NUMBERS += ["seconds", "client_seconds"]


@dataclass(frozen=True)
class AppliedMethod:
    """The result of applying one method to a user's models; `why` is the reason if it failed.

    numbers: accuracies and costs by name; `seconds` are of all parameter values tried,
    `client_seconds` the clients' part, for the values that took them longest; `times_the_models` is
    bytes that clients send divided by the bytes of their models.
    """

    item: Component
    why: str = ""
    setting: str = ""
    numbers: Mapping[str, float] = field(default_factory=dict)
    made: MethodOutput = None

    @property
    def label(self) -> str:
        """Return the method's label in figures, followed by its name if another has that label."""
        label = str(self.item.meta["label"])
        named = [item for item in components("method").values() if item.meta["label"] == label]
        return label if len(named) == 1 else f"{label} ({self.item.name})"

    @property
    def kind(self) -> str:
        if self.item.meta["kind"] == "control":
            return "control"
        alone = isinstance(self.made, GlobalModel) and self.made.networks == 1
        return "one model" if alone else "several models"

    @property
    def sees(self) -> str:
        return needs_in_words(self.item.meta["needs"], self.item.meta["sends"])

    @property
    def row(self) -> dict[str, Any]:
        """Return the method's row in the table of all methods, as {column: value}."""
        head = {"method": self.item.name, "label": self.label}
        head |= {"kind": "" if self.why else self.kind, "setting": self.setting}
        numbers = {"settings_tried": 0, **self.numbers}
        found = {name: numbers.get(name) for name in NUMBERS}
        return {**head, **found, "sees": self.sees, "not_applied": self.why}


AVERAGED = (
    "note: merges average BatchNorm's running statistics; one method alone can measure them again, "
    "as --method average+batchnorm~recalibrate with --clients-data"
)


def run_all(
    files: ModelFiles, out: Path | None = None, seed: int = 0
) -> tuple[list[AppliedMethod], tuple[str, ...]]:
    """Apply every one-shot method and control to a user's models, and measure the results.

    With validation examples, a method that has a grid of parameter values is run with all of them,
    and the values with the best validation accuracy are measured; otherwise defaults are used.
    `out` is a new folder for a table and each method's model, written whole or not at all.

    Returns (results, the most accurate first and failed ones last; notes on assumptions).
    """
    if files.evaluate is None:
        raise FedreproError("--method all measures every method: say on which data by --evaluate")
    if out is not None and out.exists():
        raise FedreproError(f"{out} is there already: give --out a new folder for all models")
    context, examples, notes = read_context(files)
    assert examples is not None
    found = list(entries(context, examples, seed))
    doubts = [doubt for entry in found if not entry.why for doubt in context.doubts(entry.item)]
    models = context.models
    if network_of(models.model, models.shape, models.classes).norms:
        doubts.append(AVERAGED)
    found.sort(key=lambda entry: -entry.numbers.get("accuracy", -1.0))
    if out is not None:
        part, layers = out.with_name(f".{out.name}.part"), models.layers or ()
        shutil.rmtree(part, ignore_errors=True)
        try:
            for entry in found:
                if isinstance(made := entry.made, GlobalModel):  # not models of clients
                    weights = sum(name.startswith("weight") for name in made.tensors)
                    named = replace(made, layers=layers if weights == len(layers) else None)
                    save_state(part / f"{entry.item.name}.pt", as_state(named, models.classes))
            write_text(part / "table.csv", csv_text(pd.DataFrame([one.row for one in found])))
            part.rename(out)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return found, (*notes, *dict.fromkeys(doubts))


def entries(context: ModelContext, examples: Examples, seed: int = 0) -> Iterator[AppliedMethod]:
    """Yield each one-shot method's and control's result, measured on `examples`, sorted by name."""
    for _, item in sorted(components("method").items()):
        if METHOD_KINDS[item.meta["kind"]].stage != "aggregate":
            continue
        if why := context.lacking(item):
            yield AppliedMethod(item, why)
            continue
        try:
            yield _best(item, context, examples, seed)
        except FedreproError as error:
            yield AppliedMethod(item, f"failed: {error}")
        except Exception as error:  # other methods are run nevertheless
            why = str(sentence_for(error) or "") or f"by a fault of the program ({arose(error)})"
            yield AppliedMethod(item, f"failed: {why}")
        log(item.name)


def _best(item: Component, context: ModelContext, examples: Examples, seed: int) -> AppliedMethod:
    """Apply a method with its best values by validation, or defaults; measure it on `examples`."""
    models, known = context.models, context.known
    inputs, labels = known.validation_inputs, known.validation_labels
    grid = {name: list(values) for name, values in item.meta["grid"].items()}
    settings = list(item.spec(grid if inputs is not None else {}).expand())
    costly, draws = _shared(context, settings[0], seed), Draws(RngKey(seed, 0))

    def measured(made: MethodOutput, on: Examples) -> dict[str, float]:
        split = EvaluationSplit(on, on.targets.numpy(), models.shape, models.classes)
        return metrics_on(made, split, draws)

    results, best = [applied(setting, costly) for setting in settings], 0
    if grid and inputs is not None and labels is not None:
        held = Examples(tensor_of(inputs), tensor_of(labels))
        best = int(np.argmax([measured(done.made, held)["accuracy"] for done in results]))
    done = results[best]
    for made in each(done.made):
        network = network_of(made.model, models.shape, models.classes)
        _finite_scores(f"'{settings[best].token}'", made, network, examples)
    numbers = dict.fromkeys(COSTS, 0.0) | {number.metric: number.value for number in done.cost}
    numbers |= measured(done.made, examples)
    numbers |= {
        "settings_tried": len(settings),
        "times_the_models": numbers["bytes_up"] / (FLOAT_BYTES * models.numbers),
        "seconds": sum(one.seconds for one in results),
        "client_seconds": max(one.further.seconds for one in results),
    }
    return AppliedMethod(item, setting=settings[best].token, numbers=numbers, made=done.made)


# ---------------------------------------------------------------------------- models in files

MIXTURE = {"state_dicts", "weights"}  # keys of files of `fedrepro combine` with several networks


def evaluations(
    models: Sequence[Path], files: ModelFiles
) -> tuple[list[dict[str, Any]], list[str]]:
    """Measure the model in each file of `models` on the examples in the file `files.evaluate`.

    Returns (a dict per model, notes on assumptions); keys are name, accuracy, loss, recall (by
    class), examples, parameters and networks. Models may differ in width.
    """
    assert files.evaluate is not None
    words, results = files.words, list[dict[str, Any]]()
    notes, known = dict[str, None](), dict[DataForm, Examples]()
    for place, path in enumerate(models):
        own = words[place : place + 1] if len(words) == len(models) else words[:1]
        # if there is one file, several names are those of its networks
        made, local = _model(path, files, words if len(models) == 1 else own)
        if not local.model.component.meta.get(MODULE):
            notes.setdefault(ASSUMED)
        if (form := files.form(local)) not in known:
            examples, assumptions = read_files({"data": [files.evaluate]}, form)
            known[form] = examples["data"][0]
            notes |= dict.fromkeys(assumptions)
        network = network_of(made.model, local.shape, local.classes)
        labels = known[form].targets.numpy()
        scores = _finite_scores(str(path), made, network, known[form])
        found, matrix = scored(scores, labels), confusion(scores, labels)
        result = {
            "name": str(path),
            "accuracy": found["accuracy"],
            "loss": found["nll"] if made.gate is None and made.ties is None else None,
            "recall": {k: row[k] / row.sum() for k, row in enumerate(matrix) if row.any()},
            "examples": len(labels),
            "parameters": made.trained(network.buffers),
            "networks": made.networks,
        }
        results.append(result)
    return results, list(notes)


def _finite_scores(name: str, model: GlobalModel, network: Any, examples: Examples) -> np.ndarray:
    """Compute a model's class scores (N, K) for `examples`; raise if one is not finite."""
    with np.errstate(over="ignore", invalid="ignore"):  # checked below
        scores = class_scores(network, model, examples, None).numpy()
    if lost := int((~np.isfinite(scores)).any(axis=1).sum()):
        raise FedreproError(
            f"{name} gives scores that are not finite to {lost:,} of {len(scores):,} examples: "
            "look for weights or inputs that are too large (--divide)"
        )
    return scores


def metrics_on(made: MethodOutput, split: EvaluationSplit, draws: Draws) -> dict[str, float]:
    """Measure `made` (a model, or a list of one per client) on a split; return {metric: value}."""
    assert made is not None
    if isinstance(made, GlobalModel):
        values = measure(made, {"test": split}, draws)
    else:
        values, _ = measure_alone(made, {"test": split}, draws)
    return {number.metric: number.value for number in values}


def _model(path: Path, files: ModelFiles, words: Sequence[str]) -> tuple[GlobalModel, LocalModels]:
    """Read a global model of architectures `words`; return it, and its networks as local models."""
    state = read_state(path)
    if not (isinstance(state, Mapping) and set(state) >= MIXTURE):
        local = files.read([state], [str(path)], words)
        return GlobalModel(local.model, local.tensors, widths=local.widths), local
    several = list(state["state_dicts"])
    names = [f"{path}, network {place}" for place in range(len(several))]
    local = files.read(several, names, words)
    weights = np.asarray(state["weights"], np.float64)
    if weights.shape != (len(several), local.classes) or not np.isfinite(weights).all():
        raise FedreproError(
            f"{path} has weights {weights.shape} for {len(several)} networks of {local.classes} "
            "classes, or some that are not finite"
        )
    gate = {name: np.asarray(value, np.float32) for name, value in state.get("gate", {}).items()}
    ties = RngKey(0, 0) if state.get("vote") else None
    made = GlobalModel(
        local.model, local.tensors, weights, ties=ties, gate=gate or None, widths=local.widths
    )
    return made, local
