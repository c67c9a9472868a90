"""Small data to divide, with and without natural groups, and partitions that fit them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedrepro.core.registry import components
from fedrepro.data.client_assignment_and_skew import Assignment, TrainingLabels
from fedrepro.data.prepared import Prepared

NAMES = sorted(components("partition"))


def data_of(train, validation=(), classes=0, groups=None):
    y = {"train": np.asarray(train, np.int64), "validation": np.asarray(validation, np.int64)}
    g = groups or {split: np.full(labels.size, -1, np.int32) for split, labels in y.items()}
    names = tuple(str(k) for k in range(classes or int(y["train"].max()) + 1))
    roles = tuple(f"role {k}" for k in range(max(own.max(initial=-1) for own in g.values()) + 1))
    parts = {"x": {}, "y": y, "g": g}
    return Prepared(Path(), {}, parts, "small", "small", "image", names, roles, (), 1.0, "", "")


def grouped(train, validation=(), train_groups=None, validation_groups=None):
    """Data whose examples belong to groups; by default to three, one after another."""
    sizes = {"train": (train, train_groups), "validation": (validation, validation_groups)}
    groups = {
        split: np.asarray(np.arange(len(labels)) % 3 if rows is None else rows, np.int32)
        for split, (labels, rows) in sizes.items()
    }
    return data_of(train, validation, groups=groups)


def examples_of(labels):
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
