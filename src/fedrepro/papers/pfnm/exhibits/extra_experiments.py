"""Experiments beyond the paper: accuracy at a size, readings of its text, σ², wide networks."""

from __future__ import annotations

from fedrepro.papers.pfnm.exhibits import paper_figures as paper
from fedrepro.planning.exhibit_settings import Entry, ExhibitData, component, exhibit, with_changes

exhibits: dict[str, ExhibitData] = {}


def of_size(name: str, label: str, units: list[int], **parameters: bool) -> Entry:
    """Return the configuration of method `name` that makes networks of several sizes and shows all.

    `units` lists numbers of units in each hidden layer; `label` is the method's name in tables.
    """
    return component(name, label, **parameters, units=units, show=["units"])


exhibits["matching-or-size"] = exhibit(
    drawing="accuracy-against-size",
    title="How much of PFNM's accuracy is matching, and how much is size?",
    place="beyond the paper",
    caption="""Test accuracy against the size of the global model. PFNM goes from many units to few
        as σ², written beside points that lie apart, rises. The pruned concatenation has as many
        units, chosen by their norms, with nothing matched; the two level lines keep all units. Bars
        are one standard deviation over trials. What lies more than 25 points below the best is cut
        off, or named with an arrow.""",
    partition=paper.HOMOGENEOUS,
    sweep=paper.clients(5, 10, 25),
    methods=[
        paper.pfnm_each(paper.SIGMA2),
        of_size("pruned_concatenation", "pruned concatenation", [25, 50, 100, 200, 400, 700]),
        component("local", "clients alone"),
        paper.AVERAGE,
        paper.U_ENS,
        paper.CONCATENATION,
        paper.UNMATCHED,
    ],
    cases=paper.BOTH,
    notes=[
        """A unit of the concatenation is kept for the product of the norms of its incoming weights
            and bias, and of its outgoing weights.""",
        paper.NETWORKS_OF_FIGURE_2,
        paper.AS_IN_CODE,
    ],
    at={"quick": {"sweep": paper.clients(5, 10, 20)}, "tiny": {"sweep": paper.clients(2, 4)}},
)


FINER = [0.5, 1.0, 1.25, 1.5, 1.75, 2.0, 2.25, 2.5, 2.75, 3.0, 3.5, 4.0, 5.0]
exhibits["finer-sigma2"] = exhibit(
    drawing="accuracy-against-size",
    title="How small PFNM's network can be, homogeneous",
    place="beyond the paper",
    caption="""Test accuracy against the size of PFNM's network as σ² rises from 0.5 to 5 in small
        steps. Level lines keep all units. Bars are one standard deviation over trials. What lies
        more than 25 points below the best is cut off, or named with an arrow.""",
    partition=paper.HOMOGENEOUS,
    sweep=paper.clients(10, 15, 20, 25, 30),
    trials=5,
    methods=[paper.pfnm_each(FINER), paper.CONCATENATION, paper.UNMATCHED],
    notes=[
        """Elsewhere the grid of σ² has nothing between 2 and 5, where the size falls from hundreds
            of units to tens; claim P2a, on how small the network is, needs what lies between.""",
        paper.NETWORKS_OF_FIGURE_2,
        paper.AS_IN_CODE,
    ],
    at={
        "quick": {"sweep": paper.clients(5, 10, 20)},
        "tiny": {"sweep": paper.clients(2, 4), "trials": 2},
    },
)


def methods_of_size(units: list[int]) -> list[Entry]:
    """List the configurations of methods that are compared at equal size of the global network.

    `units` lists numbers of units in each hidden layer. A method that cannot choose its size, such
    as parameter averaging, has only its own size.
    """
    return [
        of_size("pfnm_sized", "PFNM", units),
        of_size("kmeans_units", "k-means of units", units),
        of_size("ot_fusion", "OT fusion", units, class_weights=True),
        component("weight_matching", "weight matching", class_weights=True),
        paper.LOCAL,
        of_size("best_clients", "best clients", units),
        of_size("whole_clients", "clients at random", units),
        of_size("pruned_concatenation", "pruned concatenation", units, exact=True),
        paper.AVERAGE,
        component("average_shared", "parameter average, shared start"),
        paper.CONCATENATION,
        paper.UNMATCHED,
    ]


