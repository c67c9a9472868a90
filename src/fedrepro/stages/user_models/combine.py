"""Own models combined: by one one-shot method, in Python or from files, or by all of them.

Nothing of the workflow is needed: no data set, no partition, no exhibit.
"""

from __future__ import annotations

import re
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
from fedrepro.core.errors import FedreproError, arose, sentence_for
from fedrepro.core.method_kinds import METHOD_KINDS
from fedrepro.core.metrics import FLOAT_BYTES
from fedrepro.core.registry import components, read_token
from fedrepro.core.rng import RngKey
from fedrepro.core.serialization import save_state
from fedrepro.core.spec import Component, Spec
from fedrepro.core.tokens import method_called
from fedrepro.networks.predict import network_of
from fedrepro.numbers.cost_words import needs_in_words
from fedrepro.numbers.exhibit_tables import csv_text
from fedrepro.numbers.model_evaluation import Draws, EvaluationSplit
from fedrepro.stages.aggregate import SettingResult, SharedPreparation, run_setting
from fedrepro.stages.export_models import as_state
from fedrepro.stages.job_log import log
from fedrepro.stages.user_models.evaluate import metrics_on
from fedrepro.stages.user_models.user_files import SUFFIXES, write_state
from fedrepro.stages.user_models.user_inputs import ModelContext, ModelFiles, read_context
from fedrepro.training.examples import Examples

COSTS = ("bytes_up", "bytes_down", "rounds", "passes", "parameters", "forward_passes")
EXPONENT = re.compile(r"(?<=[0-9.])e\+(?=[0-9])")  # 1e+5, as other programs write it
# what leaderboards call methods, where that is neither a label nor a name of the field
ON_BOARDS = {
    "fedavg": "average",
    "fedavg, one start": "average_shared",
    "mean of probabilities": "uniform_ensemble",
    "class-weighted ensemble": "weighted_ensemble",
}


def combine(
    models: LocalModels, method: str | Spec, /, *, seed: int = 0, **values: Any
) -> GlobalModel:
    """Apply a one-shot method to own models (`LocalModels.from_state_dicts`).

    Args:
        models: The clients' models.
        method: A token, such as "pfnm" or "pfnm+sigma2~0.1".
        seed: Seed of the draws, which are those of trial 0 of the workflow.
        values: Parameters of the method by name, over those of the token.

    Raises:
        FedreproError: For a method that is not one-shot, that does not combine such models, or that
            needs data.
    """
    spec = read_token("method", method_named(method)) if isinstance(method, str) else method
    setting = spec.component.spec({**spec.values, **values}).single()
    context = ModelContext.of(models)
    for doubt in context.doubts(setting.component):
        warnings.warn(doubt, stacklevel=2)
    return combined(context, setting, seed)


def combined(context: ModelContext, setting: Spec, seed: int) -> GlobalModel:
    """Apply a one-shot method to own models and data that are known of them.

    Raises:
        FedreproError: For a method that cannot be applied.
    """
    lacking = context.lacking(setting.component)
    if setting.component.meta["kind"] == "control":
        lacking = "is control: only one-shot methods make a model of others; --method all has both"
    if lacking:
        raise FedreproError(f"method '{setting.name}' {lacking}")
    made = applied(context, setting, seed).made
    assert isinstance(made, GlobalModel)
    return replace(made, layers=context.models.layers)


def applied(
    context: ModelContext, setting: Spec, seed: int, costly: SharedPreparation | None = None
) -> SettingResult:
    """Apply a method that lacks nothing; return its models with their costs.

    `costly` is what `prepared_by` returns, if several settings share it.

    Raises:
        FedreproError: If the method has no model of these clients, or weights are not finite.
    """
    costly = costly or prepared_by(context, setting, seed)
    done = run_setting(setting, costly.clients, costly.info, costly.rng, costly)
    if done.made is None:
        raise FedreproError(
            f"'{setting.token}' makes no global model of these {costly.clients.clients} clients; "
            "choose another size, or another method"
        )
    for made in [done.made] if isinstance(done.made, GlobalModel) else done.made:
        if not made.finite or not np.isfinite(0.0 if made.weights is None else made.weights).all():
            raise FedreproError(
                f"'{setting.token}' makes a model of these clients with numbers that are not "
                "finite; choose other settings, or another method"
            )
    return done


