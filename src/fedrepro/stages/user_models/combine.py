"""Combine a user's own models by a one-shot method, or by every one, in Python or from files.

No data set of the package and no partition is needed.
"""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedrepro.api import GlobalModel, LocalModels, MethodOutput
from fedrepro.core.artifacts import require_target, write_text
from fedrepro.core.component_tokens import method_called
from fedrepro.core.errors import FedreproError, arose, sentence_for
from fedrepro.core.method_kinds import METHOD_KINDS
from fedrepro.core.metrics import FLOAT_BYTES
from fedrepro.core.registry import components, read_token, value_of
from fedrepro.core.rng import RngKey
from fedrepro.core.serialization import save_state
from fedrepro.core.spec import Component, Spec
from fedrepro.networks.predict import network_of
from fedrepro.numbers.cost_words import needs_in_words
from fedrepro.numbers.exhibit_tables import csv_text
from fedrepro.numbers.model_evaluation import Draws, EvaluationSplit
from fedrepro.stages.aggregate import SettingResult, SharedPreparation, run_setting
from fedrepro.stages.export_models import as_state
from fedrepro.stages.job_process import log
from fedrepro.stages.user_models.evaluate import finite_scores, metrics_on
from fedrepro.stages.user_models.user_files import SUFFIXES, write_state
from fedrepro.stages.user_models.user_inputs import ModelContext, ModelFiles, read_context
from fedrepro.training.examples import Examples, tensor_of

COSTS = ("bytes_up", "bytes_down", "rounds", "passes", "parameters", "forward_passes")
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
    spec = read_token("method", method_named(method)) if isinstance(method, str) else method
    setting = spec.component.spec({**spec.values, **values}).single()
    context = ModelContext.of(models)
    for doubt in context.doubts(setting.component):
        warnings.warn(doubt, stacklevel=2)
    return combined(context, setting, seed)


def combined(context: ModelContext, setting: Spec, seed: int) -> GlobalModel:
    """Apply a one-shot method to a user's models, and return the global model.

    `context` has the models, and what is known of clients; `setting` is the method with parameters.

    Raises:
        FedreproError: the method cannot be applied.
    """
    lacking = context.lacking(setting.component)
    if setting.component.meta["kind"] == "control":
        lacking = "is control: only one-shot methods make a model of others; --method all has both"
    if lacking:
        raise FedreproError(f"method '{setting.name}' {lacking}")
    made = applied(setting, prepared_by(context, setting, seed)).made
    if not isinstance(made, GlobalModel):
        raise FedreproError(
            f"method '{setting.token}' makes a network for each client, and not one of all: take "
            "batchnorm~average or batchnorm~recalibrate"
        )
    return replace(made, layers=context.models.layers)


def prepared_by(context: ModelContext, method: Spec, seed: int) -> SharedPreparation:
    """Return a method's costly work before aggregation, for the models in `context`."""
    bare = replace(context.models, label_counts=None, layers=None)
    prepare = method.component.meta["prepare"]
    return SharedPreparation(prepare, bare, context.info(method), RngKey(seed, 0))


def applied(setting: Spec, costly: SharedPreparation) -> SettingResult:
    """Apply a method to a user's models; return the resulting models and the cost.

    `setting` is the method with its parameters. `costly` has the user's models, and work before
    aggregation that several choices of parameters share.

    Raises:
        FedreproError: the method makes no model of these clients, or weights are not finite.
    """
    done = run_setting(setting, costly)
    clients = f"these {costly.clients.clients} clients"
    if done.made is None:
        raise FedreproError(
            f"'{setting.token}' makes no global model of {clients}; choose another size, or "
            "another method"
        )
    for made in [done.made] if isinstance(done.made, GlobalModel) else done.made:
        if not made.finite or not np.isfinite(0.0 if made.weights is None else made.weights).all():
            raise FedreproError(
                f"'{setting.token}' makes a model of these clients with numbers that are not "
                "finite; choose other settings, or another method"
            )
    return done


def method_named(words: str) -> str:
    """Translate a method's name in papers, such as RegMean++, to its name in this package.

    Labels of figures and leaderboards are translated too; other `words` are returned unchanged.
    """
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
    """Combine files of state dicts into one file `out`; return notes on assumptions and the result.

    A model of several networks is written as a list of state dicts with weights. `settings` are
    parameters of the method, as key=value.
    """
    require_target(out, SUFFIXES, files.all)
    spec = read_token("method", method_named(method))
    values: dict[str, Any] = {**spec.values}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not text:
            raise FedreproError(f"--set '{setting}' is not of the form name=value")
        values[key] = value_of(spec.component.params, key, text, f"--set {setting}")
    spec = spec.component.spec(values).single()
    context, _, notes = read_context(files)
    made = combined(context, spec, seed)
    write_state(out, as_state(made, context.models.classes))
    network = network_of(made.model, context.models.shape, context.models.classes)
    numbers = f"{made.trained(network.buffers):,}"
    written = f"one network of {numbers} parameters, as a state dict"
    if made.networks > 1:
        kind = "votes" if made.ties else "probability"
        share = f"`weights` the share of each network in each class's {kind}"
        gate = "`gate` the small network that says how much each counts"
        written = (
            f"a mixture of {made.networks} networks, {numbers} parameters; `state_dicts` holds "
            f"them, {gate if made.gate else share}"
        )
    return (*notes, *context.doubts(spec.component), f"{out}: {written}")


