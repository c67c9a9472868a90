"""FedAvg, FedProx and FedAdam; SCAFFOLD, FedNova and FedDyn."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from contract import METHODS, asked_by, states
from plain import loop, mlp
from problems import problem, unwell

from fedrepro.core.errors import FedreproError
from fedrepro.core.registry import components
from fedrepro.core.rng import RngKey
from fedrepro.methods.fedavg_variants_and_base_classes import sample_clients
from fedrepro.methods.fednova_scaffold_feddyn import effective_steps
from fedrepro.training.federation.clients import Clients
from fedrepro.training.minibatches_and_augmentation import Task


def after_a_round(given, name="fedavg", **values):
    """The weights before and after one round, and the clients."""
    made = METHODS[name].fn(**values)
    clients = asked_by(made, given.clients)
    state = made.init(clients, given.info, RngKey(0))
    new, _ = made.round(state, clients, given.info, RngKey(0).at(round=0))
    return state["weights"], new["weights"], clients


def shares(given):
    return given.info.example_counts / given.info.example_counts.sum()


def alone(given, start, done=0, **values):
    """The clients' weights after plain local training in a round."""
    return given.clients.train(start, RngKey(0).at(round=done), **{"epochs": 1, **values})


@pytest.mark.parametrize("values", [{"fraction": 1.0}, {"fraction": 0.5, "weights": "all"}])
def test_clients_are_averaged_by_their_examples(given, values):
    """Shares of all clients shorten the step."""
    start, found, _ = after_a_round(given, **values)
    chosen = sample_clients(4, values["fraction"], RngKey(0).at(round=0))
    share = shares(given)[chosen]
    for k, v in alone(given, start, chosen=chosen).tensors.items():
        expected = start[k][0] + np.tensordot(share, v - start[k], 1)
        assert np.allclose(found[k][0], expected, atol=1e-6)


def exactly(given, batch_size=8, **values):
    """Weights before and after a round of plain descent in double precision."""
    sgd = {"optimiser": "sgd", "l2": 0.0, "momentum": 0.0, "lr": 0.5, "batch_size": batch_size}
    data, made = given.clients.data, METHODS["fedavg"].fn(**values)
    double = replace(data.examples, inputs=data.examples.inputs.double())
    clients = replace(
        asked_by(made, given.clients),
        settings=replace(given.clients.settings, epochs=1, **sgd),
        data=replace(data, examples=double),
    )
    state = made.init(clients, given.info, RngKey(0))
    state["weights"] = {k: v.astype(np.float64) for k, v in state["weights"].items()}
    new, _ = made.round(state, clients, given.info, RngKey(0).at(round=0))
    return state["weights"], new["weights"], double, clients.settings


def equals_descent(extra=None, **values):
    """Whether a round of one client is plain descent, on a loss that has something more."""
    alone = problem(count=1)
    start, found, *how = exactly(alone, fraction=0.0, **values)
    task = Task(alone.rows[0], RngKey(0, client=0, round=0))
    first = {k: v[0] for k, v in start.items()}
    examples, settings = how
    wanted = loop(lambda w, x, noise: mlp(w, x, noise, 2), examples, task, settings, first, extra)
    return all(np.abs(found[k][0] - v).max() < 1e-10 for k, v in wanted.items())


def test_one_client_and_one_epoch_is_plain_descent_also_with_the_entropy_of_rms_equation_8():
    def extra(w, first, x):
        share = torch.softmax(mlp(w, x, None, 2), 1)
        entropy = -(share * share.log()).sum(1)
        return 0.7 * (1.0 - entropy).clamp_min(0).mean()

    assert equals_descent()
    assert equals_descent(extra, entropy=0.7, least_entropy=1.0)


