"""Stage models: the chosen global models of an exhibit's one-shot methods, as state dicts.

They are computed again from the local models. Draws depend on seed and trial alone, so these are
the models whose numbers the exhibit shows.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedrepro.api import GlobalModel
from fedrepro.core.artifacts import checksum_of_file, read_source, write_json
from fedrepro.core.errors import FedreproError
from fedrepro.core.method_kinds import MODULE
from fedrepro.core.params import comparable_text
from fedrepro.core.provenance import provenance
from fedrepro.core.rng import RngKey
from fedrepro.core.serialization import read_models, save_state
from fedrepro.core.spec import Spec
from fedrepro.core.tokens import setting_names
from fedrepro.networks.module_states import with_own_form
from fedrepro.numbers.exhibit_files import open_exhibit
from fedrepro.planning.plan import Exhibit, Plan
from fedrepro.planning.runs import Scenario, public_data_of
from fedrepro.stages.aggregate import SharedPreparation, method_inputs, ruled
from fedrepro.stages.devices import device_of
from fedrepro.stages.job_log import log
from fedrepro.stages.trial_data import TrialData, members_of, prepared_for


@dataclass(frozen=True)
class SelectedSetting:
    """A setting that an exhibit shows at one of its points; token: with its changes of training."""

    point: int
    values: Mapping[str, str]
    label: str
    setting: Spec
    token: str
    scenario: Scenario
    trials: int

    def file(self, trial: int) -> str:
        shown = setting_names([self.setting], [self.setting], self.token)
        return f"{self.point}-{shown}-trial-{trial}.pt"


def run(key: str, plan: Plan, folder: Path, device: str, out: Path) -> None:
    """Write a `.pt` for each point, one-shot method and trial, and models.json, which lists them.

    Args:
        key: of the exhibit.
        plan: of its scale.
        folder: of the scale's drawn exhibits.
        device: to compute on.
        out: the folder to write to.

    Raises:
        FedreproError: the exhibit is not drawn, or has no one-shot method.
    """
    exhibit = plan.exhibit(key)
    text = open_exhibit(folder, key, plan.scale).read(".csv").decode()
    wanted = list(selected_settings(exhibit, list(csv.DictReader(io.StringIO(text)))))
    if not wanted:
        raise FedreproError(f"{key} shows no one-shot method, whose models could be kept")
    rows: list[dict[str, Any]] = []
    inputs: list[dict[str, Any]] = []
    where = device_of(device)
    for choice in wanted:
        rows += [
            {
                "file": choice.file(trial),
                "checksum": _kept(made, classes, out / choice.file(trial)),
                "point": dict(choice.values),
                "method": choice.label,
                "setting": choice.token,
                "trial": trial,
                "model": made.model.token,
            }
            for trial, made, classes in _made(choice, plan, where, inputs)
        ]
        log(f"{choice.label}: {choice.token}, {choice.trials} trials")
    source = provenance(plan.config.seed, device=where, inputs=inputs, key=key, scale=plan.scale)
    write_json(out / "models.json", {"provenance": source, "models": rows})


def selected_settings(exhibit: Exhibit, rows: list[dict[str, str]]) -> Iterator[SelectedSetting]:
    """Yield the setting of each one-shot method behind the numbers of an exhibit, by point."""
    for place, point in enumerate(exhibit.points):
        at = {key: comparable_text(value) for key, value in point.values.items()}
        point_rows = [row for row in rows if {key: comparable_text(row[key]) for key in at} == at]
        shown = {(row["method"], row["setting"]) for row in point_rows}
        for (label, setting), run in point.runs.items():
            # a tuned model is one per sample, and a trial may have several samples
            known = (label, setting.token) in shown and not setting.tune
            if known and run.scenario and run.method.component.meta["kind"] == "one_shot":
                trials, scenario = point.trials[label], run.scenario
                yield SelectedSetting(
                    place, at, label, setting.method, setting.token, scenario, trials
                )


def _made(
    choice: SelectedSetting, plan: Plan, device: str, inputs: list[dict[str, Any]]
) -> Iterator[tuple[int, GlobalModel, int]]:
    """Yield trial, model and number of classes; add the provenance of files read to `inputs`."""
    scenario, seed = choice.scenario, plan.config.seed
    data = Path(plan.jobs.dataset(scenario.dataset))
    other = public_data_of(choice.setting)
    elsewhere = Path(plan.jobs.dataset(other)) if other else None
    for block in plan.blocks(choice.trials):
        partition = Path(plan.jobs.partition(scenario.dataset, scenario.partition, block))
        prepared = prepared_for(scenario, data, partition)
        files = plan.jobs.local(scenario, block).files
        trials = [trial for trial in block if trial < choice.trials]
        models = read_models(files, trials, {"path": scenario.token, "data": prepared.checksum})
        read: list[Path | str] = [partition, *files]
        inputs += [prepared.info["provenance"], *map(read_source, read)]
        for trial in trials:
            rng = RngKey(seed, trial)
            trial_data = TrialData(prepared, members_of(scenario, partition, trial), rng, device)
            local, info = method_inputs(
                scenario, choice.setting, trial_data, models[trial], elsewhere
            )
            costly = SharedPreparation(choice.setting.component.meta["prepare"], local, info, rng)
            values = {**choice.setting.own, **costly(choice.setting)}
            model = choice.setting.component.fn(local, info, rng=rng, **values)
            model = ruled(model, choice.setting, local, info)
            if not isinstance(model, GlobalModel):  # none of these clients, or one of each
                continue
            if model.model.component.meta.get(MODULE):
                whole = with_own_form(model.model, local.shape, local.classes)
                model = replace(model, model=whole)
            yield trial, model, local.classes


def _kept(made: GlobalModel, classes: int, path: Path) -> str:
    """Write a model, and return the checksum of the file."""
    save_state(path, as_state(made, classes))
    return checksum_of_file(path)


def as_state(made: GlobalModel, classes: int) -> Any:
    """Return a state dict; of a mixture all of them, and the weight of each network and class.

    vote: there if networks vote, instead of their probabilities being summed.
    """
    import torch

    if made.networks == 1:
        return made.state_dict()
    even = np.full((made.networks, classes), 1 / made.networks)
    weights = even if made.weights is None else made.weights
    state = {"state_dicts": made.state_dicts(), "weights": torch.from_numpy(np.array(weights))}
    if made.gate:
        state["gate"] = {name: torch.from_numpy(value) for name, value in made.gate.items()}
    return state | ({"vote": True} if made.ties else {})
