"""Methods without a server: what nodes do, what is measured; predictions by draws of beliefs."""

from __future__ import annotations

import dataclasses
from functools import partial

import numpy as np
import pytest
import torch
from jobs import divided, killed_after, stage
from problems import CLASSES, FEATURES, peers_of, problem, unwell
from scipy.special import softmax

from fedrepro.api import GlobalModel, Report
from fedrepro.core.checkpoint_and_model_files import from_plain, load_state
from fedrepro.core.checksummed_files import read_table
from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import components
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Component
from fedrepro.data.prepared import load_prepared
from fedrepro.networks.predict import draws_of, network_of, predict_belief, probabilities
from fedrepro.numbers.model_evaluation import (
    Draws,
    EvaluationSplit,
    calibration_error,
    correct,
    measure,
    measure_alone,
    scored,
)

CLIENTS = 4
GOSSIP = components("method")["gossip_sgd"]


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """Prepared digits at four clients with unlike labels, and examples at the server."""
    partition = "dirichlet+clients~4+validation~100"
    made = divided(tmp_path_factory.mktemp("peers"), partition)
    return [*made, "--model", "mlp+hidden~10", "--training", "adam+epochs~1"]


def peer(digits, out, *words, graph="ring", method="gossip_sgd+rounds~6"):
    """The exit status of the stage, whose files lie in `out`."""
    files = {"--out": "m", "--timings": "t", "--confusion": "c", "--nodes": "n"}
    named = [part for key, name in files.items() for part in (key, out / name)]
    return stage("peer", *digits, "--graph", graph, "--method", method, *named, *words)


def frame_of(out, name="m", kind="metrics"):
    return read_table(out / name, kind).to_pandas()


@pytest.fixture(scope="module")
def done(digits, tmp_path_factory):
    """A finished run on a star."""
    out = tmp_path_factory.mktemp("star")
    assert peer(digits, out, "--evaluate", "train", graph="star") == 0
    return out


def final(out):
    frame = frame_of(out)
    return frame[frame["phase"] == "final"]


def values(rows, metric, split, node=None):
    """In trial 0, of a node or of all."""
    own = rows[(rows["metric"] == metric) & (rows["split"] == split) & (rows["trial"] == 0)]
    return own[own["client"].isna() if node is None else own["client"] == node]["value"].to_numpy()


@pytest.mark.parametrize("metric", ["accuracy", "nll", "calibration_error"])
@pytest.mark.parametrize("belief", ["before", "after"])
def test_numbers_of_all_are_the_mean_and_the_worst_of_the_nodes(done, belief, metric):
    worst = np.min if metric == "accuracy" else np.max
    for phase, rows in frame_of(done).groupby("phase"):
        each = [values(rows, metric, belief, node) for node in range(CLIENTS)]
        assert np.allclose(values(rows, metric, belief), np.mean(each, 0)), phase
        assert np.array_equal(values(rows, f"{metric}_worst", belief), worst(each, 0))


def test_the_headline_is_the_belief_before(done):
    rows = frame_of(done)
    for node in (None, 0, 3):
        test, before, after = (
            values(rows, "accuracy", split, node) for split in ("test", "before", "after")
        )
        assert np.array_equal(test, before)
        assert not np.array_equal(test, after)


def kept_by(out):
    return from_plain(load_state(out / "n")["trials"]["0"])


def examples_of(digits):
    prepared = load_prepared(digits[digits.index("--data") + 1])
    return prepared.inputs("test"), prepared.labels("test")


def logits_of(nodes, node, x):
    w = {name: value[node] for name, value in nodes.items()}
    return np.maximum(x @ w["weight0"] + w["bias0"], 0) @ w["weight1"] + w["bias1"]


def test_what_is_kept_predicts_as_was_measured(done, digits):
    """By plain NumPy, from the file of what nodes go on with."""
    x, labels = examples_of(digits)
    nodes, rows = kept_by(done), final(done)
    confusions = frame_of(done, "c", "confusion").query("trial == 0 and belief == 'after'")
    for node in range(CLIENTS):
        logits = logits_of(nodes, node, x)
        shares = np.exp(logits - logits.max(1, keepdims=True))
        shares /= shares.sum(1, keepdims=True)
        right = shares.argmax(1) == labels
        assert values(rows, "accuracy", "after", node) == pytest.approx(right.mean())
        loss = -np.log(shares[np.arange(len(labels)), labels]).mean()
        assert values(rows, "nll", "after", node) == pytest.approx(loss, rel=1e-5)
        own = confusions[confusions["client"] == node]
        table = own.pivot_table("count", "label", "predicted", aggfunc="sum").to_numpy()
        assert table.sum(1).tolist() == np.bincount(labels, minlength=10).tolist()
        assert np.trace(table) == right.sum()


