"""Clients that are made when they are drawn: the same as if all were there, and only those."""

from __future__ import annotations

import io
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from contract import FEDERATED, METHODS, states
from hypothesis import given as drawn_by
from hypothesis import strategies as st
from jobs import divided, stage
from problems import problem

from fedrepro.api import ClientInfo
from fedrepro.components.datasets.synthetic import Synthetic
from fedrepro.core.checkpoint_and_model_files import load_state, normalized, to_plain
from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import components, parse_token
from fedrepro.core.rng import RngKey
from fedrepro.data import partitions_populations_and_holdouts as parts
from fedrepro.data.prepared import Arrays
from fedrepro.methods.fedavg_variants_and_base_classes import MANY, sample_clients
from fedrepro.networks.predict import network_of
from fedrepro.training.federation.clients import ClientData, Clients
from fedrepro.training.training_examples import GeneratedExamples
from fedrepro.training.training_settings_and_procedures import settings_of

SMALL = {"log_mean": 1.0, "log_sd": 1.0, "least": 10}
MADE = Synthetic(1.0, 1.0, False, 30, 10, 1.0, 1.0, 0)


def synthetic(**values):
    return components("dataset")["synthetic"].spec({**SMALL, **values})


def natural(clients, **values):
    return components("partition")["natural"].spec({"clients": clients, **values})


@drawn_by(st.integers(0, 10**7), st.integers(0, 3), st.booleans())
def test_a_client_follows_from_its_number_and_the_draw_alone(client, draw, iid):
    one, other = (replace(MADE, draw=draw, iid=iid, kept=kept) for kept in (1, 999))
    other.examples(client + 1)  # whoever was made before
    for split in ("train", "test"):
        for a, b in zip(one.examples(client, split), other.examples(client, split), strict=True):
            assert a.tobytes() == b.tobytes()
    x, y = one.examples(client)
    assert (x.dtype, x.shape) == (np.float32, (len(y), 60))
    assert not np.array_equal(x[:5], replace(one, draw=draw + 1).examples(client)[0][:5])
    few, many = MADE.sizes(client % 999 + 1), MADE.sizes(1000)
    assert np.array_equal(few, many[: len(few)])
    assert many[client % 999] == len(MADE.examples(client % 999)[1]) >= 9


def test_examples_have_the_printed_distribution():
    """Σ_jj = j^-1.2 within a client; centres ~ N(B_k, 1) with B_k ~ N(0, beta) over clients."""
    x, y = replace(MADE, beta=4.0, log_mean=9.0, log_sd=0.0).examples(3)
    assert np.allclose(x.var(0), np.arange(1, 61) ** -1.2, rtol=0.1)
    assert set(y) <= set(range(10))
    small = replace(MADE, beta=4.0)
    centres = np.array([small.examples(k)[0].mean(0) for k in range(2000)])
    assert centres.mean(1).var() == pytest.approx(4.0 + 1 / 60, rel=0.15)
    assert (centres - centres.mean(1, keepdims=True))[:, 40:].var() == pytest.approx(1, rel=0.1)
    sizes = replace(MADE, least=50, log_mean=4.0, log_sd=2.0).sizes(20_000)
    assert np.median(sizes) == pytest.approx(0.9 * (50 + np.exp(4)), rel=0.05)


def test_iid_clients_have_one_model_and_others_have_their_own():
    """A linear model of some clients' labels predicts those of others, or does not."""
    scores = {}
    for iid in (True, False):
        made = replace(MADE, iid=iid, log_mean=4.0)
        x, y = map(np.concatenate, zip(*map(made.examples, range(40)), strict=True))
        half = len(y) // 2
        fitted, *_ = np.linalg.lstsq(x[:half], np.eye(10)[y[:half]])
        scores[iid] = np.mean((x[half:] @ fitted).argmax(1) == y[half:])
    assert scores[True] > scores[False] + 0.3


def made_of(clients):
    return GeneratedExamples(parts.Population(MADE, clients), 1.0, "cpu")


everybody = cache(lambda clients: made_of(clients).whole)  # the same examples in memory


@drawn_by(st.data())
def test_examples_that_are_made_are_those_of_their_rows(data):
    made, whole = made_of(9), everybody(9)
    count = len(whole.targets)
    rows = data.draw(st.lists(st.lists(st.integers(0, count - 1), max_size=8), max_size=5))
    wanted = [np.array(part, np.int64) for part in rows]
    here, there = made.of(wanted)
    assert len(there) == len(wanted)
    for one, two in zip(wanted, there, strict=True):
        assert np.array_equal(whole.inputs[one], here.inputs[two])
        assert np.array_equal(whole.targets[one], here.targets[two])


def clients_of(data, **training):
    model = components("model")["mlp"].spec({"hidden": [5]})
    settings = settings_of(components("training")["sgd"].spec({"batch_size": 5, **training}))
    return Clients(model, network_of(model, (60,), 10), settings, data)


STEPS = ("downpour", "uniform_ensemble", "weighted_ensemble", "pfnm")
FEW = {"rounds": 2, "fraction": 0.3, "epochs": 1}
OWN = {name: {"step_counts": (2, 3)} for name in ("adaptive_fedavg", "adaptive_matching")}
OWN |= {f"{name}_streaming": {"steps": 2} for name in STEPS}


def label_counts(own):
    each = (own.made.examples(client)[1] for client in range(own.clients))
    return np.array([np.bincount(labels, minlength=10) for labels in each], np.int64)


