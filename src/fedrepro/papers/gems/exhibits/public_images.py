"""Tuning on public images: figures 3 and 4, and beyond the paper its step sizes and layers.

Figures are of one data set each and of all three, from the same runs.
"""

from __future__ import annotations

from typing import Any

from fedrepro.papers.gems.exhibits.common import (
    AVERAGED,
    CIFAR,
    DIGITS,
    FIVE,
    GEMS,
    HAM,
    LOCAL,
    NEURAL_GEMS,
    NOTES_OF_ALL,
    QUICK,
    TINY,
    UNTUNED_NOTES,
)
from fedrepro.papers.gems.exhibits.logistic import MNIST_LOGISTIC
from fedrepro.papers.gems.exhibits.networks import (
    CIFAR_NETWORKS,
    HAM_NETWORKS,
    HEADS,
    MNIST_NETWORKS,
)
from fedrepro.planning.python_exhibits import (
    Entry,
    ExhibitData,
    component,
    exhibit,
    text,
    with_changes,
)

RAW_NOTE = text("""
    What is trained on the sample alone (Raw) has 5 epochs at a step size of 0.001, as in the
    authors' code for logistic models; for networks it has up to 50, which tuning-scope shows.
""")
RAW = component("raw", "Raw")

# --------------------------------------------------------------------------------- figures 3 and 4
BY_IMAGES = exhibit(
    drawing=component("accuracy-close-up", x_label="public images"),
    caption=text("""
        Test accuracy after tuning on so many public images, and of a model trained on them alone
        (Raw). Means over five samples of each size and over trials, bands one standard deviation
        over trials.
    """),
    sweep={"tune.examples": [100, 200, 300, 400, 500, 600, 700, 800, 900, 1000]},
    at={
        "quick": exhibit(QUICK, sweep={"tune.examples": [100, 300, 1000]}),
        "tiny": exhibit(TINY, sweep={"tune.examples": [100, 1000]}),
    },
)


def tuned_on_samples(gems: Entry, layers: str) -> list[Entry]:
    """Tuned on five samples of each size; local models at 0.001 too, as in the authors' code."""
    tune: Entry = {"repetitions": 5, "epochs": 5, "lr": 0.01, "layers": layers}
    slow = with_changes(tune, lr=0.001, layers="all")
    return [
        with_changes(gems, "GEMS tuned", tune=tune),
        with_changes(AVERAGED, "Averaged tuned", tune=tune),
        with_changes(LOCAL, "Local tuned", tune=tune),
        with_changes(LOCAL, "Local tuned, 0.001", tune=slow),
        with_changes(RAW, tune=slow),
    ]


def figure_3(logistic: ExhibitData, data: str = "") -> ExhibitData:
    """Return figure 3; `data` is the end of its title, for data sets other than MNIST."""
    return exhibit(
        logistic,
        BY_IMAGES,
        title=f"Tuned logistic models against the number of public images{data}",
        place="section 4.4, figure 3",
        methods=tuned_on_samples(GEMS, "all"),
        notes=[RAW_NOTE, *logistic["notes"]],
    )


def figure_3_panels() -> ExhibitData:
    return panels(
        exhibit(figure_3(MNIST_LOGISTIC), notes=[RAW_NOTE, *NOTES_OF_ALL]),
        cases={
            "mnist": FIVE,
            "cifar10": with_changes(FIVE, dataset=CIFAR, parameters={"epsilon": 0.2}),
            "ham10000": with_changes(FIVE, dataset=HAM, parameters={"epsilon": 0.2}),
        },
    )


def figure_4(networks: ExhibitData, data: str = "") -> ExhibitData:
    return exhibit(
        networks,
        BY_IMAGES,
        title=f"Tuned networks against the number of public images{data}",
        place="section 4.4, figure 4",
        methods=tuned_on_samples(NEURAL_GEMS, "last"),
        notes=[RAW_NOTE, *networks["notes"]],
    )


def figure_4_panels() -> ExhibitData:
    cifar, ham = CIFAR_NETWORKS["parameters"], HAM_NETWORKS["parameters"]
    return panels(
        exhibit(figure_4(MNIST_NETWORKS), parameters={}, notes=[RAW_NOTE, HEADS, *NOTES_OF_ALL]),
        cases={
            "mnist": with_changes(FIVE, parameters=MNIST_NETWORKS["parameters"]),
            "cifar10": with_changes(FIVE, dataset=CIFAR, model={"hidden": [100]}, parameters=cifar),
            "ham10000": with_changes(FIVE, dataset=HAM, parameters=ham),
        },
    )