def test_other_splits_have_means_over_nodes_and_beliefs_go_along_each_directed_edge(done):
    rows = final(done)
    (mean,) = values(rows, "accuracy", "train")
    each = [values(rows, "accuracy", "train", node)[0] for node in range(CLIENTS)]
    assert len(set(each)) > 1
    assert mean == pytest.approx(np.mean(each))
    assert 0 < mean < values(rows, "accuracy_clients", "train")[0]
    rows = final(done).query("trial == 0 and split.isna()").set_index("metric")["value"]
    numbers = 64 * 10 + 10 + 10 * 10 + 10
    assert rows["edges"] == 2 * (CLIENTS - 1)
    assert rows["bytes_per_edge"] == 4 * numbers
    assert rows["messages"] == 6 * rows["edges"]
    assert rows["bytes_up"] == rows["bytes_down"] == rows["messages"] * 4 * numbers
    assert (rows["rounds"], rows["parameters"], rows["hidden_units"]) == (6, numbers, 10)


def test_calibration_is_the_gap_between_confidence_and_accuracy():
    labels = np.array([0, 0, 1, 1])
    sure = np.array([[0.9, 0.1], [0.9, 0.1], [0.1, 0.9], [0.9, 0.1]])
    assert calibration_error(sure, labels) == pytest.approx(0.15)  # 3 of 4 right at 0.9
    half = np.array([[1.0, 0.0], [1.0, 0.0], [0.3, 0.7], [0.7, 0.3]])
    assert calibration_error(half, labels) == pytest.approx((0 + 2 * abs(0.5 - 0.7)) / 4)
    assert scored(np.array([[1.0, 0.0]]), np.array([1]))["nll"] < 100
    three = scored(np.array([[1.0, 0.0], [0.2, 0.8], [0.9, 0.1]]), np.array([0, 1, 1]))
    assert three["accuracy"] == pytest.approx(2 / 3)


@pytest.fixture(scope="module")
def variational(digits, tmp_path_factory):
    """A finished run whose beliefs have spreads."""
    out = tmp_path_factory.mktemp("variational")
    given = ["variational_mlp+hidden~10" if word == "mlp+hidden~10" else word for word in digits]
    assert peer(given, out, method="variational_consensus+rounds~3") == 0
    return out


def test_spreads_of_each_node_are_recorded_in_every_measured_round(variational):
    own = [value for name, value in kept_by(variational).items() if name.endswith("_spread")]
    frame = frame_of(variational)
    rounds = frame[frame["phase"] == "round"]
    for node in range(CLIENTS):
        each = np.logaddexp(0, np.concatenate([value[node].ravel() for value in own]))
        for metric, share in (("spread_q05", 0.05), ("spread_q50", 0.5), ("spread_q95", 0.95)):
            found = values(final(variational), metric, "after", node)
            assert found == pytest.approx(np.quantile(each, share), rel=1e-6)
            assert len(values(rounds, metric, "before", node)) == 3


def test_a_belief_is_two_numbers_a_weight_and_predicts_by_draws(variational, digits):
    rows = final(variational)
    alone = rows[(rows["trial"] == 0) & rows["split"].isna()].set_index("metric")["value"]
    assert alone["bytes_per_edge"] == 4 * 2 * (64 * 10 + 10 + 10 * 10 + 10)
    assert alone["forward_passes"] == 10
    (x, labels), nodes = examples_of(digits), kept_by(variational)
    for node in range(CLIENTS):
        right = logits_of(nodes, node, x).argmax(1) == labels
        assert values(rows, "accuracy_of_means", "after", node) == pytest.approx(right.mean())
    assert "accuracy_of_means" not in set(frame_of(variational).query("phase == 'round'")["metric"])


def test_draws_have_the_mean_and_the_spread_of_the_belief():
    spec = components("model")["variational_mlp"].spec({"hidden": [3]})
    network = network_of(spec, (4,), 2)
    tensors = {name: np.full(shape, 0.5, np.float32) for name, shape in network.shapes.items()}
    drawn, again, other = (
        draws_of(network, tensors, 4000, place)["weight0"]
        for place in (RngKey(0), RngKey(0), RngKey(0).at(client=1))
    )
    assert drawn.shape == (4000, 4, 3)
    assert drawn.mean() == pytest.approx(0.5, abs=0.02)
    assert drawn.std() == pytest.approx(np.log1p(np.exp(0.5)), rel=0.02)
    assert np.array_equal(drawn, again)
    assert not np.array_equal(drawn, other)