exhibits["equal-size"] = exhibit(
    drawing="accuracy-against-size",
    title="What merging gives at a size, against what else has it",
    place="beyond the paper",
    caption="""Test accuracy of networks of exactly 50, 100, 200 and 400 hidden units, all from the
        same local networks of 50. PFNM has the smallest σ² that gives the size. What has one size
        is a mark left of a client's 50; level lines are clients alone, and what keeps all units.
        Bars are one standard deviation over trials. What lies more than 25 points below the best is
        cut off, or named with an arrow.""",
    partition=paper.HOMOGENEOUS,
    sweep=paper.clients(5, 10, 25),
    methods=methods_of_size([50, 100, 200, 400]),
    cases=paper.BOTH,
    notes=[
        """A point is left out where a method has no network of that size in some trial: whole
            clients have multiples of 50, nobody has more units than all clients together, and PFNM
            some sizes for no σ².""",
        """Weights to a class count by the clients' shares of it in all methods but parameter
            averaging, as they do in PFNM, so that the merging is what differs.""",
        "Best clients are those with the highest training accuracy on their own data.",
        """Averaging from a shared start has local networks of its own, from the same partitions;
            all others have those of figure 2.""",
        paper.AS_IN_CODE,
    ],
    at={"quick": {"sweep": paper.clients(5, 10, 20)}, "tiny": {"sweep": paper.clients(2, 4)}},
)
exhibits["equal-size-photographs"] = exhibit(
    exhibits["equal-size"],
    paper.PHOTOGRAPHS,
    title="What merging gives at a size, colour pictures",
    caption="As equal-size, on colour pictures.",
    at={
        "quick": exhibit(paper.SHAPES, sweep=paper.clients(5, 10, 20)),
        "tiny": exhibit(paper.SHAPES, sweep=paper.clients(2, 4)),
    },
)
exhibits["equal-size-deep"] = exhibit(
    exhibits["equal-size"],
    title="What merging gives at a size, two hidden layers",
    caption="""As equal-size, with two hidden layers of 50, 100 or 200 units each; ten clients,
        whose networks have 50 in each.""",
    model=component("mlp", hidden=[50, 50]),
    sweep=paper.clients(10),
    methods=methods_of_size([50, 100, 200]),
    notes=[
        """PFNM's σ² is one for both layers and is solved for the sum of their units, which it
            divides between them as it will.""",
        paper.AS_IN_CODE,
    ],
    at={"tiny": {"sweep": paper.clients(4)}},
)


TWO_DATA_SETS: dict[str, Entry] = {
    "pictures": {"label": "heterogeneous"},
    "photographs": {"label": "heterogeneous", **paper.PHOTOGRAPHS},
}
SHAPES_FOR_PHOTOGRAPHS = exhibit(cases={"photographs": {**paper.SHAPES}})

exhibits["erratum-options"] = exhibit(
    drawing=component("table", best="none"),
    title="What the readings of PFNM's equations change",
    place="beyond the paper",
    caption="""Test accuracy in percent and hidden units under each reading of the popularity term,
        of the weights of classes and of the cap on counts, since text, derivation and the authors'
        code disagree; σ² is chosen for each.""",
    partition=paper.HOMOGENEOUS,
    sweep=paper.clients(10, 25),
    methods=[
        with_changes(
            paper.pfnm_chosen(paper.SIGMA2),
            popularity=[1.0, 2.0],
            class_weights=[True, False],
            count_cap=[10, None],
            show=["popularity", "class_weights", "count_cap"],
        )
    ],
    cases=paper.BOTH,
    notes=[
        """The factor on the popularity term is 1 in the text and in the authors' code, and 2 by
            derivation. Weights of classes and the cap are in the code only; a cap of 10 acts when
            there are more than 11 clients.""",
        paper.CHOSEN,
    ],
    at={"quick": {"sweep": paper.clients(5, 20)}, "tiny": {"sweep": paper.clients(2, 4)}},
)
exhibits["deep-sigma2"] = exhibit(
    drawing="table",
    title="What σ² does, with and without merging",
    place="beyond the paper",
    caption="""Test accuracy in percent and hidden units of PFNM, and of the same posterior with
        every unit on its own, for every σ² of figure 3; ten heterogeneous clients, networks of one,
        two and four hidden layers. Bold: the best of a column.""",
    partition=paper.HETEROGENEOUS,
    sweep=paper.depths(10, [1, 2, 4]),
    methods=[
        paper.pfnm_each(paper.DEEP_SIGMA2),
        component("unmatched", "unmatched", sigma2=paper.DEEP_SIGMA2, show=["sigma2"]),
    ],
    cases=TWO_DATA_SETS,
    notes=[
        """sigma2 does two things: it decides what is merged, and against sigma02 it weighs a
            client's say on a class of which it has few examples. The unmatched rows show the second
            alone."""
    ],
    at={
        "paper": {"cases": {"photographs": {"trials": 6}}},
        "quick": SHAPES_FOR_PHOTOGRAPHS,
        "tiny": exhibit(SHAPES_FOR_PHOTOGRAPHS, sweep=paper.depths(4, [2])),
    },
)


