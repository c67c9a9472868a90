"""What each partition promises: shares, sizes, label rules, groups, noise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from partitioned import data_of, examples_of, grouped, rows_of, spec_of, split_of
from test_partitions import problems

import fedrepro.components.partitions.dirichlet as dirichlet_module
from fedrepro.core.errors import FedreproError
from fedrepro.core.rng import RngKey
from fedrepro.data.client_assignment_and_skew import UNASSIGNED, require_examples
from fedrepro.data.partitions_populations_and_holdouts import PartitionIndices, build_partition
from fedrepro.planning.scenarios_runs_and_jobs import Scenario


def classes_of(owner, labels):
    return [set(labels[owner == client].tolist()) for client in range(owner.max() + 1)]


def counts_of(owner, labels, clients):
    """Examples of each class that each client holds: (classes, clients)."""
    flat = np.bincount(labels * clients + owner, minlength=(labels.max() + 1) * clients)
    return flat.reshape(-1, clients)


@given(problem=problems(), seed=st.integers(0, 3))
def test_even_parts_differ_by_one_example_at_most_homogeneous_ones_in_each_class(problem, seed):
    labels, _, clients = problem
    same, any_class = (
        split_of(name, labels, clients, RngKey(seed)).owner for name in ("homogeneous", "iid")
    )
    for rows in (any_class, same, *(same[labels == k] for k in range(labels.max() + 1))):
        assert np.ptp(np.bincount(rows, minlength=clients)) <= 1
    drawn = [split_of("homogeneous", np.zeros(10, int), 3, RngKey(s)).owner for s in range(30)]
    assert {int(np.bincount(owner).argmax()) for owner in drawn} == {0, 1, 2}  # the remainder


@pytest.mark.parametrize(
    ("name", "alpha", "trials"), [("dirichlet", 0.5, 300), ("quantity_skew", 2.0, 2000)]
)
def test_shares_have_the_mean_and_variance_of_the_distribution(name, alpha, trials):
    """Dir_J(alpha): mean 1/J, variance (J-1) / (J² (J alpha + 1)), of each class or of all."""
    clients, labels = 4, np.repeat(np.arange(10), 1000)
    keys = [RngKey(0, trial=trial) for trial in range(trials)]
    splits = [split_of(name, labels, clients, key, alpha=alpha) for key in keys]
    assert not any(split.redraws for split in splits)
    drawn = labels if name == "dirichlet" else np.zeros_like(labels)
    counts = np.array([counts_of(split.owner, drawn, clients) for split in splits])
    shares = counts / counts.sum(axis=2, keepdims=True)
    variance = (clients - 1) / (clients**2 * (clients * alpha + 1))
    assert shares.mean((0, 1)) == pytest.approx(np.full(clients, 1 / clients), abs=0.02)
    assert shares.var((0, 1)) == pytest.approx(np.full(clients, variance), rel=0.1)


def test_shares_per_client_have_the_expected_counts_and_of_one_class_all_are_alike():
    """Of class k client i expects 1/J; its own q_i has E[q²] as a Dirichlet distribution over K."""
    labels = np.repeat(np.arange(10), 1000)
    keys = [RngKey(0, trial=trial) for trial in range(200)]
    owners = [split_of("dirichlet_clients", labels, 4, key, alpha=0.5).owner for key in keys]
    shares = np.array([counts_of(owner, labels, 4) for owner in owners]) / 1000
    assert np.mean(shares, axis=(0, 1)) == pytest.approx(np.full(4, 0.25), abs=0.02)
    # a client's examples are even over classes on average, because classes are whole
    own = shares / np.sum(shares, axis=1, keepdims=True)
    assert own.mean((0, 2)) == pytest.approx(np.full(10, 0.1), abs=0.02)
    # q_i of one class is 1 for each client; `dirichlet` draws who gets how much of it.
    owner = split_of("dirichlet_clients", np.zeros(400, int), 4, RngKey(3), alpha=0.1).owner
    assert np.bincount(owner).tolist() == [100] * 4


@pytest.mark.parametrize("name", ["dirichlet", "dirichlet_clients"])
@pytest.mark.parametrize("alpha", [1e-300, 1e-9, 1e-3])
def test_a_tiny_alpha_gives_each_class_to_one_client(name, alpha):
    labels = np.arange(900) % 30
    owner = split_of(name, labels, 3, RngKey(0), alpha=alpha).owner
    assert (counts_of(owner, labels, 3) > 0).sum(1).mean() < 1.1
    assert np.bincount(owner).size == 3


@pytest.mark.parametrize("seed", [0, 2])
def test_a_published_draw_of_fedfisher_is_that_of_numpys_old_generator(seed):
    """Worked out with the old generator, as published code has it."""
    labels, old = np.arange(6000) % 10, np.random.RandomState(1_000_000 * seed + 3 + 2)
    values = {"code": "fedfisher", "alpha": 0.5, "first_seed": 3}
    split = split_of("published_draw", labels, 5, RngKey(seed, trial=2), **values)
    own, wanted = old.dirichlet([0.5] * 10, 5), np.empty(6000, int)
    for label in range(10):
        rows = np.flatnonzero(labels == label)
        old.shuffle(rows)
        cuts = np.cumsum(own[:, label] / own[:, label].sum()) * rows.size
        for client, part in enumerate(np.split(rows, cuts.astype(int)[:-1])):
            wanted[part] = client
    assert split.redraws == 0
    assert np.array_equal(split.owner, wanted)


def test_a_published_draw_is_the_one_that_denses_readme_prints_and_one_for_all_trials_if_asked():
    """CIFAR-10 has 5,000 images a class, and counts depend on nothing else of the images."""
    labels = np.repeat(np.arange(10), 5000)
    owner = split_of("published_draw", labels, 5, RngKey(0, trial=1), alpha=0.5).owner
    assert counts_of(owner, labels, 5).T.tolist() == [
        [156, 709, 301, 2629, 20, 651, 915, 113, 180, 2133],
        [1771, 2695, 1251, 1407, 665, 314, 1419, 3469, 0, 0],
        [236, 15, 1715, 76, 1304, 34, 1773, 75, 3289, 2360],
        [2809, 575, 157, 853, 2555, 2557, 203, 1213, 0, 0],
        [28, 1006, 1576, 35, 456, 1444, 690, 130, 1531, 507],
    ]
    labels = np.arange(900) % 10

    def owner(seed=0, trial=0, one_draw=True):
        rng = RngKey(seed, trial=trial)
        return split_of("published_draw", labels, 3, rng, one_draw=one_draw).owner

    first = owner()
    assert np.array_equal(first, owner(trial=4))
    assert not np.array_equal(first, owner(trial=4, one_draw=False))
    assert not np.array_equal(first, owner(seed=1))


@pytest.mark.parametrize(("clients", "labels"), [(5, 3), (20, 1), (4, 10)])
def test_each_client_holds_so_many_labels_its_own_number_among_them(clients, labels):
    given = np.arange(2000) % 10
    owner = split_of("labels_each", given, clients, RngKey(1), each=labels).owner
    for client, held in enumerate(classes_of(owner, given)):
        assert len(held) == labels
        assert client % 10 in held
    for label in range(10):
        sizes = np.unique(owner[(given == label) & (owner != UNASSIGNED)], return_counts=True)[1]
        assert sizes.size == 0 or np.ptp(sizes) <= 1


def test_balance_stops_a_client_that_holds_its_even_part():
    labels = np.repeat(np.arange(10), 100)
    differ = False
    for seed in range(20):
        plain, even = (
            split_of("dirichlet", labels, 4, RngKey(seed), balance=balance).owner
            for balance in (False, True)
        )
        counts = counts_of(even, labels, 4)
        before = np.cumsum(counts, axis=0) - counts
        assert not counts[before >= 250].any()
        differ |= not np.array_equal(plain, even)
    assert differ


def test_the_draw_that_is_taken_is_the_first_good_one_however_many_are_made_at_once(monkeypatch):
    def drawn(trial, **values):
        given = {"clients": 30, "min_examples": 10, "rng": RngKey(0, trial=trial), **values}
        return split_of("dirichlet", np.arange(1437) % 10, **given)

    before = [drawn(trial) for trial in range(20)]
    assert min(np.bincount(split.owner, minlength=30).min() for split in before) >= 10
    trial, split = max(enumerate(before), key=lambda item: item[1].redraws)
    assert split.redraws > 3
    assert np.array_equal(drawn(trial, max_redraws=split.redraws).owner, split.owner)
    told = rf"{split.redraws} draws of trial {trial} .*`clients` or `min_.* raise `alpha` \(0.2\)"
    with pytest.raises(FedreproError, match=told):
        drawn(trial, max_redraws=split.redraws - 1)
    monkeypatch.setattr(dirichlet_module, "BLOCK", 1)
    for one, again in zip(before, map(drawn, range(20)), strict=True):
        assert again.redraws == one.redraws
        assert np.array_equal(again.owner, one.owner)
    for name, count, least, alpha in (
        ("published_draw", 400, 20, 0.1), ("quantity_skew", 600, 10, 0.3),
    ):  # fmt: skip
        split = split_of(name, np.arange(count) % 10, 8, RngKey(0), alpha=alpha, min_examples=least)
        assert split.redraws > 0
        assert np.bincount(split.owner, minlength=8).min() >= least


@pytest.mark.parametrize(
    ("name", "clients", "values", "sentence"),
    [
        ("dirichlet", 4, {"min_examples": 10}, "cannot give each of 4 clients 10: lower `clients`"),
        ("quantity_skew", 8, {"alpha": 0.01, "max_redraws": 5},
         r"6 draws of trial 0 all left.*raise `alpha` \(0.01\)"),
        ("labels_each", 2, {"each": 4}, "lower `each` to 3"),
        ("shards", 16, {}, "30 training examples cannot be cut into 32 shards"),
        ("one_class", 2, {}, "leave out some of the 3 classes: set `clients` to at"),
        *(
            ("label_lists", 0, {"lists": ["0", text]}, f"the list '{text}' {sentence}")
            for text, sentence in (
                ("0-7", "names class 7, but the data have the classes 0 to 2"),
                ("0-0", "names a class twice"),
                ("0--1", "is not of the form 0-1-2"),
                ("zero", "is not of the form 0-1-2"),
            )
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_given_is_said_at_once(name, clients, values, sentence):
    with pytest.raises(FedreproError, match=sentence):
        split_of(name, np.arange(30) % 3, clients, RngKey(0), **values)
    require_examples(examples_of(np.zeros(40, int)), 4, 10)  # which are enough


def test_iid_does_not_even_out_classes():
    """Examples of a class at a client are hypergeometric: variance n p (1-p) (N-n) / (N-1)."""
    labels = np.arange(1000) % 2
    found = [
        np.count_nonzero(labels[split_of("iid", labels, 4, RngKey(0, trial=t)).owner == 0])
        for t in range(400)
    ]
    assert np.mean(found) == pytest.approx(125, abs=1.5)
    assert np.var(found) == pytest.approx(250 * 0.25 * 750 / 999, rel=0.25)


@given(st.integers(1, 20), st.floats(0, 4), st.integers(1, 10), st.integers(0, 9))
def test_power_law_sizes_fall_off_with_the_rank(clients, exponent, least, seed):
    values = {"exponent": exponent, "min_examples": least}
    sizes = split_of("power_law", np.arange(1000) % 10, clients, RngKey(seed), **values).sizes
    law = np.arange(1, clients + 1.0) ** -exponent
    exact = least + (1000 - clients * least) * law / law.sum()
    assert np.abs(np.sort(sizes)[::-1] - exact).max() < 1.001


def test_fedavgs_shards_and_one_class_a_client_are_shared_evenly():
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 6000))
    counts = counts_of(split_of("shards", labels, 100, RngKey(0)).owner, labels, 100)
    assert counts.sum(0).tolist() == [600] * 100
    assert set(counts.ravel()) <= {0, 300, 600}
    sizes = split_of("shards", np.arange(100) % 10, 7, RngKey(0), each=4).sizes
    assert [sizes.min() // 4, -(-sizes.max() // 4)] == [3, 4]  # 28 shards
    labels = np.arange(507) % 5
    owner = split_of("one_class", labels, 12, RngKey(0)).owner
    assert classes_of(owner, labels) == [{client % 5} for client in range(12)]
    for sizes in counts_of(owner, labels, 12):
        assert np.ptp(sizes[sizes > 0]) <= 1


TABLE_4 = {
    (10, 2): ["01234", "56789"],
    (10, 3): ["012", "345", "6789"],
    (10, 5): ["01", "23", "45", "67", "89"],
    (7, 2): ["0123", "456"],
    (7, 3): ["01", "23", "456"],
    (7, 5): ["056", "156", "256", "356", "456"],
}


@pytest.mark.parametrize(("classes", "clients"), TABLE_4)
def test_by_label_is_table_4_of_gems(classes, clients):
    labels = np.arange(100 * classes) % classes
    owner = split_of("by_label", labels, clients, RngKey(0)).owner
    wanted = [set(map(int, text)) for text in TABLE_4[classes, clients]]
    assert classes_of(owner, labels) == wanted
    for label, sizes in enumerate(counts_of(owner, labels, clients)):
        holders = [label in held for held in wanted]
        assert sizes.tolist() == [100 // sum(holders) * here for here in holders]


@given(st.integers(1, 12), st.integers(1, 12))
def test_by_label_divides_any_number_of_classes(classes, clients):
    labels = np.arange(12 * classes) % classes
    if clients > classes:
        with pytest.raises(FedreproError, match=f"lower `clients` to {classes}"):
            split_of("by_label", labels, clients, RngKey(0))
        return
    held = classes_of(split_of("by_label", labels, clients, RngKey(0)).owner, labels)
    assert set.union(*held) == set(range(classes))
    if (classes, clients) != (7, 5):
        sizes = list(map(len, held))
        assert (sum(sizes), np.ptp(sizes) <= 1) == (classes, True)


def test_a_class_on_several_lists_is_shared_and_one_on_none_left_out():
    labels, validation = np.arange(300) % 3, np.arange(30) % 3
    spec = spec_of("label_lists", 0, lists=["0-1", "1", "1-0"])
    table = build_partition(spec, data_of(labels, validation), range(1), 0)
    rows = rows_of(table, 0)
    for split, of, each in (("train", labels, 100), ("validation", validation, 10)):
        found = np.zeros((3, 3), int)
        for client, index in ((client, i) for client, s, i in rows if s == split):
            found[client, of[index]] += 1
        assert found[:, 0].tolist() == [each // 2, 0, each // 2]
        assert found[:, 1].sum() == each
        assert found[:, 1].max() <= each // 3 + 1
        assert not found[:, 2].any()
    assert Scenario(spec, spec, spec, spec).clients == 3
    assert spec.token == "label_lists+lists~0-1@1@1-0"


def roles(train, validation=()):
    return grouped(np.zeros(len(train), int), np.zeros(len(validation), int), train, validation)


def test_natural_clients_are_groups_in_order_the_first_or_drawn_ones():
    data = roles([2, 0, 2, -1, 1, 0], [1, 3, 2, -1, 2])
    rows = rows_of(build_partition(spec_of("natural", None), data, range(1), 0), 0)
    assert rows == [
        (0, "train", 1), (0, "train", 5),
        (1, "train", 4), (1, "validation", 0),
        (2, "train", 0), (2, "train", 2), (2, "validation", 2), (2, "validation", 4),
    ]  # fmt: skip
    data = roles(np.repeat(np.arange(20), np.arange(20) + 1).tolist())

    def held(**values):
        table = build_partition(spec_of("natural", **values), data, range(1, 2), 0)
        return np.bincount([client for client, _, _ in rows_of(table, 1)]).tolist()

    assert held(clients=None, min_examples=18) == [18, 19, 20]
    assert held(clients=3, min_examples=5) == [5, 6, 7]
    drawn = held(clients=3, min_examples=5, pick="random")
    assert len(drawn) == 3
    assert drawn == sorted(drawn) != [5, 6, 7]
    assert drawn[0] >= 5


def test_groups_that_are_not_there_are_said_and_targets_are_one_class():
    with pytest.raises(FedreproError, match="does not say whose an example is"):
        build_partition(spec_of("natural", None), data_of(np.arange(9) % 3), range(1), 0)
    with pytest.raises(FedreproError, match="2 of 3 groups have 2 training examples or more, too"):
        build_partition(spec_of("natural", 3, min_examples=2), roles([0, 0, 1, 2, 2]), range(1), 0)
    spec = spec_of("natural", None)
    with pytest.raises(FedreproError, match="leaves the number of clients to the data"):
        Scenario(spec, spec, spec, spec).clients  # noqa: B018
    assert Scenario(spec, spec_of("natural", 7), spec, spec).clients == 7
    data = grouped(np.zeros(9, int), (), np.arange(9) % 2)
    targets = {"train": np.linspace(-1, 1, 9, dtype=np.float32), "validation": np.empty(0)}
    object.__setattr__(data, "_y", targets)
    object.__setattr__(data, "info", {**data.info, "classes": []})
    for name, sizes in (("natural", [5, 4]), ("iid", [5, 4])):
        rows = rows_of(build_partition(spec_of(name, 2), data, range(1), 0), 0)
        assert sorted(np.bincount([client for client, _, _ in rows]), reverse=True) == sizes


def test_noise_grows_with_the_client_as_inputs_are_held_and_keyed_by_seed_and_trial():
    labels = np.arange(500) % 10
    noisy, plain = (split_of(n, labels, 4, RngKey(3)) for n in ("feature_noise", "homogeneous"))
    assert np.array_equal(noisy.owner, plain.owner)
    assert noisy.noise == pytest.approx([0.025, 0.05, 0.075, 0.1])
    assert plain.noise is None
    as_in_code = split_of("feature_noise", labels, 4, RngKey(3), grows="deviation")
    assert np.sqrt(as_in_code.noise) == pytest.approx([0, 0.1 / 3, 0.2 / 3, 0.1])
    inputs, noise, rng = np.zeros((4000, 3), np.float32), np.full(4, 0.1), RngKey(0, trial=1)
    found = held(noise, inputs, rng)
    assert np.array_equal(found, held(noise, inputs, rng))
    alone = PartitionIndices([np.arange(900)], [], noise[:1]).with_feature_noise(inputs, rng)
    assert np.array_equal(alone[:900], found[:900])
    for other in (TRIAL_2, RngKey(1, trial=1)):
        assert not np.array_equal(found, held(noise, inputs, other))
    assert not np.array_equal(found[:900], found[1000:1900])
    letters = replace(data_of(labels), kind="text")
    told = "adds noise to numbers, and inputs of small are letters"
    with pytest.raises(FedreproError, match=told):
        build_partition(spec_of("feature_noise", 4), letters, range(1), 0)
    assert held(None, inputs) is inputs


TRIAL_2 = RngKey(0, trial=2)


def held(noise, inputs, rng=TRIAL_2, split="train"):
    """Inputs of four clients of 900 training and 100 validation examples each, one by one."""
    rows = np.arange(4000).reshape(4, 1000)
    indices = PartitionIndices(list(rows[:, :900]), list(rows[:, 900:]), noise)
    return indices.with_feature_noise(inputs, rng, split)


def test_inputs_as_held_have_the_variance_of_their_client():
    inputs, noise = np.full((4000, 20), 0.5, np.float32), np.array([0.0, 0.1, 0.4, 0.9])
    found = held(noise, inputs)
    assert found.dtype == np.float32
    assert inputs.min() == inputs.max() == 0.5
    for variance, rows in zip(noise, found.reshape(4, 1000, 20), strict=True):
        assert rows[:900].mean() == pytest.approx(0.5, abs=0.03)
        assert rows[:900].var() == pytest.approx(variance, rel=0.05, abs=1e-12)
        assert (rows[900:] == 0.5).all()
    validation = held(noise, inputs, split="validation")
    assert validation[900:1000].var() == 0
    assert validation[3900:].var() == pytest.approx(0.9, rel=0.1)
