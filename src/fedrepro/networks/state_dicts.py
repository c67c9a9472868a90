"""State dicts of plain PyTorch modules, read as networks of this package and written from them.

What PyTorch lays down is taken as given: a fully connected layer keeps its weight as (out, in), a
convolution as (channels, channels of the input, height, width), and a module lists its layers in
the order in which they were made. ReLU between layers is assumed; a weight the other way round, or
a layer without bias beside others with one, is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from fedrepro.core.errors import FedreproError, shown
from fedrepro.core.kinds import MIXED, MODULE, WHICH
from fedrepro.core.registry import components
from fedrepro.core.spec import Spec
from fedrepro.networks.layers import Affine, Convolution2d
from fedrepro.networks.mixed import mixed_spec, mixed_tensors
from fedrepro.networks.module_states import form_of, stacked_module
from fedrepro.networks.network import Network
from fedrepro.networks.predict import network_of
from fedrepro.networks.stored import StateDict, array_of, unwrapped, without_prefix

Shape = tuple[int, ...]
PARTS = ("weight", "bias")
MOST_EXAMPLES = 10**12  # of a client and class: sums of them are numbers of 64 bits


@dataclass(frozen=True)
class StoredLayer:
    """A layer as PyTorch keeps it; weight: (out, in) or (out, in, height, width), bias: (out,).

    biased: whether it has one; else it is zeros.
    """

    name: str
    weight: np.ndarray
    bias: np.ndarray
    biased: bool = True

    @property
    def tensor(self) -> np.ndarray:
        """The weight as networks here keep it: (in, out); that of a convolution as it is."""
        return self.weight.T if self.weight.ndim == 2 else self.weight


@dataclass(frozen=True)
class StackedModels:
    """The state dicts of J clients as one: tensors[name] is float32 (J, *shape).

    layers: what the state dicts call their layers, in order. widths: hidden units of each where
    these differ; see `LocalModels`.
    """

    model: Spec
    shape: Shape
    classes: int
    tensors: dict[str, np.ndarray]
    layers: tuple[str, ...]
    widths: tuple[tuple[int, ...], ...] | None = None


def stack(
    state_dicts: Sequence[StateDict],
    models: Sequence[Spec] = (),
    shape: Shape | None = None,
    layers: Sequence[str] | None = None,
    names: Sequence[str] | None = None,
) -> StackedModels:
    """Read the state dicts of clients.

    models: which network they are, one for all or one of each; without it, fully connected with
    ReLU. shape: of one example,
    which a model with convolutions needs. layers: their order, where it must be told. names: of
    the state dicts, for sentences. Errors: FedreproError for what is described at the top, and for
    shapes that differ from the model's, or between clients in more than how many hidden units fully
    connected layers have.
    """
    named = list(names or (f"state dict {place}" for place in range(len(state_dicts))))
    if not named:
        raise FedreproError("there is no state dict to combine; give one of each client")
    state_dicts = unwrapped(state_dicts)
    if len(models) > 1:
        return _mixed(state_dicts, models, shape, named)
    model = models[0] if models else None
    if model is not None and model.component.meta.get(MODULE):
        if shape is None:
            raise _without_shape(named[0], model)
        spec, classes, tensors = stacked_module(state_dicts, model, shape, named)
        return StackedModels(spec, shape, classes, tensors, ())
    odd = next((j for j, s in enumerate(state_dicts) if not isinstance(s, Mapping) or not s), None)
    if odd is not None:
        kind = shown(type(state_dicts[odd]).__name__)
        raise FedreproError(f"{named[odd]} is no state dict: it holds {kind}")
    try:
        by_client = _by_client(state_dicts, layers, named)
        widths, by_client = _of_one_width(by_client)
        first = by_client[0]
        spec = model or _dense_model(first, named[0])
    except FedreproError as error:
        raise FedreproError(f"{error}{_or_a_module(model)}") from None
    if widths and spec.name == "mlp":
        spec = spec.component.spec({**spec.values, "hidden": [len(x.bias) for x in first[:-1]]})
    shape = shape or (_inputs(first, spec, named[0]),)
    classes = len(first[-1].bias)
    _require_fit(first, network_of(spec, shape, classes), spec, named[0])
    tensors = {}
    for place in range(len(first)):
        tensors[f"weight{place}"] = np.stack([client[place].tensor for client in by_client])
        if first[place].biased:
            tensors[f"bias{place}"] = np.stack([client[place].bias for client in by_client])
    called = tuple(layer.name for layer in first)
    return StackedModels(spec, shape, classes, tensors, called, widths)


def _mixed(
    state_dicts: Sequence[StateDict],
    models: Sequence[Spec],
    shape: Shape | None,
    named: Sequence[str],
) -> StackedModels:
    """Read the state dicts of clients with a network each. Errors: as of `stack`."""
    if len(models) != len(named):
        raise FedreproError(
            f"{len(models)} networks are named for {len(named)} models: name one for all, or one "
            "of each, in the order of the models"
        )
    kinds = list(dict.fromkeys(models))
    read = {
        kind: stack(
            [s for s, m in zip(state_dicts, models, strict=True) if m == kind], [kind], shape,
            names=[n for n, m in zip(named, models, strict=True) if m == kind],
        )
        for kind in kinds
    }  # fmt: skip
    if len(kinds) == 1:
        return read[kinds[0]]
    forms = {(one.shape, one.classes) for one in read.values()}
    if len(forms) > 1 or any(one.widths for one in read.values()):
        raise FedreproError(
            "the networks take and give "
            + " or ".join(f"{form} to {classes} classes" for form, classes in forms)
            + ": let all have one shape of examples (--shape) and the same classes"
        )
    ((form, classes),) = forms
    at, each = dict.fromkeys(kinds, 0), []
    for kind in models:
        own = {name: value[at[kind]] for name, value in read[kind].tensors.items()}
        each.append((kinds.index(kind), own))
        at[kind] += 1
    spec = mixed_spec([read[kind].model for kind in kinds])
    return StackedModels(spec, form, classes, mixed_tensors(each), ())


def _by_client(
    state_dicts: Sequence[Any], layers: Sequence[str] | None, named: Sequence[str]
) -> list[list[StoredLayer]]:
    """The layers of each client, of one architecture but for their widths."""
    found = [
        _ordered(_stored(state, where), layers, where)
        for state, where in zip(without_prefix(state_dicts), named, strict=True)
    ]
    for stored, where in zip(found[1:], named[1:], strict=True):
        _require_same(stored, where, found[0], named[0])
    return found


def _of_one_width(
    by_client: list[list[StoredLayer]],
) -> tuple[tuple[tuple[int, ...], ...] | None, list[list[StoredLayer]]]:
    """Hidden units of each client if they differ, and layers with units of zeros up to the most.

    Such a unit gives 0 and nothing takes it, so that predictions stay as they are.
    """
    widths = tuple(tuple(len(layer.bias) for layer in client[:-1]) for client in by_client)
    if len(set(widths)) == 1:
        return None, by_client
    most = [max(units) for units in zip(*widths, strict=True)]
    padded = []
    for client in by_client:
        inputs, outputs = client[0].weight.shape[1], len(client[-1].bias)
        shapes = pairwise((inputs, *most, outputs))
        layers = []
        for layer, (into, out) in zip(client, shapes, strict=True):
            more = out - len(layer.bias)
            weight = np.pad(layer.weight, ((0, more), (0, into - layer.weight.shape[1])))
            layers.append(replace(layer, weight=weight, bias=np.pad(layer.bias, (0, more))))
        padded.append(layers)
    return widths, padded


def _or_a_module(model: Spec | None) -> str:
    """What else to try where state dicts do not read as layers; nothing if there is no module."""
    own = sorted(k for k, item in components("model").items() if item.meta.get(MODULE))
    if model is not None or not own:
        return ""
    return f"; if your @module made it, name that: --model {' or '.join(own)}, with --shape"


def _without_shape(where: str, model: Spec) -> FedreproError:
    return FedreproError(
        f"{where}: model '{model.name}' needs the shape of one example (shape=…, --shape "
        "1,28,28), which a state dict does not hold"
    )


# ------------------------------------------------------------------------------- one state dict


def _stored(state: StateDict, where: str) -> list[StoredLayer]:
    """The layers of a state dict, in its order."""
    inner = next((key for key, value in state.items() if isinstance(value, Mapping)), None)
    if inner is not None:
        raise FedreproError(
            f"{where}: '{inner}' holds further names; give the state dict itself, as in "
            f'torch.save(checkpoint["{inner}"], …)'
        )
    parts: dict[str, dict[str, np.ndarray]] = {}
    for key, value in state.items():
        name, _, part = str(key).rpartition(".")
        array = array_of(value, str(key), where)
        if part not in PARTS or array.ndim not in ((2, 4) if part == "weight" else (1,)):
            raise FedreproError(
                f"{where}: '{key}', of shape {array.shape}, is no weight or bias of a fully "
                "connected layer or a convolution; other layers need a @module (docs/models.md)"
            )
        parts.setdefault(name, {})[part] = array
    layers = []
    biased = any("bias" in layer for layer in parts.values()) or len(parts) == 1
    for name, arrays in parts.items():
        for part in PARTS:
            if part not in arrays and (part == "weight" or biased):
                raise FedreproError(
                    f"{where}: layer '{name}' has no {part}, and every layer needs one here; if "
                    "it was trained without, say so with one of zeros"
                )
        zeros = np.zeros(len(arrays["weight"]), np.float32)
        layers.append(StoredLayer(name, arrays["weight"], arrays.get("bias", zeros), biased))
        _require_orientation(layers[-1], where)
    return layers


def _require_orientation(layer: StoredLayer, where: str) -> None:
    """Biases belong to outputs, which come first in PyTorch."""
    outputs, inputs = layer.weight.shape[:2]
    biases = len(layer.bias)
    if biases == outputs:
        return
    turned = layer.weight.ndim == 2 and biases == inputs
    advice = "it is stored as (in, out): transpose it" if turned else "they do not belong together"
    raise FedreproError(
        f"{where}: layer '{layer.name}' has a weight of shape {layer.weight.shape}, which as "
        f"(out, in) has {outputs} outputs, and {biases} biases; {advice}"
    )


# ---------------------------------------------------------------------------------------- order


def _ordered(
    found: list[StoredLayer], layers: Sequence[str] | None, where: str
) -> list[StoredLayer]:
    """The layers from inputs to outputs: as told, or as stored if nothing speaks against it."""
    if layers is not None:
        named = {layer.name: layer for layer in found}
        if sorted(layers) != sorted(named):
            raise FedreproError(
                f"{where} has the layers {', '.join(named)}, but the order is given of "
                f"{', '.join(layers)}; name each of them once"
            )
        found = [named[name] for name in layers]
    for below, above in pairwise(found):
        if not _follows(above, below):
            raise FedreproError(
                f"{where}: layer '{below.name}' gives {len(below.bias)} numbers and "
                f"'{above.name}' takes {above.weight.shape[1]}; name the layers in their order"
            )
    return found


def _follows(above: StoredLayer, below: StoredLayer) -> bool:
    """Whether a layer may take what another gives; after convolutions it takes maps, flattened."""
    inputs, outputs = int(above.weight.shape[1]), len(below.bias)
    if below.weight.ndim == 4 and above.weight.ndim == 2:
        return inputs % outputs == 0
    return inputs == outputs and bool(below.weight.ndim == above.weight.ndim)


# ----------------------------------------------------------------------------- clients and model


def _require_same(
    layers: Sequence[StoredLayer], where: str, first: Sequence[StoredLayer], there: str
) -> None:
    for layer, other in zip(layers, first, strict=False):
        if layer.biased != other.biased:
            without = where if other.biased else there
            raise FedreproError(
                f"{without} has layers without biases, and others have them; only networks of one "
                "architecture are combined"
            )
        same = layer.weight.shape == other.weight.shape or _of_other_width(layers, first)
        if layer.name != other.name or not same:
            raise FedreproError(
                f"{where}: layer '{layer.name}' has a weight of shape {layer.weight.shape}, where "
                f"{there} has '{other.name}' of shape {other.weight.shape}; only networks of one "
                "architecture are combined"
            )
    if len(layers) != len(first):
        raise FedreproError(
            f"{where} has {len(layers)} layers and {there} {len(first)}; only networks of one "
            "architecture are combined"
        )


def _of_other_width(layers: Sequence[StoredLayer], first: Sequence[StoredLayer]) -> bool:
    """Whether fully connected networks differ in nothing but how many hidden units layers have."""
    dense = all(layer.weight.ndim == 2 for layer in (*layers, *first))
    inputs = layers[0].weight.shape[1] == first[0].weight.shape[1]
    outputs = len(layers[-1].bias) == len(first[-1].bias)
    return dense and inputs and outputs and len(layers) == len(first)


def _dense_model(layers: Sequence[StoredLayer], where: str) -> Spec:
    """The fully connected ReLU network with these layers."""
    if any(layer.weight.ndim == 4 for layer in layers):
        raise FedreproError(
            f"{where} has convolutions, whose padding and pooling it does not hold; say which "
            "model it is and the shape of one example (model=…, shape=…, or --model "
            "cnn+kernel~3 --shape 1,28,28)"
        )
    known = components("model")
    hidden = [len(layer.bias) for layer in layers[:-1]]
    bias = layers[0].biased
    return (
        known["mlp"].spec({"hidden": hidden, "bias": bias}) if hidden else known["logistic"].spec()
    )


def _inputs(layers: Sequence[StoredLayer], model: Spec, where: str) -> int:
    """Inputs of a fully connected network."""
    if layers[0].weight.ndim == 4:
        raise _without_shape(where, model)
    return int(layers[0].weight.shape[1])


def _require_fit(layers: Sequence[StoredLayer], network: Network, model: Spec, where: str) -> None:
    """Refuse layers of another number or shape than the model's."""
    wanted = [(layer, names) for layer, _, names in network.places if names]
    odd = next(
        (layer for layer, _ in wanted if not isinstance(layer, Affine | Convolution2d)), None
    )
    if odd is not None:
        raise FedreproError(
            f"model '{model.name}' has layers of the kind {type(odd).__name__}, which PyTorch "
            "keeps in another form; only fully connected layers and convolutions are read"
        )
    if len(wanted) != len(layers):
        raise FedreproError(
            f"{where} has {len(layers)} layers, but model '{model.token}' has {len(wanted)}"
        )
    if layers[0].biased != ("bias" in wanted[0][1]):
        have, lack = ("have", "has none") if layers[0].biased else ("lack", "has them")
        raise FedreproError(
            f"{where}: its layers {have} biases, and model '{model.token}' {lack}: say so with "
            f"bias~{str(layers[0].biased).lower()} in the model"
        )
    for stored, (_, names) in zip(layers, wanted, strict=True):
        shape = network.shapes[names["weight"]]
        if stored.tensor.shape != shape:
            raise FedreproError(
                f"{where}: layer '{stored.name}' has a weight of shape {stored.weight.shape}, but "
                f"in model '{model.token}' it is {shape if len(shape) == 4 else shape[::-1]}"
            )


