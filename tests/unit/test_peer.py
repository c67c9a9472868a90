"""Methods without a server: what nodes do, what is measured of them, and going on after a kill."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from jobs import divided, stage
from killed import killed_after
from problems import peers_of, problem

from fedrepro.api import Report
from fedrepro.core.artifacts import read_table
from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import components
from fedrepro.core.rng import RngKey
from fedrepro.core.spec import Component
from fedrepro.core.state_and_model_files import from_plain, load_state
from fedrepro.data.prepared import load_prepared
from fedrepro.networks.predict import draws_of, network_of
from fedrepro.numbers.model_evaluation import calibration_error, scored, spreads, strange
from fedrepro.training.federation.clients import GraphNodes

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
    own = own[own["client"].isna()] if node is None else own[own["client"] == node]
    return own["value"].to_numpy()


# ---------------------------------------------------------------------------- what is recorded


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
        assert np.array_equal(
            values(rows, "accuracy", "test", node), values(rows, "accuracy", "before", node)
        )
    assert not np.array_equal(values(rows, "accuracy", "test"), values(rows, "accuracy", "after"))


def logits_of(nodes, node, x):
    w = {name: value[node] for name, value in nodes.items()}
    return np.maximum(x @ w["weight0"] + w["bias0"], 0) @ w["weight1"] + w["bias1"]


def test_what_is_kept_predicts_as_was_measured(done, digits):
    """By plain NumPy, from the file of what nodes go on with."""
    prepared = load_prepared(digits[digits.index("--data") + 1])
    x, labels = prepared.inputs("test"), prepared.labels("test")
    nodes = from_plain(load_state(done / "n")["trials"]["0"])
    rows = final(done)
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


def test_other_splits_have_each_node_and_the_mean_over_them(done):
    rows = final(done)
    assert 0 < values(rows, "accuracy", "train")[0] < 1
    each = [values(rows, "accuracy", "train", node)[0] for node in range(CLIENTS)]
    assert len(set(each)) > 1
    assert values(rows, "accuracy", "train")[0] == pytest.approx(np.mean(each))
    assert values(rows, "accuracy_clients", "train")[0] > values(rows, "accuracy", "train")[0]


def test_what_is_sent_is_a_belief_along_each_directed_edge(done):
    rows = final(done).query("trial == 0 and split.isna()").set_index("metric")["value"]
    numbers = 64 * 10 + 10 + 10 * 10 + 10
    assert rows["edges"] == 2 * (CLIENTS - 1)
    assert rows["bytes_per_edge"] == 4 * numbers
    assert rows["messages"] == 6 * rows["edges"]
    assert rows["bytes_up"] == rows["bytes_down"] == rows["messages"] * 4 * numbers
    assert (rows["rounds"], rows["parameters"], rows["hidden_units"]) == (6, numbers, 10)


def small_network(kind):
    return network_of(components("model")[kind].spec({"hidden": [3]}), (2,), 2)


def test_spreads_are_quantiles_of_the_softplus_of_what_is_trained():
    """Softplus of 0 is log 2, and of a large number the number itself."""
    network = small_network("variational_mlp")
    own = {
        name: np.full(item.shape, 0.0 if item.role == "spread" else 77.0, np.float32)
        for name, item in network.parameters.items()
    }
    assert list(spreads(network, own).values()) == [pytest.approx(math.log(2))] * 3
    wide = {name: value + 50 for name, value in own.items()}
    assert list(spreads(network, wide).values()) == [pytest.approx(50)] * 3
    assert spreads(small_network("mlp"), {}) == {}


def test_the_first_node_that_is_not_finite_is_named_with_what_of_it():
    network = small_network("variational_mlp")
    whole = {n: np.zeros((4, *i.shape), np.float32) for n, i in network.parameters.items()}
    assert strange(network, whole) is None
    roles = {item.role == "spread": name for name, item in network.parameters.items()}
    for spread, word in ((True, "spread"), (False, "mean")):
        value = whole[roles[spread]].copy()
        value[2].flat[-1], value[3].flat[0] = np.inf, np.nan
        assert strange(network, whole | {roles[spread]: value}) == (2, word)
    plain = small_network("mlp")
    name, item = next(iter(plain.parameters.items()))
    assert strange(plain, {name: np.full((1, *item.shape), np.nan)}) == (0, "weight")


def test_calibration_is_the_gap_between_confidence_and_accuracy():
    labels = np.array([0, 0, 1, 1])
    sure = np.array([[0.9, 0.1], [0.9, 0.1], [0.1, 0.9], [0.9, 0.1]])
    assert calibration_error(sure, labels) == pytest.approx(0.15)  # 3 of 4 right at 0.9
    half = np.array([[1.0, 0.0], [1.0, 0.0], [0.3, 0.7], [0.7, 0.3]])
    assert calibration_error(half, labels) == pytest.approx((0 + 2 * abs(0.5 - 0.7)) / 4)
    assert scored(np.array([[1.0, 0.0]]), np.array([1]))["nll"] < 100
    three = scored(np.array([[1.0, 0.0], [0.2, 0.8], [0.9, 0.1]]), np.array([0, 1, 1]))
    assert three["accuracy"] == pytest.approx(2 / 3)


# ------------------------------------------------------------------- beliefs over the weights


@pytest.fixture(scope="module")
def variational(digits, tmp_path_factory):
    """A finished run whose beliefs have spreads."""
    out = tmp_path_factory.mktemp("variational")
    given = ["variational_mlp+hidden~10" if word == "mlp+hidden~10" else word for word in digits]
    assert peer(given, out, method="variational_consensus+rounds~3") == 0
    return out


def test_spreads_of_each_node_are_recorded_in_every_measured_round(variational):
    nodes = from_plain(load_state(variational / "n")["trials"]["0"])
    spreads = [value for name, value in nodes.items() if name.endswith("_spread")]
    frame = frame_of(variational)
    for node in range(CLIENTS):
        each = np.logaddexp(0, np.concatenate([value[node].ravel() for value in spreads]))
        for metric, share in (("spread_q05", 0.05), ("spread_q50", 0.5), ("spread_q95", 0.95)):
            found = values(frame[frame["phase"] == "final"], metric, "after", node)
            assert found == pytest.approx(np.quantile(each, share), rel=1e-6)
            assert len(values(frame[frame["phase"] == "round"], metric, "before", node)) == 3


def test_a_belief_is_two_numbers_a_weight_and_predicts_by_draws(variational, digits):
    rows = final(variational)
    alone = rows[(rows["trial"] == 0) & rows["split"].isna()].set_index("metric")["value"]
    assert alone["bytes_per_edge"] == 4 * 2 * (64 * 10 + 10 + 10 * 10 + 10)
    assert alone["forward_passes"] == 10
    prepared = load_prepared(digits[digits.index("--data") + 1])
    labels = prepared.labels("test")
    nodes = from_plain(load_state(variational / "n")["trials"]["0"])
    for node in range(CLIENTS):
        logits = logits_of(nodes, node, prepared.inputs("test"))
        found = values(rows, "accuracy_of_means", "after", node)
        assert found == pytest.approx((logits.argmax(1) == labels).mean())
    frame = frame_of(variational)
    assert "accuracy_of_means" not in set(frame[frame["phase"] == "round"]["metric"])


def test_draws_have_the_mean_and_the_spread_of_the_belief():
    spec = components("model")["variational_mlp"].spec({"hidden": [3]})
    network = network_of(spec, (4,), 2)
    tensors = {name: np.full(shape, 0.5, np.float32) for name, shape in network.shapes.items()}
    drawn = draws_of(network, tensors, 4000, RngKey(0))["weight0"]
    assert drawn.shape == (4000, 4, 3)
    assert drawn.mean() == pytest.approx(0.5, abs=0.02)
    assert drawn.std() == pytest.approx(np.log1p(np.exp(0.5)), rel=0.02)
    again = draws_of(network, tensors, 4000, RngKey(0))["weight0"]
    other = draws_of(network, tensors, 4000, RngKey(0).at(client=1))["weight0"]
    assert np.array_equal(drawn, again)
    assert not np.array_equal(drawn, other)


# ---------------------------------------------------------------------------- kill and resume


@pytest.mark.parametrize(("after", "graph"), [(1, "ring"), (4, "small_world")])
def test_a_killed_run_goes_on_and_ends_with_the_same_bytes(digits, tmp_path, capsys, after, graph):
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    assert peer(digits, whole, graph=graph) == 0
    with killed_after(after):
        assert peer(digits, stopped, "--checkpoint-seconds", 0, graph=graph) == 130
    capsys.readouterr()
    assert peer(digits, stopped, graph=graph) == 0
    assert f"going on from round {after} of trial-0.pt" in capsys.readouterr().err
    for name in ("m", "c", "n"):
        assert (whole / name).read_bytes() == (stopped / name).read_bytes()
    assert not (stopped / "checkpoints").exists()


def test_settings_race_on_a_graph(digits, tmp_path, capsys):
    """By the mean over nodes of accuracy at the server, after the first round."""
    words = ["--measure-every", "1+race~8"]
    assert peer(digits, tmp_path, *words, method="gossip_sgd+rounds~8+steps~1@9") == 0
    assert "round 1: gossip_sgd+rounds~8+steps~" in capsys.readouterr().err
    frame = frame_of(tmp_path)
    (stopped,) = set(frame[frame["metric"] == "stopped_at"]["method"])
    first = frame[(frame["round"] == 1) & (frame["split"] == "server_validation")]
    scores = first[first["metric"] == "accuracy"].groupby("method")["value"].mean()
    assert stopped == scores.idxmin()
    kept = load_state(tmp_path / "n")["trials"]
    assert sorted(kept) == [f"{trial};{scores.idxmax()}" for trial in (0, 1)]


# -------------------------------------------------------------------------------- what nodes do


def test_peers_hear_their_neighbours_and_send_along_edges():
    peers = peers_of(problem().clients, "ring")
    assert [own.tolist() for own in peers.neighbours] == [[1, 3], [0, 2], [1, 3], [0, 2]]
    assert peers.edges == 8
    one = 4 * (6 * 8 + 8 + 8 * 3 + 3)
    assert vars(peers.sent()) == {
        "messages_up": 8, "messages_down": 8, "bytes_up": 8 * one, "bytes_down": 8 * one,
    }  # fmt: skip
    assert peers.sent(10).bytes_up == 8 * 40


def test_training_sends_nothing_and_nobody_averages_over_all():
    peers = peers_of(problem().clients)
    made = GOSSIP.fn(rounds=1)
    start = made.init(peers, None, RngKey(0))["after"]
    peers.train(start, RngKey(0).at(round=0), epochs=1)
    assert peers.ledger.traffic.messages_up == 0
    assert peers.ledger.selected == 4
    with pytest.raises(FedreproError, match="which takes a server"):
        peers.average(start, RngKey(0).at(round=0), [0.25] * 4, epochs=1)


def test_on_a_complete_graph_gossip_is_fedavg_of_all():
    """With equal shares: one round of gossip averages what one round of FedAvg does."""
    clients = problem().clients
    peers = peers_of(clients, "complete")
    info = dataclasses.replace(problem().info, example_counts=np.full(4, 60))
    gossip = GOSSIP.fn(rounds=1)
    fedavg = components("method")["fedavg"].fn(rounds=1, fraction=1.0)
    place = RngKey(0).at(round=0)
    mine, _ = gossip.round(gossip.init(peers, info, RngKey(0)), peers, info, place)
    theirs, _ = fedavg.round(fedavg.init(clients, info, RngKey(0)), clients, info, place)
    for name, value in theirs["weights"].items():
        assert np.allclose(mine["after"][name], value, atol=1e-6)
        assert not np.allclose(mine["before"][name], value, atol=1e-3)


def test_a_node_whose_training_diverged_goes_on_with_what_it_had(monkeypatch):
    peers = peers_of(problem().clients)
    made = GOSSIP.fn(rounds=1)
    state = made.init(peers, None, RngKey(0))
    trained = peers.train(state["after"], RngKey(0).at(round=0), epochs=1)
    broken = {k: v.copy() for k, v in trained.tensors.items()}
    for value in broken.values():
        value[1] = np.nan
    finite = np.array([True, False, True, True])
    found = dataclasses.replace(trained, tensors=broken, finite=finite)
    monkeypatch.setattr(GraphNodes, "train", lambda *args, **kwargs: found)
    after, _ = made.round(state, peers, None, RngKey(0).at(round=0))
    assert np.array_equal(after["before"]["weight0"][1], state["after"]["weight0"][1])
    assert np.array_equal(after["before"]["weight0"][0], trained.tensors["weight0"][0])
    assert np.isfinite(after["after"]["weight0"]).all()


# ----------------------------------------------------------------------------- what is refused


class Poisoned(GOSSIP.fn):
    """Its node 2 believes in numbers that are none, from the second round on."""

    def round(self, state, peers, info, rng):
        new, _ = super().round(state, peers, info, rng)
        if rng.round:
            new["after"]["weight1"][2, 0] = np.inf
        return new, Report()


class OneBelief(GOSSIP.fn):
    """Says only what nodes go on with."""

    def beliefs(self, state, peers):
        return {"after": state["after"]}


@pytest.mark.parametrize(
    ("fn", "sentence"),
    [
        (
            Poisoned,
            "a weight of node 2 in trial 0 is not finite after round 2 (belief after); lower the "
            "learning rate (lr), or check its inputs",
        ),
        (OneBelief, "the beliefs of method 'mine' are after; name them before and after"),
    ],
)
def test_what_nodes_cannot_believe_is_a_failure_that_says_so(
    digits, tmp_path, monkeypatch, capsys, fn, sentence
):
    item = Component("method", "mine", 1, fn, GOSSIP.meta)
    monkeypatch.setitem(components("method"), "mine", item)
    assert peer(digits, tmp_path, method="mine+rounds~3") == 0
    assert f"mine+rounds~3 failed: {sentence}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("method", "sentence"),
    [
        ("fedavg", "is computed in rounds: its stage is federate, not peer"),
        ("average", "is computed at once: its stage is aggregate, not peer"),
    ],
)
def test_what_is_not_of_the_stage_is_one_sentence(digits, tmp_path, capsys, method, sentence):
    assert peer(digits, tmp_path, method=method) == 2
    assert sentence in capsys.readouterr().err


def test_gossip_in_the_stage_of_a_server_is_one_sentence(digits, tmp_path, capsys):
    files = ["--out", tmp_path / "m", "--timings", tmp_path / "t", "--global-model", tmp_path / "g"]
    assert stage("federate", *digits, "--method", "gossip_sgd", *files) == 2
    assert "in rounds on a graph: its stage is peer, not federate" in capsys.readouterr().err
