"""Every figure of the paper, and experiments beyond it; a method is a dict of its config keys."""

from fedrepro.papers.pfnm.exhibits import paper_figures as p
from fedrepro.planning.exhibit_config import Entry, ExhibitData, component, exhibit, with_changes

exhibits: dict[str, ExhibitData] = {}


def of_size(name: str, label: str, units: list[int], **parameters: bool) -> Entry:
    return component(name, label, **parameters, units=units, show=["units"])


BY_SIZE = exhibit(drawing="accuracy-against-size")
SMALLER = {"quick": {"sweep": p.clients(5, 10, 20)}, "tiny": {"sweep": p.clients(2, 4)}}
CUT_OFF = """Bars are one standard deviation over trials. What lies more than 25 points below the
    best is cut off, or named with an arrow."""
exhibits["matching-or-size"] = exhibit(
    BY_SIZE,
    title="How much of PFNM's accuracy is matching, and how much is size?",
    caption=f"""Test accuracy against the size of the global model. PFNM has fewer units as σ²
        rises; pruned concatenation matches nothing; level lines keep all units. {CUT_OFF}""",
    sweep=p.clients(5, 10, 25),
    methods=[
        p.pfnm_each(p.SIGMA2),
        of_size("pruned_concatenation", "pruned concatenation", [25, 50, 100, 200, 400, 700]),
        p.AVERAGE,
        p.U_ENS,
        p.CONCATENATION,
        p.UNMATCHED,
    ],
    cases=p.BOTH,
    notes=[
        """A unit of the concatenation is kept for the product of the norms of its incoming weights
            and bias, and of its outgoing weights.""",
    ],
    **SMALLER,
)

FINER = [0.5, 1.0, 1.25, 1.5, 1.75, 2.0, 2.25, 2.5, 2.75, 3.0, 3.5, 4.0, 5.0]
exhibits["finer-sigma2"] = exhibit(
    BY_SIZE,
    title="How small PFNM's network can be, homogeneous",
    caption=f"""Test accuracy against the size of PFNM's network as σ² rises from 0.5 to 5 in small
        steps. Level lines keep all units. {CUT_OFF}""",
    sweep=p.clients(10, 15, 20, 25, 30),
    trials=5,
    methods=[p.pfnm_each(FINER), p.CONCATENATION, p.UNMATCHED],
    scales=["paper"],
)


def methods_of_size(units: list[int]) -> list[Entry]:
    """Return PFNM and rivals; each whose size can be set has every size in `units` per layer."""
    return [
        of_size("pfnm_sized", "PFNM", units),
        of_size("kmeans_units", "k-means of units", units),
        of_size("ot_fusion", "OT fusion", units, class_weights=True),
        component("weight_matching", "weight matching", class_weights=True),
        p.LOCAL,
        of_size("best_clients", "best clients", units),
        of_size("whole_clients", "clients at random", units),
        of_size("pruned_concatenation", "pruned concatenation", units, exact=True),
        p.AVERAGE,
        component("average_shared", "parameter average, shared start"),
        p.CONCATENATION,
        p.UNMATCHED,
    ]


exhibits["equal-size"] = exhibit(
    BY_SIZE,
    title="What merging gives at a size, against what else has it",
    caption=f"""Test accuracy of networks of exactly 50 to 400 hidden units, from the same local
        ones of 50. PFNM has the smallest σ² of a size. Level lines: clients alone, all units.
        {CUT_OFF}""",
    sweep=p.clients(5, 10, 25),
    methods=methods_of_size([50, 100, 200, 400]),
    cases=p.BOTH,
    notes=[
        """Weights to a class count by the clients' shares of it in all methods but parameter
            averaging, as they do in PFNM, so that the merging is what differs.""",
        "Best clients are those with the highest training accuracy on their own data.",
    ],
    **SMALLER,
)
exhibits["equal-size-photographs"] = exhibit(
    exhibits["equal-size"],
    p.PHOTOGRAPHS,
    title="What merging gives at a size, colour pictures",
    caption="As equal-size, on colour pictures.",
    scales=["paper"],
)
exhibits["equal-size-deep"] = exhibit(
    exhibits["equal-size"],
    title="What merging gives at a size, two hidden layers",
    caption="As equal-size, with two hidden layers of 50 to 200 units each; ten clients.",
    model=component("mlp", hidden=[50, 50]),
    sweep=p.clients(10),
    methods=methods_of_size([50, 100, 200]),
    notes=["PFNM's σ² is solved for the sum of the units of both layers."],
    scales=["paper"],
)

TWO_DATA_SETS: dict[str, Entry] = {
    "pictures": {"label": "heterogeneous"},
    "photographs": {"label": "heterogeneous", **p.PHOTOGRAPHS},
}
SHAPES_FOR_PHOTOGRAPHS = exhibit(cases={"photographs": {**p.SHAPES}})

