"""The figures and tables of the paper, experiments on its hyper-parameters, and larger graphs.

findings.md gives the reason for every number that the paper does not give. Scenarios, panels and
methods are dicts; `others` and `parameters` are further keys of theirs.
"""

from itertools import product
from typing import Any

from fedrepro.planning.exhibit_config import Entry, ExhibitData, component, exhibit, with_changes

exhibits: dict[str, ExhibitData] = {}
Cases = dict[str, Entry]  # by name

CLOTHES = component("fashion_mnist")
PERCEPTRON = component("variational_mlp", hidden=[400], spread=0.015, prior_sd=1.0)
ADAM = component("adam", lr=0.001, l2=0.0, amsgrad=False, batch_size=128, epochs=40, init="fan_in")

# the classes of node 1 and of node 2
LISTS_A = component("label_lists", lists=["0-1-2-3-4", "5-6-7-8-9"])
LISTS_B = component("label_lists", lists=["0-2-3-4-6", "1-5-7-8-9"])
LISTS_UNBALANCED = component("label_lists", lists=["0-1-2-3-4-5-6-7", "8-9"])

# W: a row for each node, its weights of the beliefs of node 1 and node 2
CROSSED = {"rows": ["0.25_0.75", "0.75_0.25"]}
LEANING = {"rows": ["0.45_0.55", "0.70_0.30"]}
# i.i.d. halves are what TWO_NODES, below, has by itself
FOUR_CASES: Cases = {
    "iid": {"label": "i.i.d."},
    "a": {"label": "case (a)", "partition": LISTS_A, "graph": CROSSED},
    "b": {"label": "case (b)", "partition": LISTS_B, "graph": CROSSED},
    "unbalanced": {"label": "unbalanced", "partition": LISTS_UNBALANCED, "graph": LEANING},
}


def small(units: int, training: Entry, **parameters: int) -> ExhibitData:
    return exhibit(
        dataset=component("digits"),
        model={"hidden": [units], "spread": 0.03},
        training={"batch_size": 16, **training},
        parameters=parameters,
    )


QUICK = exhibit(small(40, {"epochs": 13}, rounds=195), measure_every=15)
TINY = exhibit(small(10, {"epochs": 1}, rounds=15), measure_every=3, trials=2)
# measured once an epoch of half of the data; steps: minibatches between two exchanges
TWO_NODES = exhibit(
    dataset=CLOTHES,
    partition=component("iid", clients=2),
    model=PERCEPTRON,
    training=ADAM,
    graph=component("matrix", rows=["0.5_0.5", "0.5_0.5"]),
    parameters={"rounds": 3120, "steps": 3},
    measure_every=78,
    last_rounds=5,
    trials=5,
    quick=QUICK,
    tiny=TINY,
)
ON_GRAPHS = {
    case: exhibit(TWO_NODES, partition=one["partition"], graph=component("matrix", **one["graph"]))
    for case, one in FOUR_CASES.items()
    if case != "iid"
}
TWO_NODES_A = ON_GRAPHS["a"]


def both_nodes(method: str, of: str = "", **parameters: Any) -> list[Entry]:
    """Return `method` measured at nodes 1 and 2, before, after averaging; `of` begins labels."""
    return [
        component(method, f"{of}node {node}{end}", node=node, belief=belief, **parameters)
        for belief, end in (("before", ""), ("after", ", after"))
        for node in (1, 2)
    ]


ALONE = [component("local", f"node {node} alone", node=node) for node in (1, 2)]
ON_A_GRAPH = both_nodes("variational_consensus")
ALL_DATA = component("pooled", "all data", reference=True)


def table(rows: list[str], columns: list[str], **options: Any) -> Entry:
    return component("table", rows=rows, columns=columns, **options, sizes=False, best="none")


def lasting(rounds: int, measure_every: int, **parameters: Any) -> Entry:
    return {"parameters": {"rounds": rounds, **parameters}, "measure_every": measure_every}


exhibits["table-accuracy"] = exhibit(
    TWO_NODES,
    headline=True,
    drawing=table(["case"], ["method"]),
    title="Accuracy on Fashion-MNIST of two nodes, alone and on a graph",
    place="section 5.2.2, text",
    caption="""Test accuracy in percent of nodes that train alone, of nodes on a graph by what they
        believe before and after they hear their neighbour, over the last five measured rounds, and
        of one that has all data. Means over trials, with one standard deviation.""",
    methods=[*ALONE, *ON_A_GRAPH, ALL_DATA],
    cases=FOUR_CASES,
    paper={"cases": {"iid": {"trials": 10}}},
    **TWO_NODES["at"],
)