def test_fedsgd_is_a_gradient_step_on_all_data_and_no_momentum_is_fedavg(given):
    """All clients, one epoch of one step on all of a client's examples."""
    start, found, examples, _ = exactly(given, fraction=1.0, batch_size=None)
    leaves = {k: torch.from_numpy(v[0]).requires_grad_() for k, v in start.items()}
    held = np.concatenate(given.rows)
    logits = mlp(leaves, examples.inputs[held], None, 2)
    torch.nn.functional.cross_entropy(logits, torch.from_numpy(given.labels[held])).backward()
    for k, v in leaves.items():
        assert np.abs(found[k][0] - (v - 0.5 * v.grad).detach().numpy()).max() < 1e-10
    # Literally sum_k (n_k / n) w_k; and momentum that is as good as none, round after round.
    start, found, clients = after_a_round(given, fraction=1.0, server_momentum=0.0, server_lr=1.0)
    mean = clients.average(start, RngKey(0).at(round=0), shares(given).tolist(), epochs=1).tensors
    plain, least = (
        states(METHODS["fedavg"].fn(rounds=3, **values), given.clients, given.info)[-1]["weights"]
        for values in ({}, {"server_momentum": 1e-300})
    )
    for one, two in ((mean, found), (plain, least)):
        assert all(two[k].tobytes() == v.tobytes() for k, v in one.items())


def test_the_server_goes_on_along_past_updates_and_fedadam_takes_the_printed_step(given):
    made = METHODS["fedavg"].fn(fraction=1.0, server_momentum=0.5, server_lr=2.0)
    update = {"a": np.array([[1.0, -2.0]])}
    step, kept = made.server_update(update, {"a": np.array([[4.0, 0.0]], np.float32)})
    assert step["a"].tolist() == [[6.0, -4.0]]
    assert kept["a"].tolist() == [[3.0, -2.0]]
    made = METHODS["fedadam"].fn(server_lr=0.1, beta1=0.9, beta2=0.99, tau=0.01)
    nothing = np.zeros((1, 2), np.float32)
    update = {"a": np.array([[1.0, -0.5]])}
    server = {"first": {"a": nothing}, "second": {"a": nothing + np.float32(0.01**2)}}
    step, kept = made.server_update(update, server)
    first, second = 0.1 * update["a"], 0.99 * 0.01**2 + 0.01 * update["a"] ** 2
    assert np.allclose(step["a"], 0.1 * first / (np.sqrt(second) + 0.01))
    assert np.allclose(kept["first"]["a"], first)
    assert np.allclose(kept["second"]["a"], second)


@pytest.mark.parametrize(
    ("values", "counts", "shares"),
    [
        ({"steps": 20, "last_steps": 3, "last_lr": 0.125}, [20, 11, 6, 3], [1, 0.5, 0.25, 0.125]),
        ({"steps": 7}, [7] * 4, None),
        ({"last_lr": 1e-3}, [None] * 4, [1, 0.1, 0.01, 1e-3]),
    ],
)
def test_steps_and_rates_fall_geometrically_to_the_last_round(
    given, monkeypatch, values, counts, shares
):
    taken, average, first = [], Clients.average, given.clients.settings.lr

    def counted(self, *words, steps, lr, **more):
        taken.append((steps, lr))
        return average(self, *words, steps=steps, lr=lr, **more)

    monkeypatch.setattr(Clients, "average", counted)
    if "last_lr" in values:
        values = values | {"last_lr": first * values["last_lr"]}
    states(METHODS["fedavg"].fn(rounds=4, **values), given.clients, given.info)
    assert [steps for steps, _ in taken] == counts
    rates = [lr and lr / first for _, lr in taken]
    assert rates == (pytest.approx(shares) if shares else [None] * 4)
    with pytest.raises(FedreproError, match="last_steps is 3, and there are no `steps` to start"):
        METHODS["fedavg"].fn(last_steps=3)


def test_weight_divergence_is_twice_as_strong_as_fedprox(given):
    """lambda |w - w_t|² against mu/2 |w - w_t|²."""
    one, two, three = (
        after_a_round(given, fraction=1.0, **values)[1]
        for values in ({"divergence": 0.5}, {"proximal": 1.0}, {"proximal": 0.5})
    )
    for k, v in one.items():
        assert v.tobytes() == two[k].tobytes()
        assert v.tobytes() != three[k].tobytes()


def test_a_client_that_diverges_is_as_if_not_drawn_and_momentum_is_as_many_steps(given):
    start, found, clients = after_a_round(unwell(given, given.rows[1]), fraction=1.0)
    assert clients.ledger.rejected == 1
    held = given.info.example_counts[[0, 2, 3]]
    for k, v in alone(given, start, chosen=[0, 2, 3]).tensors.items():
        assert np.allclose(found[k][0], np.tensordot(held / held.sum(), v, 1), atol=1e-5)
    # nobody left leaves the weights as they were
    start, found, _ = after_a_round(unwell(given), fraction=1.0)
    assert all(np.array_equal(v, found[k]) for k, v in start.items())
    for steps, momentum in ((1, 0.9), (7, 0.9), (20, 0.5), (5, 0.0), (7, 1.0)):
        speed, place = 0.0, 0.0
        for _ in range(steps):
            speed = momentum * speed + 1.0
            place += speed
        assert effective_steps(np.array([steps]), momentum)[0] == pytest.approx(place, rel=1e-12)


