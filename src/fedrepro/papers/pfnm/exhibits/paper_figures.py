"""Figures of the paper and its supplement: each, like its methods, a dict of configuration keys."""

from typing import Any

from fedrepro.planning.exhibit_config import Entry, ExhibitData, component, exhibit, with_changes

exhibits: dict[str, ExhibitData] = {}

HETEROGENEOUS = component("dirichlet", alpha=0.2)
PHOTOGRAPHS = exhibit(dataset=component("cifar10"), training={"lr": 0.001, "l2": 1e-5})
# stand in for PHOTOGRAPHS at small scales
SHAPES = exhibit(dataset=component("shapes"), training={"lr": 0.005})

BOTH: dict[str, Entry] = {
    "homogeneous": {"label": "homogeneous"},
    "heterogeneous": {"label": "heterogeneous", "partition": HETEROGENEOUS},
}
# the panels of figures 2 and 3
PANELS_AB: dict[str, Entry] = {"a": BOTH["homogeneous"], "b": BOTH["heterogeneous"]}
PANELS = PANELS_AB | {to: PANELS_AB[of] | PHOTOGRAPHS for of, to in (("a", "c"), ("b", "d"))}


def clients(*numbers: int) -> dict[str, list[Any]]:
    return {"partition.clients": list(numbers)}


def depths(number: int, layers: list[int]) -> dict[str, list[Any]]:
    """Return keys of a sweep over numbers of hidden `layers` of 50 units, with `number` clients."""
    return {**clients(number), "model.hidden": [[50] * n for n in layers]}


SIGMA2 = [0.01, 0.05, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0]
DEEP_SIGMA2 = [1e-6, 0.0001, 0.001, 0.01, 0.1, 1.0]


def pfnm_chosen(sigma2: list[float]) -> Entry:
    return component("pfnm", "PFNM", sigma2=sigma2, choose="pooled_train")


def pfnm_each(sigma2: list[float]) -> Entry:
    return component("pfnm", "PFNM", sigma2=sigma2, show=["sigma2"])


DEEP_PFNM = [
    pfnm_chosen(DEEP_SIGMA2),
    with_changes(pfnm_chosen([0.01, 0.1, 1.0]), "PFNM, σ²/100 on top", sigma2_layers=[1.0, 0.01]),
]
U_ENS = component("uniform_ensemble", "U-Ens")
W_ENS = component("weighted_ensemble", "W-Ens")
DISTILLATION = component("distillation", "KD", paired_with="U-Ens")
D_SGD = component("downpour_sgd", "D-SGD")
AVERAGE = component("average", "parameter average")
CONCATENATION = component("concatenation", "concatenation", reference=True)
UNMATCHED = component("unmatched", "PFNM unmatched", reference=True)
LOCAL = component("local", "clients alone", reference=True)
POOLED = component("pooled", "pooled training", reference=True)
MAJORITY = component("majority", "majority class", reference=True)
# what PFNM is compared with in figures 2 and 3
OTHERS = [U_ENS, W_ENS, DISTILLATION, D_SGD, AVERAGE]
OTHERS += [CONCATENATION, UNMATCHED, LOCAL, POOLED, MAJORITY]

# of every exhibit that has no notes of its own
NOTES = [
    "The numbers of clients are read off the plot's range; the paper gives no list.",
    """sigma2 is chosen from a grid that the paper does not give, one value at each point, by the
        mean training accuracy over all trials. The grid reaches to 10 because on heterogeneous
        MNIST the largest value of a grid up to 1 was always chosen; with several layers it reaches
        down to a millionth.""",
    """Downpour SGD: one Adam step of the master per client message, in random order, with the
        client's accumulated minibatch gradients; client optimisers start anew each round.""",
    """Weights start from N(0, 0.01) read as a variance, separately for each client; AMSGrad is on,
        the popularity count is capped at 10, and output weights count by class share, as in the
        authors' code.""",
    """Distillation, which costs most, has fewer trials than the rest: raise `trials_of` where there
        is time or a GPU. With several hidden layers it has 500 units in each.""",
    """At small scales generated pictures of coloured shapes stand in for CIFAR-10; there the step
        size is 0.005, which suits how few they are.""",
]
LINES_ARE_MEANS = "Lines are means over trials, bands one standard deviation."


def add_panels(part: str, last_sentence: str = "", **changes: Any) -> None:
    """Add to `exhibits` panels b to d of figure `part`, such as figure-2, made from its panel a.

    Panels b and d have Dirichlet class shares, c and d colour pictures and the keys `changes`.
    Captions say so, and end with `last_sentence`.
    """
    a, figure = exhibits[f"{part}a"], part.removeprefix("s-").replace("-", " ")
    of = " of the supplement" if part.startswith("s-") else ""
    place, title = a["place"].removesuffix("a"), a["title"].removesuffix("homogeneous")
    on_pictures = exhibit(a, PHOTOGRAPHS, exhibit(**changes))
    for letter, base, like, ending, differing in (
        ("b", a, "a", "heterogeneous", "when each class is divided by a draw from Dirichlet(0.2)"),
        ("c", on_pictures, "a", "colour pictures, homogeneous", "on colour pictures"),
        ("d", on_pictures, "b", "colour pictures, heterogeneous", "on colour pictures"),
    ):
        caption = f"As {figure}{like}{of}, {differing}. {last_sentence}"
        own = {"title": f"{title}{ending}", "place": f"{place}{letter}", "caption": caption}
        exhibits[f"{part}{letter}"] = panel = exhibit(base, own)
        if letter != "c":
            panel["partition"] = HETEROGENEOUS


