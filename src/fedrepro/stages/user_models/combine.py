"""Combine a user's own models by a one-shot method, or by every one, and measure models."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedrepro.api import GlobalModel, LocalModels, MethodOutput
from fedrepro.core.checkpoint_and_model_files import save_state
from fedrepro.core.checksummed_files import require_target, write_bytes, write_text
from fedrepro.core.errors import FedreproError, arose, sentence_for
from fedrepro.core.method_kinds import METHOD_KINDS, MIXED, MODULE
from fedrepro.core.registry import components, parse_token
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Component, Spec
from fedrepro.networks.predict import network_of
from fedrepro.numbers.cost_and_needs_words import needs_in_words
from fedrepro.numbers.model_evaluation import Draws, EvaluationSplit, class_scores, scored
from fedrepro.numbers.tables_and_selection import csv_text
from fedrepro.stages.aggregate import SettingResult, SharedPreparation, numbers_of, run_setting
from fedrepro.stages.job_log_results_gpu_lock import log
from fedrepro.stages.user_models import model_and_data_files
from fedrepro.stages.user_models.model_and_data_files import ModelContext, ModelFiles, read_context
from fedrepro.training.training_examples import Examples, tensor_of

# a method's numbers in the table, in the order of columns
NUMBERS = ["accuracy", "accuracy_worst", "bytes_up", "bytes_down", "rounds", "passes"]
NUMBERS += ["parameters", "forward_passes", "seconds"]
MIXTURE = {"state_dicts", "weights"}  # keys of files of `fedrepro combine` with several networks
NETWORK = "fedrepro.network"  # the key of the network's name where --model does not give it


def combine(
    models: LocalModels, method: str | Spec, /, *, seed: int = 0, **values: Any
) -> GlobalModel:
    """Apply a one-shot method to a user's own models, and return the global model.

    Args:
        models: the clients' models, as `LocalModels.from_state_dicts` makes them.
        method: a name with parameters, such as "pfnm" or "pfnm+sigma2~0.1".
        seed: of random numbers, which are those of trial 0 in `fedrepro run` with this seed.
        values: parameters of the method by name, which override those in `method`.

    Raises:
        FedreproError: the method is not one-shot, cannot combine these models, or needs data.
    """
    spec = parse_token("method", method) if isinstance(method, str) else method
    setting = spec.component.spec({**spec.values, **values}).single()
    if models.label_counts is None and "example_counts" in setting.component.meta["needs"]:
        warnings.warn(model_and_data_files.EQUAL, stacklevel=2)
    return combined(ModelContext.of(models), setting, seed)


def combined(context: ModelContext, setting: Spec, seed: int) -> GlobalModel:
    """Apply a one-shot method with its parameters, `setting`, to a user's models in `context`."""
    kind, lacking = setting.component.meta["kind"], context.lacking(setting.component)
    if kind == "control":
        lacking = "is control: only one-shot methods make a model of others"
    elif kind != "one_shot":
        lacking = f"is {kind}: only one-shot methods combine models that are trained already"
    if lacking:
        raise FedreproError(f"method '{setting.name}' {lacking}")
    shared = SharedPreparation(context.models, context.info(setting), RngKey(seed, 0))
    made = applied(setting, shared).made
    if not isinstance(made, GlobalModel):
        said = f"method '{setting.token}' makes a network for each client, and not one of all"
        raise FedreproError(f"{said}: take batchnorm~average or batchnorm~recalibrate")
    return replace(made, layers=context.models.layers)


