"""Draw the rules of the workflow: snakemake --rulegraph | python tools/rulegraph.py FILE.svg

Graphviz is not needed. A rule is drawn below all rules whose files it reads. An arrow is left out
if other arrows lead from its start to its end.
"""

from __future__ import annotations

import re
import sys
from html import escape
from pathlib import Path

import networkx as nx

WIDE, HIGH, ACROSS, DOWN, MARGIN = 128, 30, 150, 72, 12
NODE = re.compile(r'(\d+)\[label = "([^"]+)"')
EDGE = re.compile(r"(\d+) -> (\d+)")
COLOUR = "#0b5c7a"


def graph_of(dot: str) -> nx.DiGraph[str]:
    """Read the graph of rules from `snakemake --rulegraph`; edges lead to rules that read files.

    The rule `all`, which has no command, is left out, and so are edges that longer paths imply.
    """
    names = dict(NODE.findall(dot))
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_edges_from((names[a], names[b]) for a, b in EDGE.findall(dot))
    graph.remove_nodes_from({"all"} & set(graph))
    return nx.transitive_reduction(graph)


def placed(graph: nx.DiGraph[str]) -> dict[str, tuple[float, float]]:
    """Return the centre (x, y) of each rule's box; the row is the longest path to the rule."""
    places: dict[str, tuple[float, float]] = {}
    rows = list(nx.topological_generations(graph))
    widest = max(map(len, rows))
    for depth, row in enumerate(rows):

        def above(rule: str) -> tuple[float, str]:
            known = [places[one][0] for one in graph.predecessors(rule)]
            return (sum(known) / len(known) if known else 0.0, rule)

        left = MARGIN + ACROSS * (widest - len(row)) / 2 + ACROSS / 2
        for at, rule in enumerate(sorted(row, key=above)):
            places[rule] = (left + ACROSS * at, MARGIN + HIGH / 2 + DOWN * depth)
    return places


def svg(graph: nx.DiGraph[str]) -> str:
    """Return the drawing of the graph of rules as svg, whose text can be selected."""
    places = placed(graph)
    wide = max(x for x, _ in places.values()) + ACROSS / 2 + MARGIN
    high = max(y for _, y in places.values()) + HIGH / 2 + MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:g} {high:g}" '
        'font-family="sans-serif" font-size="13" role="img"><title>Rules of the workflow</title>'
        f'<rect width="{wide:g}" height="{high:g}" fill="#fff"/>'
    ]
    for a, b in sorted(graph.edges):
        (x, y), (u, v) = places[a], places[b]
        y, v = y + HIGH / 2, v - HIGH / 2
        middle = (y + v) / 2
        parts.append(
            f'<path d="M{x:g} {y:g}C{x:g} {middle:g} {u:g} {middle:g} {u:g} {v:g}" fill="none" '
            'stroke="#9aa1ab" stroke-width="1.5"/>'
        )
    for rule, (x, y) in sorted(places.items()):
        parts.append(
            f'<rect x="{x - WIDE / 2:g}" y="{y - HIGH / 2:g}" width="{WIDE}" height="{HIGH}" '
            f'rx="6" fill="#eef5f8" stroke="{COLOUR}"/>'
            f'<text x="{x:g}" y="{y + 4.5:g}" text-anchor="middle">{escape(rule)}</text>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(svg(graph_of(sys.stdin.read())), encoding="utf-8")