def checked_counts(counts: Any, clients: int, classes: int) -> np.ndarray | None:
    """Examples of each client and class, int64 (clients, classes), or None if they are not known.

    Errors: FedreproError for another shape, or what are no counts.
    """
    if counts is None:
        return None
    table = np.asarray(counts)
    if table.shape != (clients, classes):
        raise FedreproError(
            f"label counts have the shape {table.shape}, but {clients} networks with {classes} "
            f"outputs need a row per network and a column per class, ({clients}, {classes})"
        )
    valid = table.dtype.kind in "iuf" and ((table >= 0) & (table <= MOST_EXAMPLES)).all()
    if not valid or (table != np.floor(table)).any():
        raise FedreproError(
            f"label counts are numbers of examples: whole, not below 0, at most {MOST_EXAMPLES:,}"
        )
    if not table.any():
        raise FedreproError("label counts are all 0: no client has an example to count for it")
    return table.astype(np.int64)


# -------------------------------------------------------------------------------------- and back


def unstack(
    model: Spec,
    tensors: Mapping[str, np.ndarray],
    layers: Sequence[str] | None = None,
    widths: Sequence[Sequence[int]] | None = None,
) -> list[dict[str, Any]]:
    """The m networks of tensors (m, *shape) as state dicts of torch tensors, float32.

    layers: what each layer is called; without it as in an `nn.Sequential` of the model's layers, or
    of a `torch.nn.Module` of one's own by its names. widths: hidden units of each network, where
    these differ. Errors: FedreproError for layers that PyTorch
    keeps in another form, or another number of names.
    """
    import torch

    if model.name == MIXED:
        specs = model.component.meta["specs"]
        return [
            unstack(
                specs[k],
                {n.partition(".")[2]: v[[i]] for n, v in tensors.items() if n.startswith(f"{k}.")},
            )[0]
            for i, k in enumerate(tensors[WHICH].argmax(axis=1))
        ]
    form = form_of(model)
    if form is not None:
        return [form.written(tensors, i) for i in range(len(next(iter(tensors.values()))))]
    if model.component.meta.get(MODULE):
        count = len(next(iter(tensors.values())))
        arrays = {key: np.array(value, np.float32) for key, value in tensors.items()}
        return [{k: torch.from_numpy(v)[i] for k, v in arrays.items()} for i in range(count)]
    places = range(sum(name.startswith("weight") for name in tensors))
    parts = PARTS if "bias0" in tensors else PARTS[:1]
    if set(tensors) != {f"{part}{place}" for part in parts for place in places}:
        raise FedreproError(
            f"model '{model.name}' has other layers than fully connected ones and convolutions; "
            "only these are written as a state dict"
        )
    names = list(_sequential_names(model, tensors) if layers is None else layers)
    if len(names) != len(places):
        raise FedreproError(
            f"{len(names)} names are given for the {len(places)} layers of model '{model.name}'; "
            "give one for each"
        )
    state_dicts = []
    for network in range(len(tensors["weight0"])):
        state = {}
        for place, name in enumerate(names):
            for part in parts:
                value = tensors[f"{part}{place}"][network]
                if widths is not None:
                    value = value[_own(widths[network], place)[len(PARTS) - value.ndim :]]
                value = value.T if value.ndim == 2 else value
                key = f"{name}.{part}" if name else part
                state[key] = torch.from_numpy(np.array(value, np.float32, order="C"))
        state_dicts.append(state)
    return state_dicts


def _own(widths: Sequence[int], place: int) -> tuple[slice, slice]:
    """Which rows and columns of a weight (in, out) join units that there are."""
    ends = (None, *widths, None)
    return slice(ends[place]), slice(ends[place + 1])


def _sequential_names(model: Spec, tensors: Mapping[str, np.ndarray]) -> list[str]:
    """The places of a fully connected model's layers in an `nn.Sequential` of them all."""
    if any(value.ndim == 5 for value in tensors.values()):
        raise FedreproError(
            f"model '{model.name}' has convolutions: say what its layers are called, as in "
            "state_dict(['conv1', 'conv2', 'fc'])"
        )
    last = sum(name.startswith("weight") for name in tensors) - 1
    classes = tensors[f"weight{last}"].shape[-1]
    network = network_of(model, (tensors["weight0"].shape[1],), classes)
    return [str(place) for place, layer in enumerate(network.layers) if isinstance(layer, Affine)]
