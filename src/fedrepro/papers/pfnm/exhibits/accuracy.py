"""Figures 2 and 3 of section 4: accuracy and size of the global model by clients and by depth."""

from __future__ import annotations

from fedrepro.papers.pfnm.exhibits.common import (
    AS_IN_CODE,
    CHOSEN,
    CHOSEN_DEEP,
    DEEP_PFNM,
    DOWNPOUR,
    HETEROGENEOUS,
    HOMOGENEOUS,
    OTHERS,
    PANELS,
    PHOTOGRAPHS,
    SHAPES,
    SHAPES_STAND_IN,
    depths,
)
from fedrepro.planning.python_exhibits import ExhibitData, exhibit, text

LINES_ARE_MEANS = "Lines are means over trials, bands one standard deviation."


def in_photograph_panels(changes: ExhibitData) -> ExhibitData:
    """Make these changes in panels c and d only."""
    return {"cases": {"c": {**changes}, "d": {**changes}}}


# ------------------------------------------------------------------------ figure 2: clients
PHOTOGRAPH_NOTES = [
    CHOSEN,
    DOWNPOUR,
    AS_IN_CODE,
    text("""
        Distillation, which costs most, has one trial on colour pictures at the paper's size: raise
        `trials_of` where there is time or a GPU.
    """),
    SHAPES_STAND_IN,
]
PHOTOGRAPHS_AT: dict[str, ExhibitData] = {
    "paper": {"trials_of": {"KD": 1}},
    "quick": exhibit(SHAPES, trials_of={"KD": 3}),
    "tiny": exhibit(SHAPES, trials_of={"KD": 1}),
}


def figure_2a() -> ExhibitData:
    """Return figure 2a with the default data, numbers of clients and methods of `__init__.py`."""
    return exhibit(
        headline=True,
        drawing="accuracy-and-size",
        title="Test accuracy against the number of clients, homogeneous",
        paired=True,
        place="section 4, figure 2a",
        caption=text("""
            Test accuracy and size of the global model against the number of clients J when each
            class is split evenly. Lines are means over trials, bands one standard deviation.
        """),
        partition=HOMOGENEOUS,
    )


def figure_2b() -> ExhibitData:
    return exhibit(
        figure_2a(),
        title="Test accuracy against the number of clients, heterogeneous",
        place="section 4, figure 2b",
        caption=text("""
            Test accuracy and size of the global model against the number of clients J when each
            class is divided by a draw from Dirichlet(0.2). Lines are means over trials, bands one
            standard deviation.
        """),
        partition=HETEROGENEOUS,
    )


def figure_2c() -> ExhibitData:
    return exhibit(
        figure_2a(),
        PHOTOGRAPHS,
        headline=False,
        title="Test accuracy against the number of clients, colour pictures, homogeneous",
        place="section 4, figure 2c",
        caption=f"As figure 2a, on colour pictures. {LINES_ARE_MEANS}",
        notes=PHOTOGRAPH_NOTES,
        at=PHOTOGRAPHS_AT,
    )


def figure_2d() -> ExhibitData:
    return exhibit(
        figure_2c(),
        title="Test accuracy against the number of clients, colour pictures, heterogeneous",
        place="section 4, figure 2d",
        caption=f"As figure 2b, on colour pictures. {LINES_ARE_MEANS}",
        partition=HETEROGENEOUS,
    )


def figure_2() -> ExhibitData:
    return exhibit(
        drawing="accuracy-close-up",
        title="Test accuracy against the number of clients",
        paired=True,
        place="section 4, figure 2",
        caption=text("""
            Figures 2a to 2d side by side: each class split evenly, or divided by a draw from
            Dirichlet(0.2), on two data sets. Lines are means over trials, bands one standard
            deviation.
        """),
        partition=HOMOGENEOUS,
        notes=PHOTOGRAPH_NOTES,
        cases=PANELS,
        at={scale: in_photograph_panels(changes) for scale, changes in PHOTOGRAPHS_AT.items()},
    )


