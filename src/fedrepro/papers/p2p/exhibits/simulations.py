"""Linear regression with known posteriors, and theorem 1: simulations without data or a model.

A trial is 2,000 repeats with random numbers of their own.
"""

from __future__ import annotations

from typing import Any

from fedrepro.planning.exhibit_config import Entry, ExhibitData, component, exhibit, with_changes

exhibits: dict[str, ExhibitData] = {}

Case = dict[str, Any]  # its label, and what differs in it

# W: a row for each node, its weights of the beliefs of node 1 and node 2
CROSSED = {"rows": ["0.25_0.75", "0.75_0.25"]}
LEANING = {"rows": ["0.45_0.55", "0.70_0.30"]}
GRAPHS = "complete", "ring", "star", "grid", "small_world"
SHAPES = {name: name.replace("_", " ") for name in GRAPHS}  # with their labels

REGRESSIONS: dict[str, tuple[str, str, Entry]] = {  # title, caption, parameters of nodes
    "1a": (
        "nodes alone",
        """Expected squared error of Bayesian prediction, and the variance that nodes believe their
            predictions have, as samples come in. Node 1 sees the first coordinate alone, node 2 the
            second, the central node both. Means over repeats; the dotted line is the variance of
            noise.""",
        {"cooperation": "alone"},
    ),
    "1b": (
        "nodes that cooperate",
        "As figure 1a, with algorithm 1 on the graph of W = [[0.9, 0.1], [0.6, 0.4]].",
        {},
    ),
}
BELIEFS = component("regression_beliefs")
CENTRAL = with_changes(BELIEFS, "central node", node=1, cooperation="central", reference=True)
BY_SAMPLES: Entry = {"x_label": "samples of a node", "log": ["x"]}
NOISE = 0.64  # its variance
PANELS = [
    {"metric": m, **BY_SAMPLES, "bound": NOISE} for m in ("squared_error", "believed_variance")
]
for figure, (title, caption, of_nodes) in REGRESSIONS.items():
    exhibits[f"figure-{figure}"] = exhibit(
        drawing=component("lines", panels=PANELS),
        title=f"Linear regression, {title}",
        place=f"section 5.1, figure {figure}",
        caption=caption,
        trials=10,
        methods=[
            with_changes(BELIEFS, "node 1", node=1, **of_nodes),
            with_changes(BELIEFS, "node 2", node=2, **of_nodes),
            CENTRAL,
        ],
        notes=[
            """The paper does not say where test examples come from: both coordinates from the
                ranges of the nodes, with noise. Their expectation is taken in closed form, so that
                no test examples are drawn.""",
            """The central node gets one example a step, as each node does; the paper does not say
                how many.""",
            "500 samples, and the belief after consensus, from which algorithm 1 declares.",
        ],
        quick={"parameters": {"repeats": 500, "steps": 200}, "trials": 5},
        tiny={"parameters": {"repeats": 50, "steps": 20}, "trials": 2},
    )


def algorithm(**nodes: Any) -> list[Entry]:
    return [component("finite_beliefs", "Algorithm 1", **nodes, show=["nodes"])]


def matrix_case(label: str, w: dict[str, list[str]]) -> Case:
    return {"label": label, "parameters": w, "methods": algorithm(settings=[{"nodes": 2}])}


UNTIL_RARE = {
    "metric": "samples_needed",
    "along": "nodes",
    "title": "Samples of a node until errors are rare",
    "x_label": "nodes N",
    "log": ["x", "y"],
}
BOUNDS = ["bound_printed", "bound_corrected"]
# the paper's three matrices for two nodes, and graphs of more nodes
exhibits["theorem-1"] = exhibit(
    drawing=component(
        "lines", panels=[{"metric": "error", **BY_SAMPLES, "upright": BOUNDS}, UNTIL_RARE]
    ),
    title="How many samples theorem 1 asks for, and how many it takes",
    place="section 4, theorem 1, without an experiment in the paper",
    caption="""Share of repeats in which any node is wrong against samples of a node, for the three
        matrices of the paper, with the bound as printed (dotted) and mended (dashed); and the
        samples after which at most 5 % of repeats are wrong for the first time, on graphs of N
        nodes.""",
    trials=5,
    methods=algorithm(nodes=[4, 16, 64]),
    cases={
        "regression": matrix_case("regression, W 0.9/0.1", {"rows": ["0.9_0.1", "0.6_0.4"]}),
        "balanced": matrix_case("case (a) and (b), W 0.25/0.75", CROSSED),
        "unbalanced": matrix_case("unbalanced, W 0.45/0.55", LEANING),
        **{
            shape: {"label": label, "parameters": {"graph": shape, "steps": 100}}
            for shape, label in SHAPES.items()
        },
    },
    notes=[
        """The experiment is ours: two bits, of which node i sees bit i mod 2 as a coin of
            probability 0.3 or 0.7, four parameters, a uniform prior, delta 0.05. A node that
            believes two parameters equally is wrong.""",
        """The printed bound has the largest eigenvalue but one, by its value. Mended are the square
            of C, the mixing of W (its computed sum in the place of 4 log N / (1 - lambda)), and the
            two conditions that were merged.""",
        """Graphs have metropolis weights with self-loops, and end after 100 samples; the matrices
            go on up to the mended bound.""",
    ],
    quick={"parameters": {"repeats": 200}, "methods": algorithm(nodes=[4, 16])},
    tiny={"parameters": {"repeats": 50}, "methods": algorithm(nodes=[4, 9]), "trials": 2},
)
