"""Exhibits beyond the paper: accuracy against the size of the merged network.

They compare PFNM with all methods that give a network of the same size.
"""

from __future__ import annotations

from fedrepro.papers.pfnm.exhibits.common import (
    AS_IN_CODE,
    AVERAGE,
    BOTH,
    CONCATENATION,
    HOMOGENEOUS,
    LOCAL,
    NETWORKS_OF_FIGURE_2,
    PHOTOGRAPHS,
    SHAPES,
    SIGMA2,
    U_ENS,
    UNMATCHED,
    clients,
    pfnm_each,
)
from fedrepro.planning.exhibit_settings import Entry, ExhibitData, component, exhibit, text


def of_size(name: str, label: str, units: list[int], **parameters: bool) -> Entry:
    """Ask a method for networks of each of these sizes."""
    return component(name, label, **parameters, units=units, show=["units"])


def matching_or_size() -> ExhibitData:
    return exhibit(
        drawing="accuracy-against-size",
        title="How much of PFNM's accuracy is matching, and how much is size?",
        place="beyond the paper",
        caption=text("""
            Test accuracy against the size of the global model. PFNM goes from many units to few as
            σ², written beside points that lie apart, rises. The pruned concatenation has as many
            units, chosen by their norms, with nothing matched; the two level lines keep all units.
            Bars are one standard deviation over trials. What lies more than 25 points below the
            best is cut off, or named with an arrow.
        """),
        partition=HOMOGENEOUS,
        sweep=clients(5, 10, 25),
        methods=[
            pfnm_each(SIGMA2),
            of_size("pruned_concatenation", "pruned concatenation", [25, 50, 100, 200, 400, 700]),
            component("local", "clients alone"),
            AVERAGE,
            U_ENS,
            CONCATENATION,
            UNMATCHED,
        ],
        cases=BOTH,
        notes=[
            text("""
                A unit of the concatenation is kept for the product of the norms of its incoming
                weights and bias, and of its outgoing weights.
            """),
            NETWORKS_OF_FIGURE_2,
            AS_IN_CODE,
        ],
        at={"quick": {"sweep": clients(5, 10, 20)}, "tiny": {"sweep": clients(2, 4)}},
    )


def finer_sigma2() -> ExhibitData:
    finer = [0.5, 1.0, 1.25, 1.5, 1.75, 2.0, 2.25, 2.5, 2.75, 3.0, 3.5, 4.0, 5.0]
    return exhibit(
        drawing="accuracy-against-size",
        title="How small PFNM's network can be, homogeneous",
        place="beyond the paper",
        caption=text("""
            Test accuracy against the size of PFNM's network as σ² rises from 0.5 to 5 in small
            steps. Level lines keep all units. Bars are one standard deviation over trials. What
            lies more than 25 points below the best is cut off, or named with an arrow.
        """),
        partition=HOMOGENEOUS,
        sweep=clients(10, 15, 20, 25, 30),
        trials=5,
        methods=[pfnm_each(finer), CONCATENATION, UNMATCHED],
        notes=[
            text("""
                Elsewhere the grid of σ² has nothing between 2 and 5, where the size falls from
                hundreds of units to tens; claim P2a, on how small the network is, needs what lies
                between.
            """),
            NETWORKS_OF_FIGURE_2,
            AS_IN_CODE,
        ],
        at={"quick": {"sweep": clients(5, 10, 20)}, "tiny": {"sweep": clients(2, 4), "trials": 2}},
    )


def methods_of_size(units: list[int]) -> list[Entry]:
    """All that gives networks of these numbers of units, and what has one size of its own."""
    return [
        of_size("pfnm_sized", "PFNM", units),
        of_size("kmeans_units", "k-means of units", units),
        of_size("ot_fusion", "OT fusion", units, class_weights=True),
        component("weight_matching", "weight matching", class_weights=True),
        LOCAL,
        of_size("best_clients", "best clients", units),
        of_size("whole_clients", "clients at random", units),
        of_size("pruned_concatenation", "pruned concatenation", units, exact=True),
        AVERAGE,
        component("average_shared", "parameter average, shared start"),
        CONCATENATION,
        UNMATCHED,
    ]


def equal_size() -> ExhibitData:
    return exhibit(
        drawing="accuracy-against-size",
        title="What merging gives at a size, against what else has it",
        place="beyond the paper",
        caption=text("""
            Test accuracy of networks of exactly 50, 100, 200 and 400 hidden units, all from the
            same local networks of 50. PFNM has the smallest σ² that gives the size. What has one
            size is a mark left of a client's 50; level lines are clients alone, and what keeps all
            units. Bars are one standard deviation over trials. What lies more than 25 points below
            the best is cut off, or named with an arrow.
        """),
        partition=HOMOGENEOUS,
        sweep=clients(5, 10, 25),
        methods=methods_of_size([50, 100, 200, 400]),
        cases=BOTH,
        notes=[
            text("""
                A point is left out where a method has no network of that size in some trial: whole
                clients have multiples of 50, nobody has more units than all clients together, and
                PFNM some sizes for no σ².
            """),
            text("""
                Weights to a class count by the clients' shares of it in all methods but parameter
                averaging, as they do in PFNM, so that the merging is what differs.
            """),
            "Best clients are those with the highest training accuracy on their own data.",
            text("""
                Averaging from a shared start has local networks of its own, from the same
                partitions; all others have those of figure 2.
            """),
            AS_IN_CODE,
        ],
        at={"quick": {"sweep": clients(5, 10, 20)}, "tiny": {"sweep": clients(2, 4)}},
    )


def equal_size_photographs() -> ExhibitData:
    return exhibit(
        equal_size(),
        PHOTOGRAPHS,
        title="What merging gives at a size, colour pictures",
        caption="As equal-size, on colour pictures.",
        at={
            "quick": exhibit(SHAPES, sweep=clients(5, 10, 20)),
            "tiny": exhibit(SHAPES, sweep=clients(2, 4)),
        },
    )


def equal_size_deep() -> ExhibitData:
    return exhibit(
        equal_size(),
        title="What merging gives at a size, two hidden layers",
        caption=text("""
            As equal-size, with two hidden layers of 50, 100 or 200 units each; ten clients, whose
            networks have 50 in each.
        """),
        model=component("mlp", hidden=[50, 50]),
        sweep=clients(10),
        methods=methods_of_size([50, 100, 200]),
        notes=[
            text("""
                PFNM's σ² is one for both layers and is solved for the sum of their units, which it
                divides between them as it will.
            """),
            AS_IN_CODE,
        ],
        at={"tiny": {"sweep": clients(4)}},
    )
