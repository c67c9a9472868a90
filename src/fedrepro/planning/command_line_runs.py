"""Turn the options of `fedrepro run` (methods, data, networks by name) into a planned figure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from fedrepro.core.errors import FedreproError, unknown
from fedrepro.core.literature_names_and_setting_tokens import FIELD_NAMES, method_called, simple
from fedrepro.core.method_kinds import METHOD_KINDS
from fedrepro.core.params import Param, render
from fedrepro.core.registry import components, entry_of, value_of
from fedrepro.planning.config_files import ExhibitFile
from fedrepro.planning.exhibit import Exhibit, exhibit_of

SCALE, NAME = "paper", "rounds"  # of the exhibit
PLACES = {"data": "dataset"} | {kind: kind for kind in ("partition", "model", "training", "graph")}
DATA_FILES = (".csv", ".npz", ".npy", ".parquet")  # which `--data` does not take
LONGEST = 40  # letters of the name of a file
ROUNDS = ("rounds", "epochs", "fraction")  # options that methods in rounds have as parameters


@dataclass(frozen=True)
class RunWords:
    """The options of `fedrepro run`, a field each, and `changes`, such as {"scaffold.lr": 0.1}.

    epochs: of local training. fraction: share of clients in a round. graph: of peers, as "ring".
    """

    methods: Sequence[str]
    data: str = "mnist"
    clients: int = 10
    partition: str = "iid"
    model: str = "mlp"
    rounds: int = 100
    epochs: int = 1
    fraction: float = 1.0
    lr: float = 0.05
    batch_size: int = 32
    optimiser: str = "sgd"
    graph: str = ""
    trials: int = 3
    changes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def command(self) -> str:
        """Return the options as a command line, `fedrepro run ...`, that repeats the run."""
        words = ["fedrepro", "run", ",".join(self.methods)]
        for item in fields(self)[1:-1]:
            if (value := getattr(self, item.name)) != item.default:
                words += [f"--{item.name.replace('_', '-')}", str(value)]
        for key, value in self.changes.items():
            words.append(f"{key}={render(tuple(value) if isinstance(value, list) else value)}")
        return shlex.join(words)

    @property
    def name(self) -> str:
        """Return a name for the run's files: its methods and data set, such as fedavgmnist."""
        text = "".join([*self.methods, self.data.partition(":")[0]]).lower()
        return "".join(re.findall("[a-z0-9]", text))[:LONGEST]