@pytest.mark.parametrize("name", FEDERATED)
def test_every_method_in_rounds_does_the_same_with_clients_that_are_made(name):
    item, own = METHODS[name], parts.Population(MADE, 8)
    held, (x, y) = own.train, MADE.examples(99)
    known = {"example_counts": held.sizes, "label_counts": label_counts(own)}
    known |= {"validation_inputs": x, "validation_labels": y}
    values = {k: v for k, v in {**FEW, **OWN.get(name, {})}.items() if k in item.params}
    found = []
    for data in (
        ClientData(everybody(8), [held[j] for j in range(8)]),
        ClientData(made_of(8), held),
    ):
        info, buffer = ClientInfo(problem().info.training, **known), io.BytesIO()
        state = states(item.fn(**values), clients_of(data), info)[-1]
        torch.save(to_plain(normalized(state)), buffer)
        found.append(buffer.getvalue())
    assert found[0] == found[1]


@pytest.mark.parametrize("name", ["scaffold", "feddyn", "representation_matching"])
def test_of_a_million_clients_those_that_are_drawn_are_made_and_keep_something(name, monkeypatch):
    seen, make = set(), Synthetic.examples
    monkeypatch.setattr(Synthetic, "examples", lambda self, k: (seen.add(k), make(self, k))[1])
    own = parts.Population(MADE, 10**6)
    clients = clients_of(ClientData(made_of(10**6), own.train))
    info = ClientInfo(problem().info.training, example_counts=own.train.sizes)
    *_, state = states(METHODS[name].fn(rounds=3, fraction=5e-6, epochs=1), clients, info)
    rounds = [sample_clients(10**6, 5e-6, RngKey(0).at(round=done)) for done in range(3)]
    chosen = set(np.concatenate(rounds).tolist())
    assert seen <= chosen | {0}  # of the first, one example tells the form of all
    kept = state["private" if name == "representation_matching" else "kept"]
    assert set(kept) == set(map(str, chosen))


def test_who_needs_everybody_is_told_so_or_gets_everybody_and_kept_clients_are_the_same():
    few = made_of(6)
    assert len(few.inputs) == len(few.targets) == int(parts.Population(MADE, 6).train.ends[-1])
    with pytest.raises(FedreproError, match="examples of all 1000000 clients are asked for at"):
        assert made_of(10**6).inputs is None
    spec = synthetic(clients=7)
    kept = spec.component.make(Arrays, Path(), **spec.values)
    for split, client in product(("train", "test"), range(7)):
        own, made = kept.groups[split] == client, MADE.examples(client, split)
        assert all(map(np.array_equal, (kept.x[split][own], kept.y[split][own]), made))


@drawn_by(st.integers(1, 200) | st.integers(MANY - 3, MANY + 3), st.floats(0, 1), st.integers(0, 9))
def test_clients_of_a_round_are_drawn_once_each(clients, fraction, seed):
    chosen, again = (sample_clients(clients, fraction, RngKey(seed).at(round=2)) for _ in range(2))
    assert len(chosen) == max(1, round(fraction * clients))
    assert (np.diff([-1, *chosen, clients]) > 0).all()
    assert np.array_equal(chosen, again)
    each = [sample_clients(10 * MANY, 1e-3, RngKey(seed).at(round=done)) for done in range(50)]
    counts = np.bincount(np.concatenate(each) // MANY, minlength=10)
    assert (np.abs(counts - 500) < 5 * np.sqrt(500 * 0.9)).all()


def run(folder, dataset, partition, method):
    scenario = ["--dataset", dataset, "--model", "logistic", "--training", "sgd+epochs~1"]
    words = [*divided(folder, partition, "0", dataset), *scenario[2:], "--timings", folder / "t"]
    out = ["--global-model", folder / "g", "--out", folder / "m"]
    assert stage("federate", *words, "--method", method, *out) == 0
    assert stage("train", *words, "--clients", "3-8", "--out", folder / "local") == 0
    weights = load_state(folder / "g")["trials"]["0"].values()
    local = pq.read_table(folder / "local", partitioning=None).replace_schema_metadata()
    return [value.numpy().tobytes() for value in weights], local


@pytest.mark.parametrize(
    ("kept", "partition", "method"),
    [
        (25, "natural+clients~25", "scaffold+fraction~0.3+rounds~2"),
        (1, "natural+clients~1000000", "fedavg+fraction~1e-05+rounds~2"),
    ],
)
def test_runs_do_the_same_whether_clients_are_kept_or_made(tmp_path, kept, partition, method):
    found = []
    for count in (kept, 3):
        token = f"synthetic+clients~{count}+least~10+log_mean~1+log_sd~1"
        found.append(run(tmp_path / str(count), token, partition, method))
    assert (tmp_path / "3/members").stat().st_size < 20_000
    assert found[0] == found[1]


def test_few_clients_are_divided_as_of_any_data_set_and_all_cannot_be_looked_at():
    held = parts.ClientRows(np.array([2, 0, 1]), np.array([7, 9, 4], np.int32))
    assert [own.tolist() for own in held] == [[7, 9], [], [4]]
    assert len(held) == 3
    assert held.sizes.tolist() == parts.sizes_of([*held]).tolist() == [2, 0, 1]
    several = components("partition")["dirichlet"].spec({"clients": 50})
    for partition in (natural(30), natural(None), several):
        assert parts.population_of(synthetic(), partition) is None
    assert parts.population_of(parse_token("dataset", "digits"), natural(10**6)) is None
    assert parts.population_of(synthetic(), natural(10**6)).clients == 10**6
    for key, value in {"pick": "random", "min_examples": 20, "validation": 9, "public": 9}.items():
        with pytest.raises(FedreproError, match=f"'{key}' would look at all of them"):
            parts.population_of(synthetic(), natural(31, **{key: value}))