def applied(setting: Spec, costly: SharedPreparation) -> SettingResult:
    """Apply a method with values `setting` to clients' models in `costly`; return models and cost.

    FedreproError is raised if it makes no model of these clients, or weights are not finite.
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


def run(method: str, files: ModelFiles, out: Path, seed: int = 0) -> tuple[str, ...]:
    """Combine models by `method`, as "pfnm+sigma2~0.1", into file `out`; return lines to print."""
    if files.evaluate is not None:
        fix = f"measure {out} by `fedrepro evaluate`"
        raise FedreproError(f"--evaluate is read by `combine all` alone: {fix}")
    require_target(out, model_and_data_files.SUFFIXES, files.all)
    setting = parse_token("method", method).single()
    context, _, notes = read_context(files)
    made, models = combined(context, setting, seed), context.models
    state = as_state(made, models.classes)
    if out.suffix != ".safetensors":
        save_state(out, state)
    elif set(state) >= MIXTURE:
        said = f"cannot write {out}: several networks with their weights go into"
        raise FedreproError(f"{said} one .pt file only")
    else:
        from safetensors.torch import save

        write_bytes(out, save({name: tensor.contiguous() for name, tensor in state.items()}))
    buffers = network_of(made.model, models.shape, models.classes).buffers
    networks = "one network" if made.networks == 1 else f"{made.networks} networks, weighted,"
    return (*notes, f"{out}: {networks} of {made.trained(buffers):,} parameters")


def as_state(made: GlobalModel, classes: int) -> Any:
    """Convert a global model to a PyTorch state dict, or an ensemble to a dict with several.

    The latter has `state_dicts` and `weights`, (networks, classes); maybe `gate`, tensors of a
    network that weighs the others for each example; `vote`, the seed of ties, if networks vote.
    """
    import torch

    uniform = made.weights is None or np.ptp(made.weights) == 0
    if made.networks == 1 and uniform and not made.gate:
        return made.state_dict()
    even = np.full((made.networks, classes), 1 / made.networks)
    weights = even if made.weights is None else made.weights
    state = {"state_dicts": made.state_dicts(), "weights": torch.from_numpy(np.array(weights))}
    if made.gate:
        state["gate"] = {name: torch.from_numpy(value) for name, value in made.gate.items()}
    return state | ({"vote": made.ties.seed} if made.ties else {})


def run_all(
    files: ModelFiles, out: Path | None = None, seed: int = 0
) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """Apply every one-shot method and control to a user's models, and measure the results.

    A control is a result to compare with, such as the best client. With validation examples, a
    method that has a grid of parameter values is run with all of them, and the values with the best
    validation accuracy are measured; otherwise defaults are used. `out` is a new folder for a table
    and each method's model.

    Returns (rows of the table, the most accurate first and failed ones last; notes on assumptions).
    """
    if files.evaluate is None:
        raise FedreproError("all measures every method: say on which data by --evaluate")
    if out is not None and out.exists():
        raise FedreproError(f"{out} is there already: give --out a new folder for all models")
    context, examples, notes = read_context(files)
    assert examples is not None
    found = [*entries(context, examples, seed)]
    found.sort(key=lambda one: -np.nan_to_num(one[0]["accuracy"] or -1.0, nan=-1.0))
    rows = [row for row, _ in found]
    if out is not None:
        models = context.models
        for row, made in found:
            if isinstance(made, GlobalModel):  # not models of clients
                state = as_state(replace(made, layers=models.layers), models.classes)
                if _is_named(models.model) and not _is_named(made.model):
                    state = {NETWORK: made.model.token, "state_dict": state}
                save_state(out / f"{row['method']}.pt", state)
        write_text(out / "table.csv", csv_text(pd.DataFrame(rows)))
    return rows, notes


def _is_named(model: Spec) -> bool:  # by --model, since a state dict does not tell
    return model.name == MIXED or bool(model.component.meta.get(MODULE))


def entries(
    context: ModelContext, examples: Examples, seed: int = 0
) -> Iterator[tuple[dict[str, Any], MethodOutput]]:
    """Yield a row and the models of each one-shot method and control, measured on `examples`.

    A row has accuracies, costs, `seconds` of all values tried, and `not_applied`: why not, or "".
    """
    for name, item in sorted(components("method").items()):
        if METHOD_KINDS[item.meta["kind"]].stage != "aggregate":
            continue
        row: dict[str, Any] = {"method": name, **{k: item.meta[k] for k in ("label", "kind")}}
        row |= {"setting": "", "settings_tried": 0} | dict.fromkeys(NUMBERS)
        row["sees"] = needs_in_words(item.meta["needs"], item.meta["sends"])
        row["not_applied"], made = context.lacking(item), None
        if not row["not_applied"]:
            try:
                numbers, made = _best(item, context, examples, seed)
                row |= numbers
            except Exception as error:  # other methods are run nevertheless
                known = error if isinstance(error, FedreproError) else sentence_for(error)
                why = known or f"by a fault of the program ({arose(error)})"
                row["not_applied"] = f"failed: {why}"
            log(name)
        yield row, made


def _best(
    item: Component, context: ModelContext, examples: Examples, seed: int
) -> tuple[dict[str, Any], MethodOutput]:
    """Return a method's row on `examples`, and its models, at its best values by validation."""
    models, known = context.models, context.known
    inputs, labels = known.validation_inputs, known.validation_labels
    grid = item.meta["grid"] if inputs is not None else {}
    settings = list(item.spec({name: list(values) for name, values in grid.items()}).expand())
    rng = RngKey(seed, 0)
    costly, draws = SharedPreparation(models, context.info(settings[0]), rng), Draws(rng)

    def numbers_on(on: Examples, done: SettingResult) -> dict[str, float]:
        split = {"test": EvaluationSplit(on, on.targets.numpy(), models.shape, models.classes)}
        numbers = numbers_of(done.made, split, draws, None, done.cost)
        return {number.metric: number.value for number in numbers if number.client is None}

    results: list[tuple[Spec, SettingResult]] = []
    for setting in settings:
        try:
            results.append((setting, applied(setting, costly)))
        except FedreproError:
            if setting is settings[-1] and not results:
                raise
    best = 0
    if len(results) > 1 and inputs is not None and labels is not None:
        held = Examples(tensor_of(inputs), tensor_of(labels))
        reached = [numbers_on(held, done)["accuracy"] for _, done in results]
        best = int(np.argmax(np.nan_to_num(reached, nan=-1.0)))
    chosen, done = results[best]
    found = {"passes": 0.0, **numbers_on(examples, done)}
    found["seconds"] = sum(done.seconds for _, done in results)
    row: dict[str, Any] = {name: found.get(name) for name in NUMBERS}
    row |= {"setting": chosen.token, "settings_tried": len(settings)}
    return row, done.made