def exhibits_of_words(words: RunWords, paper: str, command: str = "") -> ExhibitFile:
    """Turn `words`, options of `fedrepro run`, into a file that defines one figure to compute.

    `paper` is the file's short name; the figure's key is `paper`/rounds. `command`, by default that
    of `words`, is noted as how to run it. FedreproError is raised if an option is wrong.
    """
    kinds = {"dataset": words.data, "partition": words.partition, "model": words.model}
    kinds |= {"training": words.optimiser} | ({"graph": words.graph} if words.graph else {})
    if words.data.endswith(DATA_FILES):
        said = f"--data takes the name of a data set, not the file {words.data}"
        raise FedreproError(f"{said}: docs/data.md has the lines of Python that make a file one")
    entries = {kind: entry_of(kind, word) for kind, word in kinds.items()}
    usual = {"lr": words.lr, "batch_size": words.batch_size, "epochs": words.epochs}
    entries["training"] |= usual | {"init": "fan_in", "shared_init": True} | entries["training"]
    trained = _params("training", entries["training"])
    epochs = words.changes.get("training.epochs", entries["training"]["epochs"])
    epochs = value_of(trained, "epochs", epochs, "training")
    methods = _method_entries(replace(words, epochs=epochs))  # what is said of them goes before
    called = {simple(word): entry for word, entry in methods.items()}
    given = set[tuple[str, str]]()
    for kind, word in kinds.items():  # a short name's own values may be changed
        short = entry_of(kind, re.split("[+:]", word)[0]).items()
        given |= {(kind, one[0]) for one in entry_of(kind, word).items() if one not in short}
    for change, value in words.changes.items():
        who, _, key = change.rpartition(".")
        if (place := (PLACES.get(who, simple(who)), key)) in given:
            raise FedreproError(f"'{change}' is said in another way too: leave one")
        given.add(place)
        if who in PLACES:
            kind = PLACES[who]
            if kind not in entries:
                raise FedreproError(f"'{change}' is given without --{kind}: name one")
            entries[kind][key] = value_of(_params(kind, entries[kind]), key, value, who)
        elif not who:
            fix = f"write it as in {next(iter(methods))}.{change}, or as an option"
            raise FedreproError(f"'{change}' does not say of what it is a parameter: {fix}")
        elif simple(who) not in called:
            raise unknown("name before the dot", who, [*methods, *PLACES], f"'{change}'")
        else:
            entry = called[simple(who)]
            own = _params("method", entry)
            read = value_of({**trained, **own}, key, value, who)
            (entry if key in own else entry.setdefault("training", {}))[key] = read
    for key in usual:
        read, asked = entries["training"][key], getattr(words, key)
        if asked not in (read, getattr(RunWords, key)):
            option = f"--{key.replace('_', '-')} {asked}"
            raise FedreproError(f"{option} is not read, since training.{key} is {read}: leave one")
    data = entries["dataset"]["name"]
    for word, entry in methods.items():
        public = _params("method", entry).get("public_data")
        if public and entry.get("public_data", public.default) == data:
            said = f"'{word}' would have the clients' own data as its public data"
            other = "mnist" if data == "fashion_mnist" else "fashion_mnist"
            raise FedreproError(f"{said}: name others, as in {word}.public_data={other}")
    divides = "clients" in _params("partition", entries["partition"])
    clients = entries["partition"].pop("clients", words.clients) if divides else None
    if words.clients not in (clients, RunWords.clients):
        said = f"--clients {words.clients} is not read, since the partition says how many there are"
        raise FedreproError(f"{said}: leave it out")
    labels = ", ".join(entry["label"] for entry in methods.values())
    exhibit = {
        "title": f"{labels} on {components('dataset')[data].meta['title']}",
        "place": "a run",
        "caption": f"Means over {words.trials} trials, bands one standard deviation.",
        "scales": [SCALE],
        "drawing": "accuracy-and-bytes",
        **entries,
        "sweep": {"partition.clients": [clients]} if divides else {},
        "methods": list(methods.values()),
        "trials": words.trials,
        "measure_every": "auto",
    }
    about = {"paper": paper, "title": exhibit["title"], "source": command or words.command}
    return ExhibitFile.model_validate({**about, "exhibits": {NAME: exhibit}})


def plan_of_words(file: ExhibitFile, name: str = NAME, place: str = "") -> Exhibit:
    """Plan figure `name` of `file` at full size; errors cite its path `place`, if not ""."""
    try:
        return exhibit_of(file, name, SCALE)
    except FedreproError as error:
        where = file.where(name, SCALE)
        message = str(error) if place else re.sub(f"{re.escape(where)}[:,] ", "", str(error))
        raise FedreproError(message.replace(where, f"{place}, {name}")) from None


def _method_entries(words: RunWords) -> dict[str, dict[str, Any]]:
    known = components("method")
    entries: dict[str, dict[str, Any]] = {}
    for word in words.methods:
        found = method_called(word, known)
        item = known[found.method]
        label = found.name if found in FIELD_NAMES else item.meta["label"]
        entry = {"name": found.method, "label": str(label), **found.values}
        if found.training:
            entry["training"] = dict(found.training)
        if METHOD_KINDS[item.meta["kind"]].in_rounds:
            options = {key: getattr(words, key) for key in ROUNDS if key not in entry}
            for key in [key for key in options if key not in item.params]:
                other = options.pop(key) != getattr(RunWords, key)
                # a method with none of them reads the training's epochs
                if other and (key != "epochs" or item.params.keys() & ROUNDS):
                    said = f"method '{word}' has no parameter '{key}'"
                    raise FedreproError(f"{said}: give it to others alone, as in fedavg.{key}=…")
            entry |= options
        if word in entries or any(entry["label"] == other["label"] for other in entries.values()):
            raise FedreproError(f"method '{word}' is named twice: name it once")
        entries[word] = entry
    return entries


def _params(kind: str, entry: Mapping[str, Any]) -> Mapping[str, Param]:
    return components(kind)[entry["name"]].params