LEVEL_LINES = [with_changes(one, reference=True) for one in ALONE]
OF_2 = """Test accuracy of both nodes as they exchange beliefs, before and after they hear each
    other; node 1 has the classes 0 to 7, node 2 has 8 and 9. Level lines are nodes alone, and one
    with all data. Lines are means over trials, bands one standard deviation."""
HELD = {
    "a": "Node 1 has the classes 0 to 4, node 2 has 5 to 9.",
    "b": "Node 1 has the classes 0, 2, 3, 4 and 6, node 2 the others.",
}
OF_3 = [(f"3{case}", case, f"As figure 2. {held}") for case, held in HELD.items()]
for figure, case, caption in (("2", "unbalanced", OF_2), *OF_3):
    exhibits[f"figure-{figure}"] = exhibit(
        ON_GRAPHS[case],
        drawing="accuracy-against-rounds",
        title=f"Test accuracy of two nodes, {FOUR_CASES[case]['label']}",
        place=f"section 5.2.2, figure {figure}",
        caption=caption,
        methods=[*ON_A_GRAPH, *LEVEL_LINES, ALL_DATA],
    )

LOOKALIKES = {
    "0, 2, 3 or 4": [0, 2, 3, 4],
    "0, 2, 3, 4 or 6": [0, 2, 3, 4, 6],
    "other than 6": [0, 1, 2, 3, 4, 5, 7, 8, 9],
    "5, 7, 8 or 9": [5, 7, 8, 9],
}
for figure, (case, node) in zip(("4a", "4b", "4c", "4d"), product(HELD, (1, 2)), strict=True):
    exhibits[f"figure-{figure}"] = exhibit(
        ON_GRAPHS[case],
        drawing=component("confusion", groups=LOOKALIKES),
        title=f"What node {node} confuses, {FOUR_CASES[case]['label']}",
        place=f"section 5.2.2, figure {figure}",
        caption=f"""Test examples of each class by what node {node} takes them for, in percent,
            after the last round, before and after it hears its neighbour. {HELD[case]}""",
        methods=[
            component("variational_consensus", when, node=node, belief=when)
            for when in ("before", "after")
        ],
    )

