"""Figures of supplement 4: size of PFNM's model, downpour SGD, streaming data, parameters."""

from __future__ import annotations

from fedrepro.papers.pfnm.exhibits.common import (
    AS_IN_CODE,
    CHOSEN,
    CHOSEN_DEEP,
    CONCATENATION,
    D_SGD,
    DEEP_PFNM,
    DISTILLATION,
    HETEROGENEOUS,
    HOMOGENEOUS,
    PANELS,
    PHOTOGRAPHS,
    SHAPES,
    SHAPES_STAND_IN,
    SIGMA2,
    U_ENS,
    W_ENS,
    clients,
    depths,
    pfnm_chosen,
    pfnm_each,
)
from fedrepro.planning.exhibit_settings import (
    Entry,
    ExhibitData,
    component,
    exhibit,
    text,
    with_changes,
)

ALL_UNITS = with_changes(CONCATENATION, "all clients' units")


SIZES_NOTES = [
    text("""
        The networks are those of the accuracy figures; nothing is trained for this one.
        Sizes on CIFAR-10 are in figures 2c, 2d, 3c and 3d.
    """),
]


def s_figure_2a() -> ExhibitData:
    return exhibit(
        drawing="size",
        title="Size of PFNM's global model against the number of clients",
        place="supplement 4.2, figure 2a",
        caption=text("""
            Hidden units that PFNM ends with in figure 2, and their share of all clients' units side
            by side. Lines are means over trials, bands one standard deviation.
        """),
        partition=HOMOGENEOUS,
        methods=[pfnm_chosen(SIGMA2), ALL_UNITS],
        cases={"a": PANELS["a"], "b": PANELS["b"]},
        notes=[CHOSEN, *SIZES_NOTES],
    )


def s_figure_2b() -> ExhibitData:
    return exhibit(
        s_figure_2a(),
        title="Size of PFNM's global model against the number of hidden layers",
        place="supplement 4.2, figure 2b",
        caption=text("""
            Hidden units, over all layers, that PFNM ends with in figure 3, and their share of all
            clients' units side by side. Lines are means over trials, bands one standard deviation.
        """),
        sweep=depths(10, [1, 2, 3, 4, 5, 6]),
        methods=[*DEEP_PFNM, ALL_UNITS],
        notes=[CHOSEN_DEEP, *SIZES_NOTES],
        at={"tiny": {"sweep": depths(4, [1, 2])}},
    )


# ------------------------------------------------------------------------ rounds and steps
D_SGD_IN_ROUNDS = with_changes(D_SGD, paired_with="U-Ens")
ONE_ROUND = [pfnm_chosen(SIGMA2), U_ENS, W_ENS]


def s_figure_3a() -> ExhibitData:
    def methods(**rounds: int) -> list[Entry]:
        """List the methods; `rounds` has trials of downpour SGD, and how often it is measured."""
        by_minibatch = with_changes(D_SGD_IN_ROUNDS, **rounds, minibatches=1)
        return [
            with_changes(by_minibatch, "D-SGD, a step per message"),
            with_changes(by_minibatch, "D-SGD, messages averaged", messages="averaged"),
            *ONE_ROUND,
            DISTILLATION,
        ]

    return exhibit(
        drawing="accuracy-against-rounds",
        title="Downpour SGD with frequent communication, heterogeneous",
        paired=True,
        place="supplement 4.2, figure 3a",
        caption=text("""
            Test accuracy of downpour SGD as rounds of communication go by, each after one minibatch
            of every client; methods that communicate once are level lines.
        """),
        partition=HETEROGENEOUS,
        sweep=clients(25),
        methods=methods(rounds=8000, measure_every=40, trials=5),
        notes=[
            text("""
                The paper does not say how much a client computes in one of more than 4000 rounds.
                Rounds of an epoch are those of figure 2, but so many would be far more training
                than the paper names elsewhere, so a round is one minibatch of 32 at each client
                here. Rounds of an epoch, 75 times the work, are in s-figure-3a-epochs.
            """),
            text("""
                The paper does not say whether the master takes a step on every message or one on
                the mean of a round's messages; both are drawn.
            """),
            CHOSEN,
            AS_IN_CODE,
        ],
        at={
            "quick": {"sweep": clients(20), "methods": methods(rounds=400, measure_every=5)},
            "tiny": {"sweep": clients(4), "methods": methods(rounds=7, measure_every=3)},
        },
    )


