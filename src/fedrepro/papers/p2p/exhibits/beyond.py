"""Exhibits beyond the paper: what its settings decide, and larger graphs."""

from __future__ import annotations

from typing import Any

from fedrepro.papers.p2p.exhibits.common import (
    ADAM,
    CLOTHES,
    FOUR_CASES,
    LEANING,
    LISTS_A,
    LISTS_UNBALANCED,
    ON_A_GRAPH,
    PERCEPTRON,
    QUICK,
    SHAPES,
    TINY,
    TWO_NODES,
    TWO_NODES_A,
    Case,
    Cases,
    both_nodes,
    consensus,
    lasting,
    table,
)
from fedrepro.planning.exhibit_settings import ExhibitData, component, exhibit, text, with_changes


def exchanging_every(steps: int, period: str, case: Case) -> Case:
    """Make a case with `steps` minibatches between two exchanges.

    It runs for 20 epochs of 234 minibatches and is measured about once an epoch.
    """
    return {
        **case,
        "label": f"{case['label']}, {period}",
        "parameters": {"steps": steps, "rounds": 20 * 234 // steps},
        "measure_every": 234 // steps,
    }


def interval() -> ExhibitData:
    a, unbalanced = FOUR_CASES["a"], FOUR_CASES["unbalanced"]

    def small(one: Case, three: Case, ten: Case, epoch: Case) -> Cases:
        return {
            "a_1": one,
            "a_3": three,
            "a_10": ten,
            "a_epoch": epoch,
            "unbalanced_1": one,
            "unbalanced_3": three,
            "unbalanced_10": ten,
            "unbalanced_epoch": epoch,
        }

    # an epoch of half of the digits has 44 minibatches
    quick = small(lasting(440, 22), lasting(147, 7), lasting(44, 2), lasting(10, 1, steps=44))
    tiny = small(lasting(20, 2), lasting(14, 2), lasting(5, 1), lasting(5, 1, steps=44))
    return exhibit(
        TWO_NODES_A,
        drawing=table(["case"], ["method"]),
        title="How often nodes exchange beliefs",
        place="beyond the paper",
        caption=text("""
            Test accuracy in percent of both nodes, before and after they hear each other, with 1, 3
            or 10 minibatches between two exchanges, or an epoch of half of the data; 20 epochs in
            all, mean over the last five measured rounds.
        """),
        parameters={},  # every case has its own
        measure_every=1,
        trials=3,
        methods=ON_A_GRAPH,
        cases={
            "a_1": exchanging_every(1, "1 minibatch", a),
            "a_3": exchanging_every(3, "3 minibatches", a),
            "a_10": exchanging_every(10, "10 minibatches", a),
            "a_epoch": exchanging_every(234, "an epoch", a),
            "unbalanced_1": exchanging_every(1, "1 minibatch", unbalanced),
            "unbalanced_3": exchanging_every(3, "3 minibatches", unbalanced),
            "unbalanced_10": exchanging_every(10, "10 minibatches", unbalanced),
            "unbalanced_epoch": exchanging_every(234, "an epoch", unbalanced),
        },
        at={
            "quick": exhibit(QUICK, parameters={}, cases=quick),
            "tiny": exhibit(TINY, parameters={}, cases=tiny),
        },
    )


def interval_bytes() -> ExhibitData:
    return exhibit(
        interval(),
        drawing=table(["case"], ["method"], metric="bytes_up", split=""),
        title="What nodes send, by how often they exchange beliefs",
        caption=text("""
            Bytes that both nodes send in the runs of the table on intervals: two floats a weight
            along each of two edges.
        """),
        methods=[consensus("both nodes")],
    )


def spreads(case: str, title: str) -> ExhibitData:
    """Compare spreads in a case, one an exhibit; bounds stand in claims.yaml (Q18, Q19)."""
    return exhibit(
        TWO_NODES,
        drawing=table(["method"], ["case"]),
        title=f"What spreads do, {title}",
        place="beyond the paper",
        caption=text("""
            Test accuracy in percent of both nodes before and after they hear each other: consensus
            of beliefs as printed, the same with spreads that are put back after each exchange, and
            plain means. Means over the last five measured rounds and over trials, with one standard
            deviation.
        """),
        methods=[
            *both_nodes("variational_consensus", "consensus, "),
            *both_nodes("variational_consensus", "spreads held, ", spreads="held"),
            *both_nodes("consensus_of_means", "plain means, "),
        ],
        cases={case: FOUR_CASES[case]},
    )


def settings() -> ExhibitData:
    return exhibit(
        TWO_NODES_A,
        drawing=table(["method", "divergence"], ["spread"], split="server_validation"),
        title="What the spread at the start and the weight of the divergence decide",
        place="beyond the paper",
        caption=text("""
            Accuracy in percent on 5,000 validation examples, mean of both nodes before they hear
            each other and over the last five of 20 epochs, case (a); plain means beside the
            consensus of beliefs. One trial.
        """),
        partition=with_changes(LISTS_A, validation=5000),
        parameters={"rounds": 1560, "steps": 3},
        trials=1,
        sweep={"model.spread": [0.007, 0.015, 0.03]},
        methods=[
            consensus("consensus of beliefs", divergence=[1.0, 0.1], show=["divergence"]),
            component(
                "consensus_of_means", "plain means", divergence=[1.0, 0.1], show=["divergence"]
            ),
        ],
        at={
            "quick": exhibit(QUICK, partition={"validation": 100}, parameters={"rounds": 150}),
            "tiny": exhibit(TINY, partition={"validation": 100}, trials=1),
        },
    )


def defaults() -> ExhibitData:
    short, long = lasting(1560, 78, steps=3), lasting(6240, 312, steps=3)
    # only the lists change: the validation examples stay
    unbalanced = {"partition": {"lists": LISTS_UNBALANCED["lists"]}, "graph": LEANING}

    def small(short: Case, long: Case) -> Cases:
        return {
            "a_short": short,
            "a_long": long,
            "a_small": {"training": {"batch_size": 8}, **long},
            "a_large": {"training": {"batch_size": 32}, **short},
            "unbalanced_short": short,
            "unbalanced_long": long,
        }

    quick, tiny = small(lasting(150, 8), lasting(600, 30)), small(lasting(6, 1), lasting(24, 4))
    return exhibit(
        TWO_NODES_A,
        drawing=table(["case"], ["method"], split="server_validation"),
        title="What other settings than the defaults give",
        place="beyond the paper",
        caption=text("""
            Accuracy in percent on 5,000 validation examples of both nodes before they hear each
            other, where one setting is changed at a time; the mean over the last quarter of the
            run. One trial.
        """),
        partition=with_changes(LISTS_A, validation=5000),
        measure_every=156,
        trials=1,
        methods=[
            consensus("node 1", node=1, belief="before"),
            consensus("node 2", node=2, belief="before"),
        ],
        cases={
            "a": {"label": "case (a): defaults"},
            "a_short": {"label": "case (a): 20 epochs", **short},
            "a_long": {"label": "case (a): 80 epochs", **long},
            "a_slow": {"label": "case (a): step size 0.0005", "training": {"lr": 0.0005}},
            "a_fast": {"label": "case (a): step size 0.002", "training": {"lr": 0.002}},
            # as many epochs have twice or half as many minibatches of these sizes
            "a_small": {
                "label": "case (a): minibatches of 64",
                "training": {"batch_size": 64},
                **long,
            },
            "a_large": {
                "label": "case (a): minibatches of 256",
                "training": {"batch_size": 256},
                **short,
            },
            "a_near": {"label": "case (a): prior N(0, 0.1²)", "model": {"prior_sd": 0.1}},
            "unbalanced": {"label": "unbalanced: defaults", **unbalanced},
            "unbalanced_short": {"label": "unbalanced: 20 epochs", **unbalanced, **short},
            "unbalanced_long": {"label": "unbalanced: 80 epochs", **unbalanced, **long},
        },
        at={
            "quick": exhibit(QUICK, partition={"validation": 100}, cases=quick),
            "tiny": exhibit(TINY, partition={"validation": 100}, trials=1, cases=tiny),
        },
    )


def on_graphs(shape: str, runs: dict[int, tuple[int, int]], **others: Any) -> Cases:
    """Make a case for each number of nodes: `runs` has its rounds, and how often it is measured."""
    return {
        f"{shape}_{nodes}": {
            "label": f"{SHAPES[shape]}, {nodes} nodes",
            "graph": component(shape),
            "partition": {"clients": nodes},
            **lasting(rounds, measure_every, divergence=1 / nodes),
            **others,
        }
        for nodes, (rounds, measure_every) in runs.items()
    }


def graphs() -> ExhibitData:
    # nodes: rounds, and rounds between two measurements
    to_16 = {4: (938, 157), 8: (469, 157), 16: (234, 59)}
    to_64 = {32: (117, 59), 64: (59, 59)}
    quick = {4: (75, 13), 8: (38, 7)}
    no_gossip = {"without": ["gossip SGD"]}
    return exhibit(
        drawing="accuracy-and-graph",
        title="Larger graphs of other shapes",
        place="beyond the paper",
        caption=text("""
            Test accuracy of nodes that hold classes in shares drawn from Dirichlet(0.5), before
            they hear each other, after 20 epochs of all data; 10 minibatches between two exchanges.
            Two nodes have one graph. The spectral gap is one less the second largest modulus of W.
        """),
        dataset=CLOTHES,
        partition=component("dirichlet", clients=2, alpha=0.5),
        model=PERCEPTRON,
        training=with_changes(ADAM, batch_size=32),
        graph=component("complete"),
        parameters={"steps": 10},
        trials=1,
        methods=[
            consensus("consensus of beliefs", belief="before"),
            component("gossip_sgd", "gossip SGD", belief="before"),
        ],
        notes=[
            text("""
                As many minibatches at each node, however many examples it holds; the divergence
                weighs 1/N, so that all nodes together count every example once beside the prior.
            """),
            text("""
                Gossip SGD averages the weights of the same network, means and spreads, with Adam;
                on the complete graph, and on the ring of up to 16 nodes. Metropolis weights with
                self-loops.
            """),
            "One trial: what is seen here is a hint, and no verdict rests on it.",
        ],
        at={
            "paper": {
                "cases": {
                    **on_graphs("complete", {2: (1875, 313), **to_16, **to_64}),
                    **on_graphs("ring", to_16),
                    **on_graphs("ring", to_64, **no_gossip),
                    **on_graphs("star", {**to_16, **to_64}, **no_gossip),
                    **on_graphs("grid", {**to_16, **to_64}, **no_gossip),
                    **on_graphs("small_world", {**to_16, **to_64}, **no_gossip),
                }
            },
            "quick": {
                "dataset": component("digits"),
                "model": {"hidden": [40], "spread": 0.03},
                "training": {"batch_size": 16},
                "parameters": {"steps": 3},
                "cases": {
                    **on_graphs("complete", {2: (150, 25), **quick}),
                    **on_graphs("ring", quick),
                    **on_graphs("star", quick, **no_gossip),
                    **on_graphs("grid", quick, **no_gossip),
                    **on_graphs("small_world", quick, **no_gossip),
                },
            },
            "tiny": {
                "dataset": component("digits"),
                "model": {"hidden": [10], "spread": 0.03},
                "training": {"batch_size": 16},
                "parameters": {"steps": 2},
                "cases": {
                    **on_graphs("complete", {2: (12, 2), 4: (6, 1)}),
                    **on_graphs("ring", {4: (6, 1)}),
                },
            },
        },
    )
