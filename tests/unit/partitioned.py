"""Small data to divide, with and without natural groups, and partitions that fit them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedrepro.core.registry import components
from fedrepro.data.assignment import Assignment, TrainingLabels
from fedrepro.data.prepared import Prepared

NAMES = sorted(components("partition"))


class Grouped(Prepared):
    """A data set whose examples belong to groups."""

    members: dict[str, np.ndarray]

    @property
    def group_names(self):
        most = max(rows.max(initial=-1) for rows in self.members.values())
        return tuple(f"role {number}" for number in range(most + 1))

    def groups(self, split):
        return self.members[split]


def data_of(train, validation=(), classes=0, kind=Prepared):
    y = {"train": np.asarray(train, np.int64), "validation": np.asarray(validation, np.int64)}
    names = [str(k) for k in range(classes or int(y["train"].max()) + 1)]
    info = {"name": "small", "token": "small", "classes": names, "group_names": []}
    none = {split: np.full(labels.size, -1, np.int32) for split, labels in y.items()}
    return kind(Path(), info, {"x": {}, "y": y, "g": none})


def grouped(train, validation=(), train_groups=None, validation_groups=None):
    """Data whose examples belong to groups; by default to three, one after another."""
    data = data_of(train, validation, kind=Grouped)
    own = {"train": train_groups, "validation": validation_groups}
    members = {
        split: np.arange(data.labels(split).size) % 3 if rows is None else rows
        for split, rows in own.items()
    }
    given = {split: np.asarray(rows, np.int32) for split, rows in members.items()}
    object.__setattr__(data, "members", given)
    return data


def examples_of(labels):
    """Examples without groups."""
    return TrainingLabels(labels, int(labels.max()) + 1, np.full(labels.size, -1, np.int32))


def spec_of(name, clients, **values):
    component = components("partition")[name]
    settings = {"clients": clients, "min_examples": 1, **values}
    return component.spec({k: v for k, v in settings.items() if k in component.params})


def fitting(name, labels, clients):
    """The partition with about so many clients, as far as these labels and groups allow."""
    classes = int(labels.max()) + 1
    fits = {
        "one_class": {"clients": classes},
        "by_label": {"clients": min(clients, classes)},
        "label_lists": {"lists": [str(label) for label in range(classes)]},
        "labels_each": {"clients": max(clients, classes), "each": min(2, classes)},
        "natural": {"clients": 3},
    }
    return spec_of(name, **{"clients": clients, **fits.get(name, {})})


def split_of(name, labels, clients, rng, **values):
    spec = spec_of(name, clients, **values)
    split: Assignment = spec.component.fn(examples_of(labels), rng, **spec.own)
    return split


def rows_of(table, trial):
    lines = table.to_pylist()
    return [(r["client"], r["split"], r["index"]) for r in lines if r["trial"] == trial]