def s_figure_3a_epochs() -> ExhibitData:
    def methods(**rounds: int) -> list[Entry]:
        return [with_changes(D_SGD_IN_ROUNDS, "D-SGD, rounds of an epoch", **rounds), *ONE_ROUND]

    return exhibit(
        s_figure_3a(),
        title="Downpour SGD with frequent communication, rounds of an epoch",
        place="supplement 4.2, figure 3a, another reading",
        caption=text("""
            As figure 3a of the supplement, each round after an epoch of every client's data, which
            is 75 minibatches.
        """),
        methods=methods(rounds=1000, measure_every=10, trials=2),
        notes=[
            text("""
                Rounds of an epoch cost most, so they are fewer than in figure 3a of the supplement,
                in two trials at the paper's size.
            """),
            CHOSEN,
            AS_IN_CODE,
        ],
        at={
            "quick": {"sweep": clients(20), "methods": methods(rounds=200, measure_every=5)},
            "tiny": {"sweep": clients(4), "methods": methods(rounds=4, measure_every=2)},
        },
    )


def s_figure_3b() -> ExhibitData:
    pfnm = component("pfnm_streaming", "PFNM-Streaming", choose="pooled_train")
    uniform = component("uniform_ensemble_streaming", "U-Ens")
    weighted = component("weighted_ensemble_streaming", "W-Ens")
    downpour = component("downpour_streaming", "D-SGD")
    return exhibit(
        drawing=component("accuracy-against-rounds", x_label="step of the stream"),
        title="Data that arrive in steps, heterogeneous",
        place="supplement 4.2, figure 3b",
        caption=text("""
            Test accuracy after each of 15 steps, in which each client's data arrive in equal parts.
            Bands are one standard deviation over trials.
        """),
        partition=HETEROGENEOUS,
        sweep=clients(3),
        methods=[with_changes(pfnm, sigma2=[0.01, 0.1, 1.0, 10.0]), uniform, weighted, downpour],
        notes=[
            text("""
                sigma2 is one for the whole stream, chosen from a grid that the paper does not give
                by the training accuracy of the last step's network on all data.
            """),
            text("""
                A client trains ten epochs on each part, as on its whole data elsewhere; its
                optimiser starts anew. Downpour SGD has ten rounds of an epoch in each step.
            """),
            text("""
                The noise that is added to the units a client starts a step from has a standard
                deviation of 0.01; the paper gives none. One unit is fresh in each start.
            """),
            "Equation (11) has no meaning at the first step, which takes (9) instead.",
            "The weighted ensemble weighs by all examples that a client has seen so far.",
        ],
        at={
            "tiny": {
                "methods": [
                    with_changes(pfnm, steps=3, sigma2=[0.1, 1.0]),
                    with_changes(uniform, steps=3),
                    with_changes(weighted, steps=3),
                    with_changes(downpour, steps=3, rounds=2),
                ]
            }
        },
    )


# ------------------------------------------------------------------------ parameters of PFNM
# PFNM with every combination of the values that it is given
PFNM_GRID = component("pfnm", "PFNM", show=["sigma2", "sigma02", "gamma0"])


def smaller_sensitivity(*data: ExhibitData) -> dict[str, ExhibitData]:
    """Return what small scales change in figure 4, with other data where these are given."""
    few = with_changes(PFNM_GRID, sigma2=[0.1, 1.0], sigma02=[1.0, 10.0], gamma0=[1.0, 50.0])
    return {
        "quick": exhibit(*data, sweep=clients(10), trials=3),
        "tiny": exhibit(*data, sweep=clients(4), methods=[few]),
    }


VALUES_AND_CODE = text("""
    The values are ours; they hold those of the authors' code (σ² 0.1, 0.5, 1; σ₀² 1, 10; γ₀ 0.001,
    1, 50).
""")


