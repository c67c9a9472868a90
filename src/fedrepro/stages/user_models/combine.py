"""Own models combined by a one-shot method: from files to a file, or in Python.

Nothing of the workflow is needed: no data set, no partition, no exhibit.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedrepro.api import GlobalModel, LocalModels
from fedrepro.core.artifacts import require_target
from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import components, read_token
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Spec
from fedrepro.core.tokens import method_called
from fedrepro.networks.predict import network_of
from fedrepro.planning.config import load_exhibits
from fedrepro.stages.aggregate import SettingResult, SharedPreparation, run_setting
from fedrepro.stages.export_models import as_state
from fedrepro.stages.user_models.model_context import ModelContext, ModelFiles, read_context
from fedrepro.stages.user_models.state_files import SUFFIXES, write_state


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
    ground = ModelContext.of(models)
    for doubt in ground.doubts(setting.component):
        warnings.warn(doubt, stacklevel=2)
    return combined(ground, setting, seed)


def combined(ground: ModelContext, setting: Spec, seed: int) -> GlobalModel:
    """Apply a one-shot method to own models and data that are known of them.

    Raises:
        FedreproError: For a method that cannot be applied.
    """
    name, lacking = setting.name, ground.lacking(setting.component)
    if setting.component.meta["kind"] == "control":
        lacking = "is control: only one-shot methods make a model of others; --method all has both"
    if lacking:
        raise FedreproError(f"method '{name}' {lacking}")
    made = applied(ground, setting, seed).made
    assert isinstance(made, GlobalModel)
    return replace(made, layers=ground.models.layers)


def applied(
    ground: ModelContext, setting: Spec, seed: int, costly: SharedPreparation | None = None
) -> SettingResult:
    """Apply a method that lacks nothing; return its models with their costs.

    `costly` is what `prepared_by` returns, if several settings share it.

    Raises:
        FedreproError: If the method has no model of these clients, or weights are not finite.
    """
    costly = costly or prepared_by(ground, setting, seed)
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


def prepared_by(ground: ModelContext, method: Spec, seed: int) -> SharedPreparation:
    """Prepare a method's input, with what it computes once for several settings."""
    bare = replace(ground.models, label_counts=None, layers=None)
    item = method.component
    return SharedPreparation(item.meta["prepare"], bare, ground.info(method), RngKey(seed, 0))


def method_named(words: str) -> str:
    """Return the token of a one-shot method named by a leaderboard or a label, such as RegMean++.

    Tokens and unknown names are returned unchanged.
    """
    name, plus, rest = words.partition("+")
    known = {k: item for k, item in components("method").items() if item.meta["kind"] == "one_shot"}
    if name in known:
        return words
    # of leaderboards, whose entries may be nested in any way
    nodes: list[Any] = []
    for file in load_exhibits().values():
        nodes += [file.defaults, file.also, file.exhibits] if file.boards else []
    labels: dict[str, str] = {}
    for node in nodes:  # which grows on the way
        if isinstance(node, dict):
            nodes += node.values()
            if str(node.get("name")) in known and "label" in node:
                labels[str(node["label"]).lower()] = str(node["name"])
        elif isinstance(node, list):
            nodes += node
    for called, further in ((words, ""), (name, plus + rest)):
        if board := labels.get(called.lower()):
            return f"{board}{further}"
        if found := method_called(called, known):
            return f"{found.token}{further}"
    return words


# --------------------------------------------------------------------------------------- in files


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
    ground, _, notes = read_context(files)
    made = combined(ground, spec, seed)
    write_state(out, as_state(made, ground.models.classes))
    network = network_of(made.model, ground.models.shape, ground.models.classes)
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
    return (*notes, *ground.doubts(spec.component), f"{out}: {written}")


EXPONENT = re.compile(r"(?<=[0-9.])e\+(?=[0-9])")  # 1e+5, as other programs write it