LR = 0.05


@pytest.fixture(scope="module")
def drift():
    """Four clients, one of them without the first class; logistic models, plain descent."""
    return descending(problem(hidden=()))


def descending(made, **settings):
    plain = {"optimiser": "sgd", "lr": LR, "momentum": 0.0, "l2": 0.0, **settings}
    clients = replace(made.clients, settings=replace(made.clients.settings, **plain))
    return replace(made, clients=clients)


def after(drift, name, rounds=1, **values):
    """The states before and after each round."""
    return states(METHODS[name].fn(rounds=rounds, **values), drift.clients, drift.info)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_fednova_averages_what_a_step_gave(drift, momentum):
    """So where all take equally many steps it is FedAvg."""
    own = descending(drift, momentum=momentum)
    start, found = (s["weights"] for s in after(own, "fednova", fraction=1.0))
    trained, share = alone(own, start), shares(own)
    lengths = effective_steps(trained.steps, momentum)
    assert len(set(lengths.tolist())) > 1
    for k, y in trained.tensors.items():
        mean = np.tensordot(share / lengths, y - start[k], 1)
        wanted = start[k][0] + (share * lengths).sum() * mean
        assert np.allclose(found[k][0], wanted, atol=1e-6)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_fednova_of_trained_models_is_its_first_round(drift, momentum):
    own = descending(drift, momentum=momentum)
    before, expected = (s["weights"] for s in after(own, "fednova", fraction=1.0))
    models = replace(own.models, tensors=alone(own, before).tensors)
    training = components("training")["sgd"].spec(
        {"epochs": 1, "batch_size": own.clients.settings.batch_size, "momentum": momentum}
    )
    info = replace(own.info, start=before, training=training)
    found = METHODS["fednova_once"].fn(models, info, rng=RngKey(0)).tensors
    assert all(np.allclose(found[k], v, atol=1e-6) for k, v in expected.items())
    stopping = components("training")["sgd"].spec({"patience": 2})
    with pytest.raises(FedreproError, match="patience 2"):
        METHODS["fednova_once"].fn(models, replace(info, training=stopping), rng=RngKey(0))


@pytest.mark.parametrize(("momentum", "server_lr"), [(0.0, 1.0), (0.9, 0.5)])
def test_scaffold_begins_as_fedavg_and_keeps_mean_gradients(drift, momentum, server_lr):
    """With momentum, of as many plain steps as move as far."""
    given = descending(drift, momentum=momentum)
    before, first = after(given, "scaffold", fraction=1.0, server_lr=server_lr)
    averaged = after(given, "fedavg", fraction=1.0, server_lr=server_lr)[-1]["weights"]
    trained = alone(given, before["weights"])
    lengths = LR * effective_steps(trained.steps, momentum)
    for k, v in first["weights"].items():
        assert np.allclose(v, averaged[k], atol=1e-6)
        moved = before["weights"][k] - trained.tensors[k]
        own = [way / length for way, length in zip(moved, lengths, strict=True)]
        kept = [first["kept"][str(j)][k] for j in range(4)]
        assert np.allclose(kept, own, atol=1e-5)
        assert np.allclose(first["control"][k][0], np.mean(own, axis=0), atol=1e-5)


def test_scaffold_corrects_every_step_and_clients_that_are_not_drawn_keep_nothing(drift):
    """Of one step each: y = x - lr (g - c_j + c), with g as a plain step takes it."""
    _, state, found = after(drift, "scaffold", rounds=2, fraction=1.0, steps=1)
    trained = alone(drift, state["weights"], done=1, steps=1).tensors
    for k, v in found["weights"].items():
        own = np.stack([state["kept"][str(j)][k] for j in range(4)])
        y = trained[k] - LR * (state["control"][k] - own)
        assert np.allclose(v[0], np.tensordot(shares(drift), y, 1), atol=1e-6)
    for name in ("scaffold", "feddyn"):
        *_, state = after(drift, name, fraction=0.25, rounds=1)
        (own,) = state["kept"].values()  # of one of four, whose mean the server keeps
        for k, v in state["control" if name == "scaffold" else "h"].items():
            assert np.allclose(v[0], own[k] / 4, atol=1e-6)