def s_figure_4a() -> ExhibitData:
    return exhibit(
        drawing="heat-maps",
        title="Sensitivity of PFNM to σ², σ₀² and γ₀, homogeneous",
        place="supplement 4.3, figure 4a",
        caption=text("""
            Training accuracy and size of the global model over every pair of the three parameters;
            a map holds the third at its default, which its heading names. Means over trials.
        """),
        partition=HOMOGENEOUS,
        sweep=clients(25),
        methods=[
            with_changes(
                PFNM_GRID,
                sigma2=[0.01, 0.1, 0.5, 1.0, 5.0],
                sigma02=[1.0, 5.0, 10.0, 50.0],
                gamma0=[0.001, 1.0, 10.0, 50.0],
            )
        ],
        notes=[
            VALUES_AND_CODE,
            text("""
                All settings are matched from the same local networks, which are those of figure 2
                at J = 25.
            """),
            AS_IN_CODE,
        ],
        at=smaller_sensitivity(),
    )


def s_figure_4b() -> ExhibitData:
    return exhibit(
        s_figure_4a(),
        title="Sensitivity of PFNM to σ², σ₀² and γ₀, heterogeneous",
        place="supplement 4.3, figure 4b",
        caption=text("""
            As figure 4a of the supplement, when each class is divided by a draw from
            Dirichlet(0.2).
        """),
        partition=HETEROGENEOUS,
    )


def s_figure_4c() -> ExhibitData:
    return exhibit(
        s_figure_4a(),
        PHOTOGRAPHS,
        title="Sensitivity of PFNM to σ², σ₀² and γ₀, colour pictures, homogeneous",
        place="supplement 4.3, figure 4c",
        caption="As figure 4a of the supplement, on colour pictures.",
        notes=[
            VALUES_AND_CODE,
            text("""
                All settings are matched from the same local networks, as those of figure 2 at
                J = 25. Trials are five at the paper's size, since each of the 80 settings predicts
                all training data: raise `trials` where there is time or a GPU.
            """),
            AS_IN_CODE,
            SHAPES_STAND_IN,
        ],
        at={"paper": {"trials": 5}, **smaller_sensitivity(SHAPES)},
    )


def s_figure_4d() -> ExhibitData:
    return exhibit(
        s_figure_4c(),
        title="Sensitivity of PFNM to σ², σ₀² and γ₀, colour pictures, heterogeneous",
        place="supplement 4.3, figure 4d",
        caption="As figure 4b of the supplement, on colour pictures.",
        partition=HETEROGENEOUS,
    )


VALUES_AND_NETWORKS = text("""
    The values of σ² are ours, those that it is chosen from elsewhere. The networks are those of
    figure 2.
""")


def s_figure_5a() -> ExhibitData:
    return exhibit(
        drawing="heat-maps",
        title="Sensitivity of PFNM to σ² as clients grow in number, homogeneous",
        place="supplement 4.3, figure 5a",
        caption=text("""
            Training accuracy and size of the global model for every σ² and number of clients. Means
            over trials.
        """),
        partition=HOMOGENEOUS,
        methods=[pfnm_each(SIGMA2)],
        notes=[VALUES_AND_NETWORKS, AS_IN_CODE],
    )


def s_figure_5b() -> ExhibitData:
    return exhibit(
        s_figure_5a(),
        title="Sensitivity of PFNM to σ² as clients grow in number, heterogeneous",
        place="supplement 4.3, figure 5b",
        caption=text("""
            As figure 5a of the supplement, when each class is divided by a draw from
            Dirichlet(0.2).
        """),
        partition=HETEROGENEOUS,
    )


def s_figure_5c() -> ExhibitData:
    return exhibit(
        s_figure_5a(),
        PHOTOGRAPHS,
        title="Sensitivity of PFNM to σ² as clients grow in number, colour pictures, homogeneous",
        place="supplement 4.3, figure 5c",
        caption="As figure 5a of the supplement, on colour pictures.",
        notes=[VALUES_AND_NETWORKS, AS_IN_CODE, SHAPES_STAND_IN],
        at={"quick": SHAPES, "tiny": SHAPES},
    )


def s_figure_5d() -> ExhibitData:
    return exhibit(
        s_figure_5c(),
        title="Sensitivity of PFNM to σ² as clients grow in number, colour pictures, heterogeneous",
        place="supplement 4.3, figure 5d",
        caption="As figure 5b of the supplement, on colour pictures.",
        partition=HETEROGENEOUS,
    )