def prepared_by(context: ModelContext, method: Spec, seed: int) -> SharedPreparation:
    """Prepare a method's input, with what it computes once for several settings."""
    bare = replace(context.models, label_counts=None, layers=None)
    prepare = method.component.meta["prepare"]
    return SharedPreparation(prepare, bare, context.info(method), RngKey(seed, 0))


def method_named(words: str) -> str:
    """Return the token of a one-shot method named by a leaderboard or a label, such as RegMean++.

    Tokens and unknown names are returned unchanged.
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
    """Combine files of state dicts into one; return what was assumed and written, in sentences.

    Several networks are written as a list with weights. `settings` are key=value as in tokens.
    """
    require_target(out, SUFFIXES, files.all)
    spec = read_token("method", method_named(method))
    for setting in settings:
        key, equals, value = setting.partition("=")
        text = EXPONENT.sub("e", value)
        if not equals or not text:
            raise FedreproError(f"--set '{setting}' is not of the form name=value")
        if set("+~") & set(key + text):
            raise FedreproError(f"--set '{setting}' is more than one name=value; give each its own")
        # as a token, so that values are read and refused in the one place that does so
        read = read_token("method", f"{spec.name}+{key}~{text.replace(',', '@')}")
        spec = spec.component.spec({**spec.values, key: read.values[key]})
    spec = spec.single()
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


@dataclass(frozen=True)
class AppliedMethod:
    """A method's accuracy and costs, or why it could not be applied.

    `setting` was chosen among `tried`. `numbers` are by metric: COSTS, accuracy, and for clients
    alone accuracy_worst. `seconds` are of all settings, `client_seconds` within them. `sent` is in
    multiples of all clients' models.
    """

    item: Component
    why: str = ""
    setting: str = ""
    tried: int = 1
    numbers: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    client_seconds: float = 0.0
    sent: float = 0.0
    made: MethodOutput = None

    @property
    def label(self) -> str:
        """The label in figures, with the method's name if others have the same label."""
        label = str(self.item.meta["label"])
        named = [item for item in components("method").values() if item.meta["label"] == label]
        return label if len(named) == 1 else f"{label} ({self.item.name})"

    @property
    def kind(self) -> str:
        """One model, several models, or a control."""
        if self.item.meta["kind"] == "control":
            return "control"
        alone = isinstance(self.made, GlobalModel) and self.made.networks == 1
        return "one model" if alone else "several models"

    @property
    def sees(self) -> str:
        return needs_in_words(self.item.meta["needs"], self.item.meta["sends"])


@dataclass(frozen=True)
class MethodComparison:
    """Every method that combines trained models; `notes` say what was assumed."""

    entries: tuple[AppliedMethod, ...]
    notes: tuple[str, ...]

    @property
    def applied(self) -> list[AppliedMethod]:
        """List methods that could be applied, the most accurate first."""
        usable = [entry for entry in self.entries if not entry.why]
        return sorted(usable, key=lambda entry: -entry.numbers["accuracy"])

    @property
    def left_out(self) -> list[AppliedMethod]:
        """List methods that could not be applied, by name."""
        return [entry for entry in self.entries if entry.why]

    def as_frame(self) -> pd.DataFrame:
        """Make the table with every column; methods that could not be applied are last."""
        rows = []
        for entry in (*self.applied, *self.left_out):
            none = None if entry.why else 0.0
            row = {
                "method": entry.item.name,
                "label": entry.label,
                "kind": "" if entry.why else entry.kind,
                "setting": entry.setting,
                "settings_tried": 0 if entry.why else entry.tried,
                "accuracy": entry.numbers.get("accuracy"),
                "accuracy_worst": entry.numbers.get("accuracy_worst"),
                "times_the_models": None if entry.why else entry.sent,
                **{name: entry.numbers.get(name, none) for name in COSTS},
                "seconds": None if entry.why else entry.seconds,
                "client_seconds": None if entry.why else entry.client_seconds,
                "sees": entry.sees,
                "not_applied": entry.why,
            }
            rows.append(row)
        return pd.DataFrame(rows)


