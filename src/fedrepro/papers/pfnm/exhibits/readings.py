"""Exhibits beyond the paper: other readings of its text, σ², and wide networks for downpour SGD."""

from __future__ import annotations

from fedrepro.papers.pfnm.exhibits.common import (
    BOTH,
    CHOSEN,
    CHOSEN_DEEP,
    D_SGD,
    DEEP_SIGMA2,
    DOWNPOUR,
    HETEROGENEOUS,
    HOMOGENEOUS,
    PHOTOGRAPHS,
    SHAPES,
    SIGMA2,
    U_ENS,
    UNMATCHED,
    W_ENS,
    clients,
    depths,
    pfnm_chosen,
    pfnm_each,
)
from fedrepro.planning.python_exhibits import (
    Entry,
    ExhibitData,
    component,
    exhibit,
    text,
    with_changes,
)

TWO_DATA_SETS: dict[str, Entry] = {
    "pictures": {"label": "heterogeneous"},
    "photographs": {"label": "heterogeneous", **PHOTOGRAPHS},
}
SHAPES_FOR_PHOTOGRAPHS = exhibit(cases={"photographs": {**SHAPES}})


def erratum_options() -> ExhibitData:
    return exhibit(
        drawing=component("table", best="none"),
        title="What the readings of PFNM's equations change",
        place="beyond the paper",
        caption=text("""
            Test accuracy in percent and hidden units under each reading of the popularity term, of
            the weights of classes and of the cap on counts, since text, derivation and the authors'
            code disagree; σ² is chosen for each.
        """),
        partition=HOMOGENEOUS,
        sweep=clients(10, 25),
        methods=[
            with_changes(
                pfnm_chosen(SIGMA2),
                popularity=[1.0, 2.0],
                class_weights=[True, False],
                count_cap=[10, None],
                show=["popularity", "class_weights", "count_cap"],
            )
        ],
        cases=BOTH,
        notes=[
            text("""
                The factor on the popularity term is 1 in the text and in the authors' code, and 2
                by derivation. Weights of classes and the cap are in the code only; a cap of 10 acts
                when there are more than 11 clients.
            """),
            CHOSEN,
        ],
        at={"quick": {"sweep": clients(5, 20)}, "tiny": {"sweep": clients(2, 4)}},
    )


def deep_sigma2() -> ExhibitData:
    return exhibit(
        drawing="table",
        title="What σ² does, with and without merging",
        place="beyond the paper",
        caption=text("""
            Test accuracy in percent and hidden units of PFNM, and of the same posterior with every
            unit on its own, for every σ² of figure 3; ten heterogeneous clients, networks of one,
            two and four hidden layers. Bold: the best of a column.
        """),
        partition=HETEROGENEOUS,
        sweep=depths(10, [1, 2, 4]),
        methods=[
            pfnm_each(DEEP_SIGMA2),
            component("unmatched", "unmatched", sigma2=DEEP_SIGMA2, show=["sigma2"]),
        ],
        cases=TWO_DATA_SETS,
        notes=[
            text("""
                sigma2 does two things: it decides what is merged, and against sigma02 it weighs a
                client's say on a class of which it has few examples. The unmatched rows show the
                second alone.
            """)
        ],
        at={
            "paper": {"cases": {"photographs": {"trials": 6}}},
            "quick": SHAPES_FOR_PHOTOGRAPHS,
            "tiny": exhibit(SHAPES_FOR_PHOTOGRAPHS, sweep=depths(4, [2])),
        },
    )


def merging_and_posterior() -> ExhibitData:
    values = [0.0001, 0.01, 1.0]
    return exhibit(
        drawing=component("table", best="none"),
        title="One σ² for merging and another for the posterior",
        place="beyond the paper",
        caption=text("""
            Test accuracy in percent and hidden units of PFNM with one σ² for both of its uses, and
            with one for what is matched and another for the means of what was matched; ten
            heterogeneous clients, networks of one, two and four hidden layers. Each row chooses
            among the same three values.
        """),
        partition=HETEROGENEOUS,
        sweep=depths(10, [1, 2, 4]),
        trials=5,
        methods=[
            with_changes(pfnm_chosen(values), "PFNM, one σ²"),
            component(
                "pfnm",
                "PFNM, σ² apart",
                settings=[
                    {"sigma2": merging, "posterior_sigma2": posterior}
                    for merging in values
                    for posterior in values
                ],
                choose="pooled_train",
            ),
            with_changes(UNMATCHED, sigma2=values, choose="pooled_train"),
            with_changes(U_ENS, reference=True),
        ],
        notes=[
            text("""
                The paper has one σ². Here the second sets the variance of the posterior means
                alone; what merges is decided as before.
            """),
            CHOSEN_DEEP,
        ],
        at={"quick": {"sweep": depths(10, [1, 2])}, "tiny": {"sweep": depths(4, [2]), "trials": 2}},
    )


def ensemble_readings() -> ExhibitData:
    return exhibit(
        drawing="accuracy-close-up",
        title="What the weighted ensemble weighs by",
        place="beyond the paper",
        caption=text("""
            Test accuracy of ensembles on heterogeneous clients. The supplement divides a client's
            examples of a class by everybody's of that class; section 4, to the letter, by all its
            own. Lines are means over trials, bands one standard deviation.
        """),
        partition=HETEROGENEOUS,
        methods=[U_ENS, W_ENS, with_changes(W_ENS, "W-Ens, share of the client", share="client")],
        cases=TWO_DATA_SETS,
        notes=[
            text("""
                The paper finds the weighted ensemble below the uniform one on heterogeneous
                CIFAR-10 (P11). Its two descriptions of the weights differ; both are drawn, from the
                local networks of figure 2.
            """)
        ],
        at={"quick": SHAPES_FOR_PHOTOGRAPHS, "tiny": SHAPES_FOR_PHOTOGRAPHS},
    )


def wider_downpour() -> ExhibitData:
    return exhibit(
        drawing="accuracy-close-up",
        title="Downpour SGD with wider networks",
        place="supplement 4.1, a sentence without a figure",
        caption=text("""
            Test accuracy of downpour SGD against the units of its hidden layer. Lines are means
            over trials, bands one standard deviation.
        """),
        partition=HOMOGENEOUS,
        sweep={**clients(25), "model.hidden": [[50], [100], [200], [400]]},
        methods=[D_SGD],
        cases=BOTH,
        notes=[
            "The paper names neither the widths nor the number of clients that it tried.",
            DOWNPOUR,
        ],
        at={
            "quick": {"sweep": clients(20)},
            "tiny": {"sweep": {**clients(4), "model.hidden": [[50], [100]]}},
        },
    )