def side_by_side(figure: int, **changes: Any) -> ExhibitData:
    """Return panels a to d of figure number `figure` as one exhibit, with more keys `changes`."""
    a = exhibits[f"figure-{figure}a"]
    return exhibit(
        a,
        headline=False,
        drawing="accuracy-close-up",
        title=a["title"].removesuffix(", homogeneous"),
        place=a["place"].removesuffix("a"),
        caption=f"""Figures {figure}a to {figure}d side by side: each class split evenly, or divided
            by a draw from Dirichlet(0.2), on two data sets. {LINES_ARE_MEANS}""",
        cases=PANELS,
        **changes,
    )


PHOTOGRAPHS_AT: dict[str, ExhibitData] = {
    "paper": {"trials_of": {"KD": 1}},
    "quick": exhibit(SHAPES, trials_of={"KD": 3}),
    "tiny": exhibit(SHAPES, trials_of={"KD": 1}),
}

# with the default data, numbers of clients and methods of `__init__.py`
exhibits["figure-2a"] = exhibit(
    headline=True,
    drawing="accuracy-and-size",
    title="Test accuracy against the number of clients, homogeneous",
    paired=True,
    place="section 4, figure 2a",
    caption=f"""Test accuracy and size of the global model against the number of clients J when each
        class is split evenly. {LINES_ARE_MEANS}""",
)
add_panels("figure-2", LINES_ARE_MEANS, headline=False, **PHOTOGRAPHS_AT)
exhibits["figure-2b"] |= exhibit(
    caption=f"""Test accuracy and size of the global model against the number of clients J when each
        class is divided by a draw from Dirichlet(0.2). {LINES_ARE_MEANS}""",
)
PANELS_CD_AT = {scale: {"cases": dict.fromkeys("cd", on)} for scale, on in PHOTOGRAPHS_AT.items()}
exhibits["figure-2"] = side_by_side(2, **PANELS_CD_AT)

TINY_DEPTHS = depths(4, [1, 2])
FEW_TRIALS = exhibit(trials=6, trials_of={"KD": 1})

exhibits["figure-3a"] = exhibit(
    drawing="accuracy-and-size",
    title="Test accuracy against the number of hidden layers, homogeneous",
    paired=True,
    place="section 4, figure 3a",
    caption=f"""Test accuracy and size of the global model against the number of hidden layers C of
        50 units, with J = 10 clients, when each class is split evenly. {LINES_ARE_MEANS}""",
    methods=[*DEEP_PFNM, *OTHERS],
    sweep=depths(10, [1, 2, 3, 4, 5, 6]),
    paper={"trials_of": {"KD": 1}},
    quick={"trials_of": {"KD": 2}},
    tiny={"sweep": TINY_DEPTHS},
)
add_panels("figure-3", LINES_ARE_MEANS, paper=FEW_TRIALS, scales=["paper"])
FEW_IN_CD = {"cases": dict.fromkeys("cd", FEW_TRIALS), "trials_of": {"KD": 1}}
exhibits["figure-3"] = side_by_side(3, paper=FEW_IN_CD, scales=["paper"])

ALL_UNITS = with_changes(CONCATENATION, "all clients' units")
OF_ALL = f"their share of all clients' units side by side. {LINES_ARE_MEANS}"


def sizes_along(key: str, x_label: str) -> Entry:
    """Return keys to draw hidden units, in number and as a share of the clients', against `key`."""
    panel: Entry = {"metric": "hidden_units", "along": key, "x_label": x_label, "zero": True}
    share = {**panel, "of": "all clients' units", "title": "Share of all clients' units"}
    return component("lines", panels=[{**panel, "title": "Hidden units, global model"}, share])


exhibits["s-figure-2a"] = exhibit(
    drawing=sizes_along("clients", "clients J"),
    title="Size of PFNM's global model against the number of clients",
    place="supplement 4.2, figure 2a",
    caption=f"Hidden units that PFNM ends with in figure 2, and {OF_ALL}",
    methods=[pfnm_chosen(SIGMA2), ALL_UNITS],
    cases=PANELS_AB,
)
exhibits["s-figure-2b"] = exhibit(
    exhibits["s-figure-2a"],
    drawing=sizes_along("hidden", "hidden layers C"),
    title="Size of PFNM's global model against the number of hidden layers",
    place="supplement 4.2, figure 2b",
    caption=f"Hidden units, over all layers, that PFNM ends with in figure 3, and {OF_ALL}",
    sweep=depths(10, [1, 2, 3, 4, 5, 6]),
    methods=[*DEEP_PFNM, ALL_UNITS],
    tiny={"sweep": TINY_DEPTHS},
)