# minibatches between two exchanges; an epoch of half of the data has 234
EXCHANGES = {"1": (1, "1 minibatch"), "3": (3, "3 minibatches"), "10": (10, "10 minibatches")}
EXCHANGES["epoch"] = (234, "an epoch")
exhibits["interval"] = exhibit(
    TWO_NODES_A,
    drawing=table(["case"], ["method"]),
    title="How often nodes exchange beliefs",
    caption="""Test accuracy in percent of both nodes, before and after they hear each other; 20
        epochs in all, mean over the last five measured rounds.""",
    parameters={},  # every case has its own
    measure_every=1,
    trials=3,
    methods=ON_A_GRAPH,
    cases={
        f"{case}_{every}": {
            **FOUR_CASES[case],
            "label": f"{FOUR_CASES[case]['label']}, {words}",
            **lasting(20 * 234 // steps, 234 // steps, steps=steps),
        }
        for case in ("a", "unbalanced")
        for every, (steps, words) in EXCHANGES.items()
    },
    scales=["paper"],
)
exhibits["interval-bytes"] = exhibit(
    exhibits["interval"],
    drawing=table(["case"], ["method"], metric="bytes_up", split=""),
    title="What nodes send, by how often they exchange beliefs",
    caption="Bytes that both nodes send: two floats a weight along each of two edges.",
    methods=[component("variational_consensus", "both nodes")],
)

# one case an exhibit; bounds stand in claims.yaml (Q18, Q19)
for case, entry in FOUR_CASES.items():
    exhibits[f"spreads-{case}"] = exhibit(
        TWO_NODES,
        drawing=table(["method"], ["case"]),
        title=f"What spreads do, {entry['label']}",
        caption="""Test accuracy in percent of both nodes before and after they hear each other:
            consensus of beliefs as printed, the same with spreads that are put back after each
            exchange, and plain means. Means over the last five measured rounds and over trials.""",
        methods=[
            *both_nodes("variational_consensus", "consensus, "),
            *both_nodes("variational_consensus", "spreads held, ", spreads="held"),
            *both_nodes("consensus_of_means", "plain means, "),
        ],
        cases={case: entry},
    )

OF_5000 = exhibit(
    TWO_NODES_A, partition=with_changes(LISTS_A, validation=5000), trials=1, scales=["paper"]
)
BY_DIVERGENCE: Entry = {"divergence": [1.0, 0.1], "show": ["divergence"]}
exhibits["settings"] = exhibit(
    OF_5000,
    drawing=table(["method", "divergence"], ["spread"], split="server_validation"),
    title="What the spread at the start and the weight of the divergence decide",
    caption="""Accuracy in percent on 5,000 validation examples, mean of both nodes before they hear
        each other and over the last five of 20 epochs, case (a). One trial.""",
    parameters={"rounds": 1560, "steps": 3},
    sweep={"model.spread": [0.007, 0.015, 0.03]},
    methods=[
        component("variational_consensus", "consensus of beliefs", **BY_DIVERGENCE),
        component("consensus_of_means", "plain means", **BY_DIVERGENCE),
    ],
)

SHORT, LONG = lasting(1560, 78, steps=3), lasting(6240, 312, steps=3)
# only the lists change: the validation examples stay
UNBALANCED = {"partition": {"lists": LISTS_UNBALANCED["lists"]}, "graph": LEANING}
OF_256 = {"batch_size": 256}
exhibits["defaults"] = exhibit(
    OF_5000,
    drawing=table(["case"], ["method"], split="server_validation"),
    title="What other settings than the defaults give",
    caption="""Accuracy in percent on 5,000 validation examples of both nodes before they hear each
        other, where one setting is changed at a time; the mean over the last quarter.""",
    measure_every=156,
    methods=ON_A_GRAPH[:2],  # before they hear each other
    cases={
        "a": {"label": "case (a): defaults"},
        "a_short": {"label": "case (a): 20 epochs", **SHORT},
        "a_long": {"label": "case (a): 80 epochs", **LONG},
        "a_slow": {"label": "case (a): step size 0.0005", "training": {"lr": 0.0005}},
        "a_fast": {"label": "case (a): step size 0.002", "training": {"lr": 0.002}},
        # as many epochs have twice or half as many minibatches of these sizes
        "a_small": {"label": "case (a): minibatches of 64", "training": {"batch_size": 64}, **LONG},
        "a_large": {"label": "case (a): minibatches of 256", **SHORT, "training": OF_256},
        "a_near": {"label": "case (a): prior N(0, 0.1²)", "model": {"prior_sd": 0.1}},
        "unbalanced": {"label": "unbalanced: defaults", **UNBALANCED},
        "unbalanced_short": {"label": "unbalanced: 20 epochs", **UNBALANCED, **SHORT},
        "unbalanced_long": {"label": "unbalanced: 80 epochs", **UNBALANCED, **LONG},
    },
)

Runs = dict[int, tuple[int, int]]  # number of nodes: rounds, and rounds between two measurements


def on_graphs(of: dict[str, Runs], **others: Any) -> Cases:
    """Return scenarios for `of`, {graph: {nodes: (rounds, rounds between evaluations)}}."""
    return {
        f"{shape}_{nodes}": {
            "label": f"{shape.replace('_', ' ')}, {nodes} nodes",
            "graph": component(shape),
            "partition": {"clients": nodes},
            **lasting(*lasts, divergence=1 / nodes),
            **others,
        }
        for shape, runs in of.items()
        for nodes, lasts in runs.items()
    }


def along_nodes(metric: str, split: str = "", logs: str = "x", **others: Any) -> Entry:
    """Return a panel of `metric` on `split` by number of nodes; `logs` are log axes, as "xy"."""
    place = {"along": "case", "x_label": "nodes N", "log": [*logs]}
    return {"metric": metric, "split": split, **place, **others}


TO_16: Runs = {4: (938, 157), 8: (469, 157), 16: (234, 59)}
TO_64: Runs = {32: (117, 59), 64: (59, 59)}
NO_GOSSIP = {"without": ["gossip SGD"]}
OTHER_SHAPES = "star", "grid", "small_world"
exhibits["graphs"] = exhibit(
    drawing=component(
        "lines",
        panels=[
            along_nodes("accuracy", "test", title="Mean accuracy of nodes"),
            along_nodes("accuracy_worst", "test", title="Accuracy of the worst node"),
            along_nodes("spectral_gap", title="Spectral gap", logs="xy"),
            along_nodes("bytes_up", title="Sent by all nodes", logs="xy"),
        ],
    ),
    by_rounds=True,
    title="Larger graphs of other shapes",
    caption="""Test accuracy of nodes that hold classes in shares drawn from Dirichlet(0.5), before
        they hear each other, after 20 epochs of all data; 10 minibatches between two exchanges. Two
        nodes have one graph. The spectral gap is one less the second largest modulus of W.""",
    dataset=CLOTHES,
    partition=component("dirichlet", clients=2, alpha=0.5),
    model=PERCEPTRON,
    training=with_changes(ADAM, batch_size=32),
    graph=component("complete"),
    parameters={"steps": 10},
    trials=1,
    methods=[
        component("variational_consensus", "consensus of beliefs", belief="before"),
        component("gossip_sgd", "gossip SGD", belief="before"),
    ],
    notes=["The divergence weighs 1/N: nodes together count each example once beside the prior."],
    scales=["paper"],
    cases=on_graphs({"complete": {2: (1875, 313), **TO_16, **TO_64}, "ring": TO_16})
    | on_graphs({"ring": TO_64}, **NO_GOSSIP)
    | on_graphs(dict.fromkeys(OTHER_SHAPES, TO_16 | TO_64), **NO_GOSSIP),
)

# Simulations, without data or a model. A trial is 2,000 repeats with random numbers of their own.
OF_1A = """Expected squared error of Bayesian prediction, and the variance that nodes believe their
    predictions have, as samples come in. Node 1 sees the first coordinate alone, node 2 the second,
    the central node both. Means over repeats; the dotted line is the variance of noise."""
OF_1B = "As figure 1a, with algorithm 1 on the graph of W = [[0.9, 0.1], [0.6, 0.4]]."
BELIEFS = component("regression_beliefs")
BY_SAMPLES: Entry = {"x_label": "samples of a node", "log": ["x"]}
WITH_NOISE = {**BY_SAMPLES, "bound": 0.64}  # the variance of noise
PANELS = [{"metric": one, **WITH_NOISE} for one in ("squared_error", "believed_variance")]
for figure, title, caption, of_nodes in (
    ("1a", "nodes alone", OF_1A, {"cooperation": "alone"}),
    ("1b", "nodes that cooperate", OF_1B, {}),
):
    exhibits[f"figure-{figure}"] = exhibit(
        drawing=component("lines", panels=PANELS),
        title=f"Linear regression, {title}",
        place=f"section 5.1, figure {figure}",
        caption=caption,
        trials=10,
        methods=[
            *(with_changes(BELIEFS, f"node {node}", node=node, **of_nodes) for node in (1, 2)),
            with_changes(BELIEFS, "central node", node=1, cooperation="central", reference=True),
        ],
        quick={"parameters": {"repeats": 500, "steps": 200}, "trials": 5},
        tiny={"parameters": {"repeats": 50, "steps": 20}, "trials": 2},
    )


ALGORITHM = component("finite_beliefs", "Algorithm 1", show=["nodes"])
OF_TWO = [with_changes(ALGORITHM, settings=[{"nodes": 2}])]


def matrix_case(label: str, w: dict[str, list[str]]) -> Entry:
    return {"label": label, "parameters": w, "methods": OF_TWO}


UNTIL_RARE = {"title": "Samples of a node until errors are rare", "along": "nodes"}
ERRORS = {"metric": "error", **BY_SAMPLES, "upright": ["bound_printed", "bound_corrected"]}
# the paper's three matrices for two nodes, and graphs of more nodes
exhibits["theorem-1"] = exhibit(
    drawing=component(
        "lines", panels=[ERRORS, along_nodes("samples_needed", logs="xy", **UNTIL_RARE)]
    ),
    title="How many samples theorem 1 asks for, and how many it takes",
    place="section 4, theorem 1, without an experiment in the paper",
    caption="""Share of repeats in which any node is wrong against samples of a node, with the bound
        as printed (dotted) and mended (dashed); samples until at most 5 % are wrong, N nodes.""",
    trials=5,
    methods=[with_changes(ALGORITHM, nodes=[4, 16, 64])],
    cases={
        "regression": matrix_case("regression, W 0.9/0.1", {"rows": ["0.9_0.1", "0.6_0.4"]}),
        "balanced": matrix_case("case (a) and (b), W 0.25/0.75", CROSSED),
        "unbalanced": matrix_case("unbalanced, W 0.45/0.55", LEANING),
        **{
            shape: {"label": shape.replace("_", " "), "parameters": {"graph": shape, "steps": 100}}
            for shape in ("complete", "ring", *OTHER_SHAPES)
        },
    },
    notes=[
        """The experiment is ours: two bits, of which node i sees bit i mod 2 as a coin of
            probability 0.3 or 0.7. A node that believes two parameters equally is wrong.""",
        """Graphs have metropolis weights with self-loops, and end after 100 samples; the matrices
            go on up to the mended bound.""",
    ],
    scales=["paper"],
)

EXHIBITS = {
    "paper": "p2p",
    "title": "Peer-to-peer federated learning on graphs",
    "source": "Lalitha, Kilinc, Javidi, Koushanfar; arXiv 1901.11173, 2019",
    "defaults": exhibit(
        sweep={},
        place="beyond the paper",
        notes=["Settings that the paper does not give, and their reasons, are in its findings."],
    ),
    "exhibits": exhibits,
}