def panels(of_mnist: ExhibitData, cases: dict[str, dict[str, Any]]) -> ExhibitData:
    """Join the three data sets in one figure; at small scales digits stand in for each."""
    digits: dict[str, dict[str, Any]] = {
        "mnist": {"label": "as MNIST"},
        "cifar10": {"label": "as CIFAR-10", "dataset": DIGITS},
        "ham10000": {"label": "as HAM10000", "dataset": DIGITS},
    }
    at = of_mnist["at"]
    return exhibit(
        of_mnist,
        drawing=component("accuracy-close-up", x_label="public images"),
        cases=cases,
        at={"quick": exhibit(at["quick"], cases=digits), "tiny": exhibit(at["tiny"], cases=digits)},
    )


# ------------------------------------------------------------------------------- beyond the paper
RATES = [0.01, 0.001]


def tuning_scope() -> ExhibitData:
    tune: Entry = {"examples": 1000, "repetitions": 5, "epochs": 5, "lr": RATES}
    scope: Entry = {"tune": {**tune, "layers": ["all", "last"]}, "show": ["layers", "lr"]}
    longer: Entry = {"examples": 1000, "repetitions": 5, "epochs": 50, "patience": 3, "lr": RATES}
    return exhibit(
        MNIST_NETWORKS,
        drawing=component("table", rows=["method", "layers"], columns=["lr"], best="column"),
        title="What tuning moves, and how fast",
        place="beyond the paper; section 4.4 and the authors' code",
        caption=text("""
            Test accuracy in percent of networks of five clients after 5 epochs on 1,000 public
            images, by the step size and the layers that move; of what is trained on the images
            alone, for 5 epochs or up to 50. The text moves the last layer, the code all but that of
            the average, and local models at 0.001.
        """),
        methods=[
            with_changes(NEURAL_GEMS, "GEMS tuned", **scope),
            with_changes(AVERAGED, "Averaged tuned", **scope),
            with_changes(LOCAL, "Local tuned", **scope),
            with_changes(RAW, "Raw, 5 epochs", tune=tune, show=["lr"]),
            with_changes(RAW, "Raw, up to 50 epochs", tune=longer, show=["lr"]),
        ],
        notes=[HEADS, *UNTUNED_NOTES],
        at={"paper": {"trials": 5}},
    )


BY_EXAMPLES = exhibit(
    drawing=component("table", columns=["examples", "lr"]),
    place="beyond the paper; section 4.4",
    sweep={"tune.examples": [100, 1000]},
)


def at_both_rates(method: Entry, label: str, layers: str = "all", **changes: Any) -> Entry:
    """Tune a method on five samples with either step size; `changes` are those of its tuning."""
    tune = {"repetitions": 5, "epochs": 5, "lr": RATES, "layers": layers, **changes}
    return with_changes(method, label, tune=tune, show=["lr"])


def equal_steps() -> ExhibitData:
    return exhibit(
        BY_EXAMPLES,
        title="Tuning at equal step sizes",
        caption=text("""
            Test accuracy in percent of logistic models of five clients after 5 epochs on so many
            public images, each at both step sizes, and of what is trained on the images alone, for
            5 epochs or up to 50.
        """),
        methods=[
            at_both_rates(GEMS, "GEMS tuned"),
            at_both_rates(AVERAGED, "Averaged tuned"),
            at_both_rates(LOCAL, "Local tuned"),
            at_both_rates(RAW, "Raw"),
            at_both_rates(RAW, "Raw, up to 50 epochs", epochs=50, patience=3),
        ],
        notes=UNTUNED_NOTES,
    )


def equal_steps_networks() -> ExhibitData:
    code: Entry = {"repetitions": 5, "epochs": 50, "lr": 0.001, "layers": "all", "patience": 3}
    return exhibit(
        MNIST_NETWORKS,
        BY_EXAMPLES,
        title="Tuning of networks at equal step sizes",
        caption=text("""
            Test accuracy in percent of networks of five clients after 5 epochs on so many public
            images, of the last layer or of all, each at both step sizes, and of what is trained on
            the images alone, for 5 epochs or up to 50, the latter at 0.001 as the authors' code has
            it.
        """),
        methods=[
            at_both_rates(NEURAL_GEMS, "GEMS tuned", layers="last"),
            at_both_rates(AVERAGED, "Averaged tuned", layers="last"),
            at_both_rates(LOCAL, "Local tuned", layers="last"),
            at_both_rates(NEURAL_GEMS, "GEMS tuned, all layers"),
            at_both_rates(AVERAGED, "Averaged tuned, all layers"),
            at_both_rates(LOCAL, "Local tuned, all layers"),
            at_both_rates(RAW, "Raw"),
            at_both_rates(RAW, "Raw, up to 50 epochs", epochs=50, patience=3),
            with_changes(RAW, "Raw, as in the code", tune=code),
        ],
        notes=[HEADS, *UNTUNED_NOTES],
    )
