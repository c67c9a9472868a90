"""All one-shot methods and controls applied to own models, in one table with their costs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pandas as pd

from fedrepro.api import GlobalModel, MethodOutput
from fedrepro.core.artifacts import write_text
from fedrepro.core.errors import FedreproError, arose, sentence_for
from fedrepro.core.method_kinds import METHOD_KINDS
from fedrepro.core.metrics import FLOAT_BYTES
from fedrepro.core.registry import components
from fedrepro.core.rng import RngKey
from fedrepro.core.serialization import save_state
from fedrepro.core.spec import Component, Spec
from fedrepro.numbers.cost_words import needs_in_words
from fedrepro.numbers.model_evaluation import Draws, EvaluationSplit
from fedrepro.numbers.summary import csv_text
from fedrepro.stages.aggregate import SettingResult
from fedrepro.stages.common import log
from fedrepro.stages.export_models import as_state
from fedrepro.stages.user_models.combine import applied, prepared_by
from fedrepro.stages.user_models.evaluate import metrics_on
from fedrepro.stages.user_models.model_context import ModelContext, ModelFiles, read_context
from fedrepro.training.examples import Examples

COSTS = ("bytes_up", "bytes_down", "rounds", "passes", "parameters", "forward_passes")


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
    def called(self) -> str:
        """The label, which says if it is a control."""
        return f"{self.label}, control" if self.item.meta["kind"] == "control" else self.label

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


def run_all(files: ModelFiles, out: Path | None = None, seed: int = 0) -> MethodComparison:
    """Apply every method to the models of a command, and measure the results.

    A method with a grid is tried at all its settings if there are validation examples, and the best
    one on these is measured; otherwise defaults are used. `out` is a new folder for the results.

    Raises:
        FedreproError: For files that cannot be used; a failure of one method is its entry.
    """
    if files.evaluate is None:
        raise FedreproError("--method all measures every method: say on which data by --evaluate")
    if out is not None and out.exists():
        raise FedreproError(f"{out} is there already: name a folder that is not, for all models")
    ground, examples, notes = read_context(files)
    assert examples is not None
    methods = tuple(entries(ground, examples, seed))
    doubts = [doubt for entry in methods if not entry.why for doubt in ground.doubts(entry.item)]
    comparison = MethodComparison(methods, (*notes, *dict.fromkeys(doubts)))
    if out is not None:
        _write(comparison, ground, out)
    return comparison


def entries(ground: ModelContext, examples: Examples, seed: int = 0) -> Iterator[AppliedMethod]:
    """Yield an entry for each one-shot method and control, by name."""
    for _, item in sorted(components("method").items()):
        if METHOD_KINDS[item.meta["kind"]].stage != "aggregate":
            continue
        why = ground.lacking(item)
        if why:
            yield AppliedMethod(item, why)
            continue
        try:
            yield _best(item, ground, examples, seed)
        except FedreproError as error:
            yield AppliedMethod(item, f"failed: {error}")
        except Exception as error:  # a fault of one method costs its own row alone
            why = str(sentence_for(error) or "") or f"by a fault of the program ({arose(error)})"
            yield AppliedMethod(item, f"failed: {why}")
        log(item.name)


def _best(item: Component, ground: ModelContext, examples: Examples, seed: int) -> AppliedMethod:
    """Apply a method at the setting that validation examples choose, the first of equals."""
    chosen = ground.validation is not None and bool(item.meta["grid"])
    method = item.spec({k: list(v) for k, v in item.meta["grid"].items()} if chosen else {})
    settings = list(method.expand())
    costly, draws = prepared_by(ground, settings[0], seed), Draws(RngKey(seed, 0))
    known = ground.models

    def measured(made: MethodOutput, on: Examples) -> dict[str, float]:
        split = EvaluationSplit(on, on.targets.numpy(), known.shape, known.classes)
        return metrics_on(made, split, draws)

    best: tuple[float, Spec, SettingResult] | None = None
    seconds = at_clients = 0.0
    for setting in settings:
        done = applied(ground, setting, seed, costly)
        seconds, at_clients = seconds + done.seconds, max(at_clients, done.further.seconds)
        score = 0.0
        if chosen and ground.validation is not None:
            score = measured(done.made, ground.validation)["accuracy"]
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


# -------------------------------------------------------------------------------------- written


def as_frame(comparison: MethodComparison) -> pd.DataFrame:
    """Make the table with every column; methods that could not be applied are last, with why."""
    rows = []
    for entry in (*comparison.applied, *comparison.left_out):
        row = {
            "method": entry.item.name,
            "label": entry.label,
            "kind": "" if entry.why else entry.kind,
            "setting": entry.setting,
            "settings_tried": 0 if entry.why else entry.tried,
            "accuracy": entry.numbers.get("accuracy"),
            "accuracy_worst": entry.numbers.get("accuracy_worst"),
            "times_the_models": None if entry.why else entry.sent,
            **{name: entry.numbers.get(name, None if entry.why else 0.0) for name in COSTS},
            "seconds": None if entry.why else entry.seconds,
            "client_seconds": None if entry.why else entry.client_seconds,
            "sees": entry.sees,
            "not_applied": entry.why,
        }
        rows.append(row)
    return pd.DataFrame(rows)


def _write(comparison: MethodComparison, ground: ModelContext, out: Path) -> None:
    """Write the folder, whole or not at all: the table, and each method's model if it makes one."""
    part, layers = out.with_name(f".{out.name}.part"), ground.models.layers or ()
    shutil.rmtree(part, ignore_errors=True)
    try:
        for entry in comparison.applied:
            made = entry.made
            if isinstance(made, GlobalModel):  # clients alone make none
                weights = sum(name.startswith("weight") for name in made.tensors)
                named = replace(made, layers=layers if weights == len(layers) else None)
                state = as_state(named, ground.models.classes)
                save_state(part / f"{entry.item.name}.pt", state)
        write_text(part / "table.csv", csv_text(as_frame(comparison)))
        part.rename(out)
    finally:
        shutil.rmtree(part, ignore_errors=True)