# ------------------------------------------------------------------------------------ all methods

# a method's numbers in the table, in the order of columns
NUMBERS = (
    "settings_tried", "accuracy", "accuracy_worst", "times_the_models", *COSTS, "seconds",
    "client_seconds",
)  # fmt: skip


@dataclass(frozen=True)
class AppliedMethod:
    """The result of applying one method to a user's models.

    item: the method. why: the reason if it failed, else "". setting: the parameter values, as text.
    numbers: the metrics NUMBERS; `seconds` are of all parameter values tried, `client_seconds` the
    clients' part of the longest, and `times_the_models` the bytes that clients send, divided by the
    bytes of their models. made: the global model, or a model per client.
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
        """Return "control" for a control, else "one model" or "several models", by its result."""
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


def run_all(
    files: ModelFiles, out: Path | None = None, seed: int = 0
) -> tuple[list[AppliedMethod], tuple[str, ...]]:
    """Apply every one-shot method and control to a user's models, and measure the results.

    With validation examples, a method that has a grid of parameter values is run with all of them,
    and the values with the best validation accuracy are measured; otherwise defaults are used.
    `out` is a new folder for a table and each method's model, written whole or not at all.

    Returns (results of methods, the most accurate first and failed ones last; notes on
    assumptions).

    Raises:
        FedreproError: files cannot be used. If a single method fails, its result says why.
    """
    if files.evaluate is None:
        raise FedreproError("--method all measures every method: say on which data by --evaluate")
    if out is not None and out.exists():
        raise FedreproError(f"{out} is there already: name a folder that is not, for all models")
    context, examples, notes = read_context(files)
    assert examples is not None
    found = list(entries(context, examples, seed))
    doubts = [doubt for entry in found if not entry.why for doubt in context.doubts(entry.item)]
    found.sort(key=lambda entry: -entry.numbers.get("accuracy", -1.0))
    if out is not None:
        part, layers = out.with_name(f".{out.name}.part"), context.models.layers or ()
        shutil.rmtree(part, ignore_errors=True)
        try:
            for entry in found:
                if isinstance(made := entry.made, GlobalModel):  # not models of clients
                    weights = sum(name.startswith("weight") for name in made.tensors)
                    named = replace(made, layers=layers if weights == len(layers) else None)
                    state = as_state(named, context.models.classes)
                    save_state(part / f"{entry.item.name}.pt", state)
            table = pd.DataFrame([entry.row for entry in found])
            write_text(part / "table.csv", csv_text(table))
            part.rename(out)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return found, (*notes, *dict.fromkeys(doubts))


def entries(context: ModelContext, examples: Examples, seed: int = 0) -> Iterator[AppliedMethod]:
    """Yield the result of each one-shot method and control on a user's models, sorted by name.

    `context` has the models and what is known of clients; accuracy is measured on `examples`.
    """
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
    """Apply a method with the parameters that are best on validation examples, else with defaults.

    Without a grid of values or without validation examples, defaults are used. The result is
    measured on `examples`.
    """
    models, known = context.models, context.known
    inputs, labels, grid = known.validation_inputs, known.validation_labels, dict[str, list[Any]]()
    if item.meta["grid"] and inputs is not None:
        grid = {name: list(values) for name, values in item.meta["grid"].items()}
    settings = list(item.spec(grid).expand())
    costly, draws = prepared_by(context, settings[0], seed), Draws(RngKey(seed, 0))

    def measured(made: MethodOutput, on: Examples) -> dict[str, float]:
        split = EvaluationSplit(on, on.targets.numpy(), models.shape, models.classes)
        return metrics_on(made, split, draws)

    results = [applied(setting, costly) for setting in settings]
    scores = [0.0]
    if grid and inputs is not None and labels is not None:
        held = Examples(tensor_of(inputs), tensor_of(labels))
        scores = [measured(done.made, held)["accuracy"] for done in results]
    best = int(np.argmax(scores))
    done = results[best]
    for made in [done.made] if isinstance(done.made, GlobalModel) else done.made or ():
        network = network_of(made.model, models.shape, models.classes)
        finite_scores(f"'{settings[best].token}'", made, network, examples)
    numbers = dict.fromkeys(COSTS, 0.0) | {number.metric: number.value for number in done.cost}
    numbers |= measured(done.made, examples)
    numbers |= {
        "settings_tried": len(settings),
        "times_the_models": numbers["bytes_up"] / (FLOAT_BYTES * models.numbers),
        "seconds": sum(one.seconds for one in results),
        "client_seconds": max(one.further.seconds for one in results),
    }
    return AppliedMethod(item, setting=settings[best].token, numbers=numbers, made=done.made)