# ------------------------------------------------------------------------ figure 3: hidden layers
ONE_SIGMA2 = text("""
    The paper has one sigma2 for all layers. Units of the top layer are compared by 11 numbers only,
    those of the lowest by hundreds, so a value that matches the lowest layer moderately leaves the
    top one at the width of one client. So the grid reaches down to a millionth, where next to
    nothing is merged, and a second line has a hundredth of sigma2 in the top layer, where there are
    several.
""")
DEEP_PHOTOGRAPH_NOTES = [
    CHOSEN_DEEP,
    ONE_SIGMA2,
    DOWNPOUR,
    AS_IN_CODE,
    text("""
        Distillation has 500 units in each hidden layer. It costs most, so it has one trial at the
        paper's size, and the rest has six: raise `trials_of` and `trials` where there is time or a
        GPU.
    """),
    SHAPES_STAND_IN,
]
TINY_DEPTHS = depths(4, [1, 2])
FEW_TRIALS = exhibit(trials=6, trials_of={"KD": 1})


def figure_3a() -> ExhibitData:
    return exhibit(
        drawing="accuracy-and-size",
        title="Test accuracy against the number of hidden layers, homogeneous",
        paired=True,
        place="section 4, figure 3a",
        caption=text("""
            Test accuracy and size of the global model against the number of hidden layers C of 50
            units, with J = 10 clients, when each class is split evenly. Lines are means over
            trials, bands one standard deviation.
        """),
        partition=HOMOGENEOUS,
        methods=[*DEEP_PFNM, *OTHERS],
        sweep=depths(10, [1, 2, 3, 4, 5, 6]),
        notes=[
            CHOSEN_DEEP,
            ONE_SIGMA2,
            text("""
                PFNM unmatched has sigma2 at 0.01, one for all points; what other values do to it is
                in deep-sigma2.
            """),
            DOWNPOUR,
            AS_IN_CODE,
            text("""
                Distillation has 500 units in each hidden layer. It costs most, so it may have fewer
                trials than the rest.
            """),
        ],
        at={
            "paper": {"trials_of": {"KD": 1}},
            "quick": {"trials_of": {"KD": 2}},
            "tiny": {"sweep": TINY_DEPTHS},
        },
    )


def figure_3b() -> ExhibitData:
    return exhibit(
        figure_3a(),
        title="Test accuracy against the number of hidden layers, heterogeneous",
        place="section 4, figure 3b",
        caption=text("""
            As figure 3a, when each class is divided by a draw from Dirichlet(0.2). Lines are means
            over trials, bands one standard deviation.
        """),
        partition=HETEROGENEOUS,
    )


def figure_3c() -> ExhibitData:
    return exhibit(
        figure_3a(),
        PHOTOGRAPHS,
        title="Test accuracy against the number of hidden layers, colour pictures, homogeneous",
        place="section 4, figure 3c",
        caption=f"As figure 3a, on colour pictures. {LINES_ARE_MEANS}",
        notes=DEEP_PHOTOGRAPH_NOTES,
        at={
            "paper": FEW_TRIALS,
            "quick": exhibit(SHAPES, trials_of={"KD": 2}),
            "tiny": exhibit(SHAPES, sweep=TINY_DEPTHS),
        },
    )


def figure_3d() -> ExhibitData:
    return exhibit(
        figure_3c(),
        title="Test accuracy against the number of hidden layers, colour pictures, heterogeneous",
        place="section 4, figure 3d",
        caption=f"As figure 3b, on colour pictures. {LINES_ARE_MEANS}",
        partition=HETEROGENEOUS,
    )


def figure_3() -> ExhibitData:
    tiny = in_photograph_panels(exhibit(SHAPES, trials_of={"KD": 1}))
    return exhibit(
        figure_3a(),
        drawing="accuracy-close-up",
        title="Test accuracy against the number of hidden layers",
        place="section 4, figure 3",
        caption=text("""
            Figures 3a to 3d side by side: each class split evenly, or divided by a draw from
            Dirichlet(0.2), on two data sets. Lines are means over trials, bands one standard
            deviation.
        """),
        notes=DEEP_PHOTOGRAPH_NOTES,
        cases=PANELS,
        at={
            "paper": exhibit(in_photograph_panels(FEW_TRIALS), trials_of={"KD": 1}),
            "quick": exhibit(in_photograph_panels(SHAPES), trials_of={"KD": 2}),
            "tiny": exhibit(tiny, sweep=TINY_DEPTHS),
        },
    )