def test_a_killed_run_goes_on_and_ends_with_the_same_bytes(digits, done, tmp_path, capsys):
    given = [digits, tmp_path, "--evaluate", "train"]
    with killed_after(4):
        assert peer(*given, "--checkpoint-seconds", 0, graph="star") == 130
    assert peer(*given, graph="star") == 0
    assert "going on from round 4 of trial-0.pt" in capsys.readouterr().err
    for name in ("m", "c", "n"):
        assert (done / name).read_bytes() == (tmp_path / name).read_bytes()


def test_settings_race_on_a_graph(digits, tmp_path, capsys):
    """By the mean over nodes of accuracy at the server, after the first round."""
    words = ["--measure-every", "1+race~8"]
    assert peer(digits, tmp_path, *words, method="gossip_sgd+rounds~8+steps~1@9") == 0
    assert "round 1: gossip_sgd+rounds~8+steps~" in capsys.readouterr().err
    frame = frame_of(tmp_path)
    (stopped,) = set(frame[frame["metric"] == "stopped_at"]["method"])
    first = "round == 1 and split == 'server_validation' and metric == 'accuracy'"
    scores = frame.query(first).groupby("method")["value"].mean()
    assert stopped == scores.idxmin()
    kept = load_state(tmp_path / "n")["trials"]
    assert sorted(kept) == [f"{trial};{scores.idxmax()}" for trial in (0, 1)]
    assert peer(digits, tmp_path / "one", "--measure-every", "1+until~0.3") == 0
    ends = final(tmp_path / "one").set_index("metric")["value"]  # the mean reaches it in the last
    assert np.ceil(ends["rounds_to_target"]).tolist() == ends["rounds"].tolist()


def test_training_sends_nothing_and_a_node_that_diverged_goes_on_with_what_it_had():
    given, made, place = problem(), GOSSIP.fn(rounds=1), RngKey(0).at(round=0)
    peers, ill = (peers_of(one.clients) for one in (given, unwell(given, given.rows[1])))
    state = made.init(peers, None, RngKey(0))
    trained = peers.train(state["after"], place, epochs=1).tensors["weight0"]
    assert peers.ledger.traffic.messages_up == 0
    assert peers.ledger.selected == 4
    with pytest.raises(FedreproError, match="which takes a server"):
        peers.average(state["after"], place, [0.25] * 4, epochs=1)
    after, _ = made.round(state, ill, None, place)
    assert np.array_equal(after["before"]["weight0"][1], state["after"]["weight0"][1])
    assert np.array_equal(after["before"]["weight0"][0], trained[0])
    assert np.isfinite(after["after"]["weight0"]).all()


def test_on_a_complete_graph_gossip_is_fedavg_of_all():
    """With equal shares: one round of gossip averages what one round of FedAvg does."""
    info = dataclasses.replace(problem().info, example_counts=np.full(4, 60))
    mine, theirs = (
        made.round(made.init(clients, info, RngKey(0)), clients, info, RngKey(0).at(round=0))[0]
        for made, clients in (
            (GOSSIP.fn(rounds=1), peers_of(problem().clients, "complete")),
            (components("method")["fedavg"].fn(rounds=1, fraction=1.0), problem().clients),
        )
    )
    for name, value in theirs["weights"].items():
        assert np.allclose(mine["after"][name], value, atol=1e-6)
        assert not np.allclose(mine["before"][name], value, atol=1e-3)


class Faulty(GOSSIP.fn):
    """Its node 2 believes in numbers that are none, from the second round on."""

    said = ("before", "after")

    def round(self, state, peers, info, rng):
        new, _ = super().round(state, peers, info, rng)
        if rng.round:
            new["after"]["weight1"][2, 0] = np.inf
        return new, Report()

    def beliefs(self, state, peers):
        return {name: state[name] for name in self.said}


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (
            ("before", "after"),
            "a weight of node 2 in trial 0 is not finite after round 2 (belief after); lower the "
            "learning rate (lr), or check its inputs",
        ),
        (("after",), "the beliefs of method 'mine' are after; name them before and after"),
    ],
)
def test_what_nodes_cannot_believe_is_a_failure_that_says_so(
    digits, tmp_path, monkeypatch, capsys, said, sentence
):
    monkeypatch.setattr(Faulty, "said", said)
    item = Component("method", "mine", 1, Faulty, GOSSIP.meta)
    monkeypatch.setitem(components("method"), "mine", item)
    assert peer(digits, tmp_path, method="mine+rounds~3") == 0
    assert f"mine+rounds~3 failed: {sentence}" in capsys.readouterr().err