ONE_ROUND = [pfnm_chosen(SIGMA2), U_ENS, W_ENS]


def by_minibatches(**rounds: int) -> list[Entry]:
    """Return one-shot methods, and downpour SGD of a minibatch a round with more keys `rounds`."""
    by_minibatch = with_changes(D_SGD, **rounds, minibatches=1, paired_with="U-Ens")
    return [
        with_changes(by_minibatch, "D-SGD, a step per message"),
        with_changes(by_minibatch, "D-SGD, messages averaged", messages="averaged"),
        *ONE_ROUND,
        DISTILLATION,
    ]


exhibits["s-figure-3a"] = exhibit(
    drawing="accuracy-against-rounds",
    title="Downpour SGD with frequent communication, heterogeneous",
    paired=True,
    place="supplement 4.2, figure 3a",
    caption="""Test accuracy of downpour SGD as rounds of communication go by, each after one
        minibatch of every client; methods that communicate once are level lines.""",
    partition=HETEROGENEOUS,
    sweep=clients(25),
    methods=by_minibatches(rounds=8000, measure_every=40, trials=5),
    quick={"sweep": clients(20), "methods": by_minibatches(rounds=400, measure_every=5)},
    tiny={"sweep": clients(4), "methods": by_minibatches(rounds=7, measure_every=3)},
)

D_SGD_BY_EPOCHS = with_changes(
    D_SGD, "D-SGD, rounds of an epoch", rounds=1000, measure_every=10, trials=2, paired_with="U-Ens"
)
exhibits["s-figure-3a-epochs"] = exhibit(
    exhibits["s-figure-3a"],
    title="Downpour SGD with frequent communication, rounds of an epoch",
    place="supplement 4.2, figure 3a, another reading",
    caption="As figure 3a of the supplement, with rounds of an epoch, which is 75 minibatches.",
    methods=[D_SGD_BY_EPOCHS, *ONE_ROUND],
    scales=["paper"],
)


def streaming(sigma2: list[float], of_downpour: dict[str, int], **steps: int) -> list[Entry]:
    return [
        component(
            "pfnm_streaming", "PFNM-Streaming", **steps, sigma2=sigma2, choose="pooled_train"
        ),
        component("uniform_ensemble_streaming", "U-Ens", **steps),
        component("weighted_ensemble_streaming", "W-Ens", **steps),
        component("downpour_streaming", "D-SGD", **steps, **of_downpour),
    ]


exhibits["s-figure-3b"] = exhibit(
    drawing=component("accuracy-against-rounds", x_label="step of the stream"),
    title="Data that arrive in steps, heterogeneous",
    place="supplement 4.2, figure 3b",
    caption="""Test accuracy after each of 15 steps, in which each client's data arrive in equal
        parts. Bands are one standard deviation over trials.""",
    partition=HETEROGENEOUS,
    sweep=clients(3),
    methods=streaming([0.01, 0.1, 1.0, 10.0], {}),
    notes=[
        """sigma2 is one for the whole stream, chosen from a grid that the paper does not give by
            the training accuracy of the last step's network on all data.""",
        """A client trains ten epochs on each part, and its optimiser starts anew. Downpour SGD has
            ten rounds of an epoch in each step.""",
        """The noise on the units from which a client starts a step has a standard deviation of
            0.01; the paper gives none. One unit is fresh in each start.""",
        "Equation (11) has no meaning at the first step, which takes (9) instead.",
    ],
    tiny={"methods": streaming([0.1, 1.0], {"rounds": 2}, steps=3)},
)


def every(sigma2: list[float], sigma02: list[float], gamma0: list[float]) -> list[Entry]:
    """Return PFNM with every combination of values, whose results all appear in the figure."""
    grid = {"sigma2": sigma2, "sigma02": sigma02, "gamma0": gamma0}
    return [component("pfnm", "PFNM", show=list(grid), **grid)]


exhibits["s-figure-4a"] = exhibit(
    drawing="heat-maps",
    title="Sensitivity of PFNM to σ², σ₀² and γ₀, homogeneous",
    place="supplement 4.3, figure 4a",
    caption="""Training accuracy and size of the global model over every pair of the parameters; a
        map holds the third at its default, which its heading names. Means over trials.""",
    sweep=clients(25),
    methods=every([0.01, 0.1, 0.5, 1.0, 5.0], [1.0, 5.0, 10.0, 50.0], [0.001, 1.0, 10.0, 50.0]),
    notes=["The values are ours; they hold those of the authors' code."],
    quick=exhibit(sweep=clients(10), trials=3),
    tiny=exhibit(sweep=clients(4), methods=every([0.1, 1.0], [1.0, 10.0], [1.0, 50.0])),
)
add_panels("s-figure-4", paper={"trials": 5}, scales=["paper"])

exhibits["s-figure-5a"] = exhibit(
    drawing="heat-maps",
    title="Sensitivity of PFNM to σ² as clients grow in number, homogeneous",
    place="supplement 4.3, figure 5a",
    caption="Training accuracy and global model size for every σ² and number of clients.",
    methods=[pfnm_each(SIGMA2)],
)
add_panels("s-figure-5", scales=["paper"])