def test_feddyn_overshoots_in_its_first_round_and_keeps_what_its_pull_left_over(drift):
    """Twice the mean of the clients less the start; what predicts may be their mean."""
    made = METHODS["feddyn"].fn(rounds=1, fraction=1.0, alpha=0.1, predicts="clients")
    before, first = states(made, drift.clients, drift.info)
    for k, mean in made.model(first, asked_by(made, drift.clients)).tensors.items():
        twice = 2 * mean - before["weights"][k]
        assert np.allclose(first["weights"][k], twice, atol=1e-5)
    # h_j = -alpha (y_j - x) after the first round, whose y_j is that of FedProx's loss.
    before, first = after(drift, "feddyn", fraction=1.0, alpha=0.5)
    mean = after(drift, "fedavg", fraction=0.25, proximal=0.5)[-1]["weights"]
    (member,) = after(drift, "feddyn", fraction=0.25, alpha=0.5)[-1]["kept"]
    for k, x in before["weights"].items():
        own = first["kept"][member][k]
        assert np.allclose(own, -0.5 * (mean[k][0] - x[0]), atol=1e-5)


@pytest.mark.parametrize("name", ["fednova", "scaffold", "feddyn"])
def test_a_client_that_diverges_moves_neither_weights_nor_what_is_kept(drift, name):
    before, found = after(unwell(drift, drift.rows[1]), name, fraction=1.0)
    well = [0, 2, 3]
    trained, share = alone(drift, before["weights"], chosen=well), shares(drift)[well]
    share, steps = share / share.sum(), trained.steps
    for k, x in before["weights"].items():
        way = trained.tensors[k] - x
        kept = [found["kept"][str(j)][k] for j in well] if "kept" in found else []
        if name == "feddyn":  # h_j = -alpha (y_j - x)
            assert np.allclose(found["clients"][k], x - np.mean(kept, 0) / 0.01, atol=1e-4)
            continue
        mean = np.tensordot(share, way, 1)
        if name == "fednova":
            mean = (share * steps).sum() * np.tensordot(share / steps, way, 1)
        assert np.allclose(found["weights"][k], x + mean, atol=1e-6)
    if name == "scaffold":  # what the client kept in a round before stays
        *_, state = after(drift, name, fraction=1.0)
        made, ill = METHODS[name].fn(fraction=1.0), unwell(drift, drift.rows[1])
        clients = asked_by(made, ill.clients)
        new, _ = made.round(state, clients, drift.info, RngKey(0).at(round=1))
        for k, v in state["kept"]["1"].items():
            assert np.array_equal(new["kept"]["1"][k], v)


@pytest.mark.parametrize(("name", "models", "more"), [("scaffold", 2, 0), ("fednova", 1, 4)])
def test_controls_travel_with_models_and_a_number_of_steps_up(drift, name, models, more):
    made = METHODS[name].fn(rounds=1, fraction=0.5)
    clients = asked_by(made, drift.clients)
    state = made.init(clients, drift.info, RngKey(0))
    sent = made.round(state, clients, drift.info, RngKey(0).at(round=0))[1].traffic
    size = 4 * sum(value.size for value in state["weights"].values())
    assert (sent.bytes_up, sent.bytes_down) == (2 * (models * size + more), 2 * models * size)


def test_corrected_methods_come_to_rest_where_the_losses_of_all_do(drift):
    """With many local steps FedAvg rests elsewhere: its clients pull apart."""
    own = descending(drift, batch_size=None, lr=0.2, l2=0.05)
    own = replace(own, info=replace(own.info, example_counts=np.full(4, 10)))  # equal shares

    def slope(name, **values):
        *_, state = after(own, name, rounds=80, fraction=1.0, epochs=10, **values)
        after_one = alone(own, state["weights"], steps=1).tensors
        steps = (v.mean(0) - state["weights"][k][0] for k, v in after_one.items())
        return max(float(np.abs(step).max()) for step in steps)

    rest = slope("fedavg")
    assert slope("scaffold") < 1e-3 * rest
    assert slope("feddyn", alpha=0.1) < 1e-3 * rest