given = partial(problem, kind="variational_mlp")


def belief(clients, spread, seed=0):
    rng = np.random.default_rng(seed)
    return {
        name: (
            np.full(shape, spread) if name.endswith("spread") else rng.normal(0, 1, shape)
        ).astype(np.float32)
        for name, shape in clients.network.shapes.items()
    }


def split_of(own):
    return EvaluationSplit(own.clients.data.examples, own.labels, (FEATURES,), CLASSES)


def test_a_belief_without_spread_predicts_by_its_means_others_by_the_mean_of_draws():
    """Of which test_peer knows the mean and the spread."""
    clients = given().clients
    tensors, examples = belief(clients, 0.5), clients.data.examples
    found = predict_belief(clients.network, tensors, examples, 50, RngKey(0))
    drawn, x = draws_of(clients.network, tensors, 50, RngKey(0)), examples.inputs.numpy()
    each = zip(*(drawn[name] for name in ("weight0", "bias0", "weight1", "bias1")), strict=True)
    scores = [softmax(np.maximum(x @ w0 + b0, 0) @ w1 + b1, axis=1) for w0, b0, w1, b1 in each]
    assert np.allclose(found.numpy(), np.mean(scores, axis=0), atol=1e-5)
    tensors = belief(clients, -60.0)
    drawn = predict_belief(clients.network, tensors, examples, 3, RngKey(0))
    means = {name: value[None] for name, value in tensors.items()}
    assert torch.allclose(drawn, probabilities(clients.network, means, None, examples), atol=1e-6)
    own = problem()
    split = split_of(own)
    model = GlobalModel(own.models.model, {k: v[[0]] for k, v in own.models.tensors.items()})
    assert measure(model, {"test": split}, Draws(RngKey(0))) == measure(model, {"test": split})


def values_of(numbers):
    return {number.metric: number.value for number in numbers}


def test_controls_predict_by_draws_with_the_accuracy_of_means_beside():
    own = given()
    split, draws = split_of(own), Draws(RngKey(0), 7)
    models = [
        GlobalModel(own.clients.model, {k: v[None] for k, v in belief(own.clients, s).items()})
        for s in (1.0, 1.5)
    ]
    numbers, each = measure_alone(models, {"test": split}, draws)
    places = [Draws(RngKey(0, client=j), 7) for j in range(2)]
    right = [correct(m, split, place).mean() for m, place in zip(models, places, strict=True)]
    by_means = [correct(model, split).mean() for model in models]
    assert each == pytest.approx(right)
    found, one = values_of(numbers), values_of(measure(models[0], {"test": split}, draws))
    assert found["accuracy"] == pytest.approx(np.mean(right))
    assert found["accuracy_of_means"] == pytest.approx(np.mean(by_means))
    assert found["forward_passes"] == 7
    assert one["accuracy"] == pytest.approx(correct(models[0], split, draws).mean())
    assert one["accuracy_of_means"] == pytest.approx(by_means[0])
    plain = values_of(measure(models[0], {"test": split}))
    assert (plain["accuracy"], plain["forward_passes"]) == (one["accuracy_of_means"], 1)


def test_a_mixture_of_beliefs_is_that_of_their_predictions():
    own = given()
    split, place = split_of(own), RngKey(0, trial=3)
    parts = [belief(own.clients, 0.5, seed) for seed in (1, 2)]
    weights = np.array([[0.3, 0.9, 0.5], [0.7, 0.1, 0.5]])
    stacked = {k: np.stack([part[k] for part in parts]) for k in parts[0]}
    scores = sum(
        torch.tensor(w)
        * predict_belief(own.clients.network, part, split.examples, 10, place.at(client=i))
        for i, (w, part) in enumerate(zip(weights, parts, strict=True))
    )
    found = correct(GlobalModel(own.clients.model, stacked, weights), split, Draws(place))
    assert np.array_equal(found[:, 0], scores.argmax(1).numpy() == own.labels)