VALUES = [0.0001, 0.01, 1.0]
exhibits["merging-and-posterior"] = exhibit(
    drawing=component("table", best="none"),
    title="One σ² for merging and another for the posterior",
    place="beyond the paper",
    caption="""Test accuracy in percent and hidden units of PFNM with one σ² for both of its uses,
        and with one for what is matched and another for the means of what was matched; ten
        heterogeneous clients, networks of one, two and four hidden layers. Each row chooses among
        the same three values.""",
    partition=paper.HETEROGENEOUS,
    sweep=paper.depths(10, [1, 2, 4]),
    trials=5,
    methods=[
        with_changes(paper.pfnm_chosen(VALUES), "PFNM, one σ²"),
        component(
            "pfnm",
            "PFNM, σ² apart",
            settings=[
                {"sigma2": merging, "posterior_sigma2": posterior}
                for merging in VALUES
                for posterior in VALUES
            ],
            choose="pooled_train",
        ),
        with_changes(paper.UNMATCHED, sigma2=VALUES, choose="pooled_train"),
        with_changes(paper.U_ENS, reference=True),
    ],
    notes=[
        """The paper has one σ². Here the second sets the variance of the posterior means alone;
            what merges is decided as before.""",
        paper.CHOSEN_DEEP,
    ],
    at={
        "quick": {"sweep": paper.depths(10, [1, 2])},
        "tiny": {"sweep": paper.depths(4, [2]), "trials": 2},
    },
)
exhibits["ensemble-readings"] = exhibit(
    drawing="accuracy-close-up",
    title="What the weighted ensemble weighs by",
    place="beyond the paper",
    caption="""Test accuracy of ensembles on heterogeneous clients. The supplement divides a
        client's examples of a class by everybody's of that class; section 4, to the letter, by all
        its own. Lines are means over trials, bands one standard deviation.""",
    partition=paper.HETEROGENEOUS,
    methods=[
        paper.U_ENS,
        paper.W_ENS,
        with_changes(paper.W_ENS, "W-Ens, share of the client", share="client"),
    ],
    cases=TWO_DATA_SETS,
    notes=[
        """The paper finds the weighted ensemble below the uniform one on heterogeneous CIFAR-10
            (P11). Its two descriptions of the weights differ; both are drawn, from the local
            networks of figure 2."""
    ],
    at={"quick": SHAPES_FOR_PHOTOGRAPHS, "tiny": SHAPES_FOR_PHOTOGRAPHS},
)
exhibits["wider-downpour"] = exhibit(
    drawing="accuracy-close-up",
    title="Downpour SGD with wider networks",
    place="supplement 4.1, a sentence without a figure",
    caption="""Test accuracy of downpour SGD against the units of its hidden layer. Lines are means
        over trials, bands one standard deviation.""",
    partition=paper.HOMOGENEOUS,
    sweep={**paper.clients(25), "model.hidden": [[50], [100], [200], [400]]},
    methods=[paper.D_SGD],
    cases=paper.BOTH,
    notes=[
        "The paper names neither the widths nor the number of clients that it tried.",
        paper.DOWNPOUR,
    ],
    at={
        "quick": {"sweep": paper.clients(20)},
        "tiny": {"sweep": {**paper.clients(4), "model.hidden": [[50], [100]]}},
    },
)