READINGS = {"popularity": [1.0, 2.0], "class_weights": [True, False], "count_cap": [10, None]}
exhibits["erratum-options"] = exhibit(
    drawing=component("table", best="none"),
    title="What the readings of PFNM's equations change",
    caption="""Test accuracy in percent and hidden units under each reading of the popularity term,
        of the weights of classes and of the cap on counts; σ² is chosen for each.""",
    sweep=p.clients(10, 25),
    methods=[with_changes(p.pfnm_chosen(p.SIGMA2), **READINGS, show=list(READINGS))],
    cases=p.BOTH,
    quick={"sweep": p.clients(5, 20)},
    tiny={"sweep": p.clients(2, 4)},
)
DEEP = exhibit(partition=p.HETEROGENEOUS, sweep=p.depths(10, [1, 2, 4]))
exhibits["deep-sigma2"] = exhibit(
    DEEP,
    drawing="table",
    title="What σ² does, with and without merging",
    caption="""Test accuracy in percent and hidden units of PFNM, and of the same posterior with
        every unit on its own, for every σ² of figure 3. Bold: the best of a column.""",
    methods=[
        p.pfnm_each(p.DEEP_SIGMA2),
        component("unmatched", "unmatched", sigma2=p.DEEP_SIGMA2, show=["sigma2"]),
    ],
    cases=TWO_DATA_SETS,
    paper={"cases": {"photographs": {"trials": 6}}},
    quick=SHAPES_FOR_PHOTOGRAPHS,
    tiny=exhibit(SHAPES_FOR_PHOTOGRAPHS, sweep=p.depths(4, [2])),
)

VALUES = [0.0001, 0.01, 1.0]
APART = [{"sigma2": merging, "posterior_sigma2": own} for merging in VALUES for own in VALUES]
exhibits["merging-and-posterior"] = exhibit(
    DEEP,
    drawing=component("table", best="none"),
    title="One σ² for merging and another for the posterior",
    caption="""Test accuracy in percent and hidden units of PFNM with one σ² for both uses, or one
        for what is matched and another for its means. A row chooses among three values.""",
    trials=5,
    methods=[
        with_changes(p.pfnm_chosen(VALUES), "PFNM, one σ²"),
        component("pfnm", "PFNM, σ² apart", settings=APART, choose="pooled_train"),
        with_changes(p.UNMATCHED, sigma2=VALUES, choose="pooled_train"),
        with_changes(p.U_ENS, reference=True),
    ],
    scales=["paper"],
)
BY_CLIENT = with_changes(p.W_ENS, "W-Ens, share of the client", share="client")
exhibits["ensemble-readings"] = exhibit(
    drawing="accuracy-close-up",
    title="What the weighted ensemble weighs by",
    caption=f"""Test accuracy of ensembles. The supplement divides a client's examples of a class by
        everybody's of that class; section 4, to the letter, by all its own. {p.LINES_ARE_MEANS}""",
    partition=p.HETEROGENEOUS,
    methods=[p.U_ENS, p.W_ENS, BY_CLIENT],
    cases=TWO_DATA_SETS,
    quick=SHAPES_FOR_PHOTOGRAPHS,
    tiny=SHAPES_FOR_PHOTOGRAPHS,
)
exhibits["wider-downpour"] = exhibit(
    drawing="accuracy-close-up",
    title="Downpour SGD with wider networks",
    place="supplement 4.1, a sentence without a figure",
    caption=f"""Test accuracy of downpour SGD against the units of its hidden layer.
        {p.LINES_ARE_MEANS}""",
    sweep={**p.clients(25), "model.hidden": [[50], [100], [200], [400]]},
    methods=[p.D_SGD],
    cases=p.BOTH,
    notes=["The paper names neither the widths nor the number of clients."],
    quick={"sweep": p.clients(20)},
    tiny={"sweep": {**p.clients(4), "model.hidden": [[50], [100]]}},
)

DIGITS = exhibit(dataset=component("digits"))
TINY = exhibit(sweep=p.clients(2, 4), training={"epochs": 2}, trials=2)
EXHIBITS = {
    "paper": "pfnm",
    "title": "Probabilistic federated neural matching",
    "source": "Yurochkin, Agarwal, Ghosh, Greenewald, Hoang, Khazaeni; submitted to ICLR 2019",
    "defaults": exhibit(
        place="beyond the paper",  # where an exhibit does not say another
        dataset=component("mnist"),
        partition=component("homogeneous"),
        model=component("mlp", hidden=[50]),
        training=component("adam", lr=0.01, l2=1e-6, batch_size=32, epochs=10),
        size="hidden_units",
        sweep=p.clients(5, 10, 15, 20, 25, 30),
        trials=10,
        methods=[p.pfnm_chosen(p.SIGMA2), *p.OTHERS],
        notes=p.NOTES,
        paper={"trials_of": {"KD": 2}},
        quick=exhibit(DIGITS, sweep=p.clients(2, 5, 10, 15, 20), trials=5),
        tiny=exhibit(DIGITS, TINY, trials_of={"KD": 1}),
    ),
    "exhibits": {**p.exhibits, **exhibits},
}
