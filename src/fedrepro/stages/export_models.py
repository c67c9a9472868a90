"""Save the models behind a figure or table, made again by one-shot methods, as state dicts.

Random numbers depend on seed and trial alone, so it shows the numbers of exactly these models.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedrepro.api import GlobalModel
from fedrepro.core.artifacts import checksum_of_file, read_source, write_json
from fedrepro.core.component_notation import setting_names
from fedrepro.core.errors import FedreproError
from fedrepro.core.method_kinds import MODULE
from fedrepro.core.params import comparable_text
from fedrepro.core.provenance import provenance
from fedrepro.core.spec import Spec
from fedrepro.core.state_and_model_files import read_models, save_state
from fedrepro.networks.module_state_dicts import with_own_form
from fedrepro.numbers.exhibit_files import open_exhibit
from fedrepro.planning.jobs import Scenario, folders_of, public_data_of
from fedrepro.planning.plan import Plan
from fedrepro.stages.aggregate import SharedPreparation, method_inputs, run_setting
from fedrepro.stages.job_log_and_gpu_lock import device_of, log
from fedrepro.stages.trial_data import ScenarioData


def run(key: str, plan: Plan, folder: Path, device: str, out: Path) -> None:
    """Compute the models of a figure's or table's one-shot methods again; write .pt files to `out`.

    There is a file per combination of swept parameters, method and trial; models.json lists the
    files. `folder` has the drawn figures and tables, with the selected parameter values.
    """
    exhibit, where = plan.exhibit(key), ""
    written = open_exhibit(folder, key, plan.scale).table(".csv").to_dict("records")
    rows, inputs = list[dict[str, Any]](), list[dict[str, Any]]()
    for place, point in enumerate(exhibit.points):
        at = {name: comparable_text(value) for name, value in point.values.items()}
        of_point = [row for row in written if {k: comparable_text(row[k]) for k in at} == at]
        shown = {(row["method"], row["setting"]) for row in of_point}
        for (label, setting), run in point.runs.items():
            method, token, trials = setting.method, setting.token, point.trials[label]
            # fine-tuned models are left out: a trial may have several, one per public sample
            one_shot = method.component.meta["kind"] == "one_shot" and (label, token) in shown
            if not (one_shot and run.scenario) or setting.tune:
                continue
            where = where or device_of(device)
            for trial, made, classes in _made(method, run.scenario, trials, plan, where, inputs):
                file = f"{place}-{setting_names([method], [method], token)}-trial-{trial}.pt"
                save_state(out / file, as_state(made, classes))
                row = {"file": file, "checksum": checksum_of_file(out / file), "point": at}
                more = {"method": label, "setting": token, "trial": trial}
                rows.append({**row, **more, "model": made.model.token})
            log(f"{label}: {token}, {trials} trials")
    if not where:
        raise FedreproError(f"{key} shows no one-shot method, whose models could be kept")
    source = provenance(plan.config.seed, device=where, inputs=inputs, key=key, scale=plan.scale)
    write_json(out / "models.json", {"provenance": source, "models": rows})


def _made(
    method: Spec,
    scenario: Scenario,
    count: int,
    plan: Plan,
    device: str,
    inputs: list[dict[str, Any]],
) -> Iterator[tuple[int, GlobalModel, int]]:
    """Yield (trial, model, classes) of `count` trials; append provenance of files to `inputs`."""
    data, other = plan.dataset(scenario.dataset), public_data_of(method)
    elsewhere = Path(plan.dataset(other)) if other else None
    for block in plan.blocks(count):
        partition = plan.partition(scenario.dataset, scenario.partition, block)
        given = ScenarioData.load(scenario, data, partition, plan.config.seed, device)
        files = folders_of(plan.local(scenario, block))
        trials, made = [trial for trial in block if trial < count], {"path": scenario.token}
        models = read_models(files, trials, {**made, "data": given.prepared.checksum})
        inputs.append(given.prepared.info["provenance"])
        inputs += [read_source(file) for file in (partition, *files)]
        for trial in trials:
            own = given.trial(trial)
            local, info = method_inputs(scenario, method, own, models[trial], elsewhere)
            costly = SharedPreparation(local, info, own.rng)
            model = run_setting(method, costly).made
            if not isinstance(model, GlobalModel):  # the method made no model, or one per client
                continue
            if model.model.component.meta.get(MODULE):
                whole = with_own_form(model.model, local.shape, local.classes)
                model = replace(model, model=whole)
            yield trial, model, local.classes


def as_state(made: GlobalModel, classes: int) -> Any:
    """Convert a global model to a PyTorch state dict, or an ensemble to a dict with several.

    The latter has `state_dicts` and `weights`, (networks, classes); maybe `gate`, tensors of a
    network that weighs the others for each example; `vote` if networks vote.
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