def evaluations(files: ModelFiles) -> Iterator[dict[str, Any]]:
    """Measure the model in each of `files.models` on the examples in the file `files.evaluate`.

    Yields a dict per model; keys are name, accuracy, loss, recall (by class), examples,
    parameters and networks. Models may differ in width.
    """
    assert files.evaluate is not None
    words, models = files.words, files.models
    # if there is one file, several names are those of its networks
    named = [words] * len(models) if min(len(words), len(models)) < 2 else [[w] for w in words]
    if len(named) != len(models):
        said = f"--model names {len(words)} networks for {len(models)} files"
        raise FedreproError(f"{said}: name one for all, or one for each")
    examples_for = cache(partial(model_and_data_files.read_examples, files.evaluate))
    each = ((*one, own) for path, own in zip(models, named, strict=True) for one in _states(path))
    for name, state, own in each:
        made, local = _model(name, state, files, own)
        examples = examples_for(local.shape, local.classes)
        network = network_of(made.model, local.shape, local.classes)
        labels = examples.targets.numpy()
        scores = class_scores(network, made, examples, None).numpy()
        found = scored(scores, labels)
        right = np.where(np.isnan(scores).any(1), np.nan, scores.argmax(1) == labels)
        likely = made.gate is None and made.ties is None
        yield {
            "name": name,
            "accuracy": found["accuracy"],
            "loss": found["nll"] if likely and np.allclose(scores.sum(1), 1, atol=1e-3) else None,
            "recall": {k: right[labels == k].mean() for k in np.unique(labels).tolist()},
            "examples": len(labels),
            "parameters": made.trained(network.buffers),
            "networks": made.networks,
        }


def _states(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the state in a file with its name, or those of a run's file, by trial and client."""
    state = model_and_data_files.read_state(path)
    trials = state["trials"] if isinstance(state, Mapping) and "trials" in state else {"": state}
    if not trials:
        raise FedreproError(f"{path} has no network, since all trials failed: see the run's page")
    for trial, of_trial in trials.items():
        name = f"{path}, trial {trial}" if trial else str(path)
        if isinstance(of_trial, Mapping) and set(of_trial) == {"state_dicts"}:
            yield from ((f"{name}, client {k}", s) for k, s in enumerate(of_trial["state_dicts"]))
        else:
            yield name, of_trial


def _model(
    path: str, state: Any, files: ModelFiles, words: Sequence[str]
) -> tuple[GlobalModel, LocalModels]:
    """Read a network or ensemble of architectures named `words`; return it, and its networks."""
    several, names = [state], [path]
    if isinstance(state, Mapping) and NETWORK in state:
        words = [state[NETWORK]]
    if mixture := isinstance(state, Mapping) and set(state) >= MIXTURE:
        several = list(state["state_dicts"])
        names = [f"{path}, network {place}" for place in range(len(several))]
    local = files.read(several, names, words)
    made = GlobalModel(local.model, local.tensors, widths=local.widths)
    if mixture:
        gate = {k: np.asarray(value, np.float32) for k, value in state.get("gate", {}).items()}
        ties = RngKey(int(state["vote"])) if "vote" in state else None
        weights = np.asarray(state["weights"], np.float64)
        made = replace(made, weights=weights, ties=ties, gate=gate or None)
    return made, local