def run_all(files: ModelFiles, out: Path | None = None, seed: int = 0) -> MethodComparison:
    """Apply every method to the models of a command, and measure the results.

    A method with a grid is tried at all its settings if there are validation examples, and the best
    one on these is measured; otherwise defaults are used. `out` is a new folder for a table and
    each method's model, written whole or not at all.

    Raises:
        FedreproError: For files that cannot be used; a failure of one method is its entry.
    """
    if files.evaluate is None:
        raise FedreproError("--method all measures every method: say on which data by --evaluate")
    if out is not None and out.exists():
        raise FedreproError(f"{out} is there already: name a folder that is not, for all models")
    context, examples, notes = read_context(files)
    assert examples is not None
    methods = tuple(entries(context, examples, seed))
    doubts = [doubt for entry in methods if not entry.why for doubt in context.doubts(entry.item)]
    comparison = MethodComparison(methods, (*notes, *dict.fromkeys(doubts)))
    if out is None:
        return comparison
    part, layers = out.with_name(f".{out.name}.part"), context.models.layers or ()
    shutil.rmtree(part, ignore_errors=True)
    try:
        for entry in comparison.applied:
            made = entry.made
            if isinstance(made, GlobalModel):  # clients alone make none
                weights = sum(name.startswith("weight") for name in made.tensors)
                named = replace(made, layers=layers if weights == len(layers) else None)
                state = as_state(named, context.models.classes)
                save_state(part / f"{entry.item.name}.pt", state)
        write_text(part / "table.csv", csv_text(comparison.as_frame()))
        part.rename(out)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return comparison


def entries(context: ModelContext, examples: Examples, seed: int = 0) -> Iterator[AppliedMethod]:
    """Yield an entry for each one-shot method and control, by name."""
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
        except Exception as error:  # a fault of one method costs its own row alone
            why = str(sentence_for(error) or "") or f"by a fault of the program ({arose(error)})"
            yield AppliedMethod(item, f"failed: {why}")
        log(item.name)


def _best(item: Component, context: ModelContext, examples: Examples, seed: int) -> AppliedMethod:
    """Apply a method at the setting that validation examples choose, the first of equals."""
    known, validation = context.models, context.validation if item.meta["grid"] else None
    grid = {} if validation is None else {k: list(v) for k, v in item.meta["grid"].items()}
    settings = list(item.spec(grid).expand())
    costly, draws = prepared_by(context, settings[0], seed), Draws(RngKey(seed, 0))

    def measured(made: MethodOutput, on: Examples) -> dict[str, float]:
        split = EvaluationSplit(on, on.targets.numpy(), known.shape, known.classes)
        return metrics_on(made, split, draws)

    best: tuple[float, Spec, SettingResult] | None = None
    seconds = at_clients = 0.0
    for setting in settings:
        done = applied(context, setting, seed, costly)
        seconds, at_clients = seconds + done.seconds, max(at_clients, done.further.seconds)
        score = 0.0 if validation is None else measured(done.made, validation)["accuracy"]
        if best is None or score > best[0]:
            best = score, setting, done
    assert best is not None
    _, setting, done = best
    numbers = {number.metric: number.value for number in done.cost}
    numbers |= measured(done.made, examples)
    return AppliedMethod(
        item,
        setting=setting.token,
        tried=len(settings),
        numbers=numbers,
        seconds=seconds,
        client_seconds=at_clients,
        sent=numbers["bytes_up"] / (FLOAT_BYTES * known.numbers),
        made=done.made,
    )
