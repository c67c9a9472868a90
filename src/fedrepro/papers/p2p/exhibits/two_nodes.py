"""The accuracy of two nodes alone and on a graph, and what they confuse: section 5.2.2."""

from __future__ import annotations

from fedrepro.papers.p2p.exhibits.common import (
    ALL_DATA,
    ALONE_1,
    ALONE_2,
    FOUR_CASES,
    ON_A_GRAPH,
    QUICK,
    TINY,
    TWO_NODES,
    TWO_NODES_A,
    TWO_NODES_B,
    TWO_NODES_UNBALANCED,
    consensus,
    table,
)
from fedrepro.planning.exhibit_settings import ExhibitData, component, exhibit, text, with_changes


def table_accuracy() -> ExhibitData:
    return exhibit(
        TWO_NODES,
        headline=True,
        drawing=table(["case"], ["method"]),
        title="Accuracy on Fashion-MNIST of two nodes, alone and on a graph",
        place="section 5.2.2, text",
        caption=text("""
            Test accuracy in percent of nodes that train alone, of nodes on a graph by what they
            believe before and after they hear their neighbour, and of one that has all data. Of
            nodes on a graph the mean over the last five measured rounds. Means over trials, with
            one standard deviation.
        """),
        methods=[ALONE_1, ALONE_2, *ON_A_GRAPH, ALL_DATA],
        cases=FOUR_CASES,
        at={"paper": {"cases": {"iid": {"trials": 10}}}, "quick": QUICK, "tiny": TINY},
    )


def accuracy_by_round(two_nodes: ExhibitData, case: str, figure: str, caption: str) -> ExhibitData:
    """Figures 2 and 3: both nodes as they learn, with level lines of nodes alone."""
    return exhibit(
        two_nodes,
        drawing="accuracy-against-rounds",
        title=f"Test accuracy of two nodes, {case}",
        place=f"section 5.2.2, figure {figure}",
        caption=caption,
        methods=[
            *ON_A_GRAPH,
            with_changes(ALONE_1, reference=True),
            with_changes(ALONE_2, reference=True),
            ALL_DATA,
        ],
    )


def figure_2() -> ExhibitData:
    caption = text("""
        Test accuracy of both nodes as they exchange beliefs, before and after they hear each other;
        node 1 has the classes 0 to 7, node 2 has 8 and 9. Level lines are nodes alone, and one with
        all data. Lines are means over trials, bands one standard deviation.
    """)
    return accuracy_by_round(TWO_NODES_UNBALANCED, "unbalanced", "2", caption)


def figure_3a() -> ExhibitData:
    caption = "As figure 2, where node 1 has the classes 0 to 4 and node 2 has 5 to 9."
    return accuracy_by_round(TWO_NODES_A, "case (a)", "3a", caption)


def figure_3b() -> ExhibitData:
    caption = text("""
        As figure 2, where node 1 has the classes 0, 2, 3, 4 and 6, which look alike, and node 2 the
        others.
    """)
    return accuracy_by_round(TWO_NODES_B, "case (b)", "3b", caption)


def confusions(
    two_nodes: ExhibitData, case: str, figure: str, node: int, classes: str
) -> ExhibitData:
    """Return a part of figure 4; `classes` is a sentence on which node has which."""
    lookalikes = {
        "0, 2, 3 or 4": [0, 2, 3, 4],
        "0, 2, 3, 4 or 6": [0, 2, 3, 4, 6],
        "other than 6": [0, 1, 2, 3, 4, 5, 7, 8, 9],
        "5, 7, 8 or 9": [5, 7, 8, 9],
    }
    return exhibit(
        two_nodes,
        drawing=component("confusion", groups=lookalikes),
        title=f"What node {node} confuses, {case}",
        place=f"section 5.2.2, figure {figure}",
        caption=text(f"""
            Test examples of each class by what node {node} takes them for, in percent, after the
            last round, before and after it hears its neighbour. {classes}
        """),
        methods=[
            consensus("before", node=node, belief="before"),
            consensus("after", node=node, belief="after"),
        ],
    )


def figure_4_case_a(figure: str, node: int) -> ExhibitData:
    classes = "Node 1 has the classes 0 to 4, node 2 has 5 to 9."
    return confusions(TWO_NODES_A, "case (a)", figure, node, classes)


def figure_4_case_b(figure: str, node: int) -> ExhibitData:
    classes = "Node 1 has the classes 0, 2, 3, 4 and 6, node 2 the others."
    return confusions(TWO_NODES_B, "case (b)", figure, node, classes)
