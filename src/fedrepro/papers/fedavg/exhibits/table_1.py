"""Table 1, for the perceptron, which is the default model, and the convolutional network."""

from typing import Any

from fedrepro.planning.exhibit_config import Entry, ExhibitData, component, exhibit, with_changes

exhibits: dict[str, ExhibitData] = {}
Rounds = dict[float, int]  # share of clients C -> when a run ends at the latest

MNIST = component("mnist")
CENTRED = with_changes(MNIST, features="centred")  # pixels from −0.5 to 0.5
CNN = component("cnn")

IID = component("iid", clients=100, validation=500)
SHARDS = with_changes(IID, name="shards")
QUICK_CLIENTS = {"clients": 20, "validation": 100}
TINY_CLIENTS = {"clients": 8, "validation": 100}

WHOLE = {"batch_size": None}  # B = ∞: a minibatch is all that a client has
RATES = [0.05, 0.1, 0.2]
THREE_RATES = [0.1, 0.147, 0.215]
FIVE_RATES = [0.1, 0.147, 0.215, 0.316, 0.464]
ELEVEN_RATES = [0.01, 0.0158, 0.0251, 0.0398, 0.0631, 0.1, 0.158, 0.251, 0.398, 0.631, 1.0]
WHOLE_RATES = [0.1, 0.3, 0.5]  # where B = ∞

# how a learning rate is chosen where none is stopped early
SECOND_HALF = {"metric": "accuracy", "split": "server_validation", "over": "half"}

EVERY = "Accuracy is measured after every round up to 50, then every 2 %, and is linear between."
ENDS = f"""A run ends where test accuracy reaches the target: that is what is measured. {EVERY} What
    is not reached in 1.5 times the printed rounds is more than that."""
WEIGHTS = "Weights start uniform within one over the root of a layer's inputs."
MEASURED = f"{WEIGHTS} {EVERY}"
AT_SERVER = "by accuracy on 500 training examples at the server, which no client holds"
CHOSEN = [
    f"""Learning rates are constant, and chosen from 0.05, 0.1 and 0.2, for the perceptron with
        B = ∞ from 0.1, 0.3 and 0.5, {AT_SERVER}, so that a client has 595 and not 600. The paper
        took the best of 11 to 13 for each cell by its number of rounds to the target.""",
    ENDS,
    "E = 5 with C = 0.1 stands in tables 1 and 2 with different numbers: one run serves both.",
    f"{WEIGHTS} One trial, as printed.",
]
TO_THE_END = [
    """Pixels go from −0.5 to 0.5, the range of table 1's perceptron whose rounds are nearer to
        print (table-1-iid-10 says by which rule).""",
    f"""Learning rates are constant: 0.1, 0.147 and 0.215. Each runs until test accuracy reaches the
        target, or to 1.5 times the printed rounds. One is chosen {AT_SERVER}: its mean over the
        second half of the rounds that all three ran. FedSGD has 0.215 alone, for want of time.""",
    *CHOSEN[2:],
]

TWO_RANGES: dict[str, Entry] = {
    "as-stored": {"label": "pixels 0 to 1"},
    "centred": {"label": "pixels −0.5 to 0.5", "dataset": CENTRED},
}
ROWS: dict[str, Entry] = {
    "iid-inf": {"label": "IID, B = ∞", "training": WHOLE},
    "iid-10": {"label": "IID, B = 10"},
    "shards-inf": {"label": "non-IID, B = ∞", "partition": SHARDS, "training": WHOLE},
    "shards-10": {"label": "non-IID, B = 10", "partition": SHARDS},
}


def row(name: str, *methods: Entry) -> dict[str, Entry]:
    return {name: {**ROWS[name], **({"methods": list(methods)} if methods else {})}}


def minibatches(size: int | None, lr: list[float] = RATES) -> dict[str, Any]:
    return {"batch_size": size, "lr": lr}


def fedavg_until(target: float, label: str, **parameters: Any) -> Entry:
    """Return FedAvg that trains to test accuracy `target`; worse learning rates stop early."""
    ending = {"choose": "race", "measure_every": "auto", "until": target}
    return component("fedavg", label, **parameters, **ending)


def by_fraction(target: float, rounds: Rounds, lr: list[float] = RATES, **parameters: Any) -> Entry:
    """Return FedAvg to accuracy `target`, rates `lr`; `rounds` is {share C: most rounds to run}."""
    parameters["settings"] = [{"fraction": c, "rounds": last} for c, last in rounds.items()]
    return fedavg_until(target, "FedAvg", training={"lr": lr}, show=["fraction"], **parameters)


def to_the_end(*methods: Entry) -> list[Entry]:
    """Return entries that try THREE_RATES; mean accuracy in the second half of rounds selects."""
    return [
        with_changes(one, choose=SECOND_HALF, training={**one["training"], "lr": THREE_RATES})
        for one in methods
    ]


def rounds_table(rows: str, columns: str) -> Entry:
    shown = {"metric": "rounds_to_target", "split": "", "sizes": False, "best": "none"}
    return component("table", rows=[rows], columns=[columns], **shown)


UNTIL_97: dict[str, Rounds] = {
    "iid-10": {0.0: 474, 0.1: 131, 0.2: 116, 0.5: 113, 1.0: 105},
    "iid-inf": {0.0: 2183, 0.1: 2211, 0.2: 2487},
    "shards-10": {0.0: 4913, 0.1: 996, 0.2: 929, 0.5: 665, 1.0: 570},
    "shards-inf": {0.0: 6417, 0.1: 2694, 0.2: 2292},
}


def smaller(
    target: float, rounds: Rounds, clients: Entry, rates: list[float], whole: list[float]
) -> ExhibitData:
    """Return the keys to change in table 1 for a small test run.

    FedAvg trains to accuracy `target`; `rounds` is {share C of clients: most rounds}; `clients` is
    the partition of non-IID rows; `rates` are learning rates, `whole` those for B = ∞ (all data).
    """
    small, of_whole = ([by_fraction(target, rounds, lr)] for lr in (rates, whole))
    cases = {
        "iid-inf": {"methods": of_whole},
        "shards-inf": {"partition": clients, "methods": of_whole},
        "shards-10": {"partition": clients, "methods": small},
    }
    return exhibit(methods=small, cases=cases)


TABLE_1 = exhibit(drawing=rounds_table("case", "fraction"), place="table 1")

exhibits["table-1"] = exhibit(
    TABLE_1,
    headline=True,
    title="Rounds to 97 % with the multilayer perceptron, by the share of clients in a round",
    caption="""Rounds of communication until test accuracy first reaches 97 % (at small scales less)
        with two hidden layers of 200 units (2NN), each client training for one epoch (E = 1) on
        minibatches of B examples; C is the share of clients in a round, 0 one client.""",
    methods=[by_fraction(0.97, UNTIL_97["iid-10"])],
    cases={
        **row("iid-inf", by_fraction(0.97, UNTIL_97["iid-inf"], WHOLE_RATES)),
        **row("iid-10"),
        **row("shards-inf", by_fraction(0.97, UNTIL_97["shards-inf"], WHOLE_RATES)),
        **row("shards-10", by_fraction(0.97, UNTIL_97["shards-10"])),
    },
    scales=["tiny", "quick", "paper"],
    quick=smaller(0.8, {0.0: 60, 0.2: 40}, QUICK_CLIENTS, [0.1, 0.2], [0.3, 0.5]),
    tiny=smaller(0.5, {0.0: 6, 0.5: 4}, TINY_CLIENTS, [0.1, 0.2], [0.1, 0.2]),
)

# in two ranges of pixels, with five learning rates that all run to the end
for name, rounds in UNTIL_97.items():
    which = ROWS[name]["label"].replace(",", " clients,")
    exhibits[f"table-1-{name}"] = exhibit(
        TABLE_1,
        title=f"Rounds to 97 % with the perceptron in two ranges of pixels, {which}",
        caption="As table-1, in two ranges of pixels; five rates run to the end, two trials."
        if name == "iid-10"
        else "As table-1-iid-10, for other clients or minibatches.",
        trials=2,
        partition=ROWS[name].get("partition", IID),
        training=ROWS[name].get("training", {"batch_size": 10}),
        methods=[with_changes(by_fraction(0.97, rounds, FIVE_RATES), choose=SECOND_HALF)],
        cases=TWO_RANGES,
        notes=[
            """The notes on the paper do not give the range of the pixels. That of print is taken to
                be the one whose rounds are nearer to print over all 16 cells of table 1: the mean
                of |ln(ours / printed)| is smaller, a target that is not reached counting as reached
                at the last round. This rule, fixed before any cell was computed, looks at print:
                what agrees in that range is calibrated by one choice of two.""",
            f"""Learning rates are constant, powers of the sixth root of ten from 0.1 to 0.464. One
                is chosen {AT_SERVER}: its mean over the second half of the rounds that all ran.""",
            MEASURED,
        ],
    )
for name, fraction in {"c0": 0.0, "c01": 0.1, "c02": 0.2}.items():
    last = {"rounds": UNTIL_97["shards-10"][fraction], "until": 0.97, "measure_every": "auto"}
    every_rate = component("fedavg", f"C = {fraction:g}", fraction=fraction, **last, show=["lr"])
    exhibits[f"table-1-shards-10-rates-{name}"] = exhibit(
        drawing=with_changes(rounds_table("method", "case"), rows=["method", "lr"]),
        title=f"Rounds to 97 % by learning rate and range of the pixels, C = {fraction:g}",
        place="table 1",
        caption="As table-1-shards-10, at eleven rates that run to the end, five trials.",
        partition=SHARDS,
        trials=5,
        methods=[with_changes(every_rate, training={"lr": ELEVEN_RATES})],
        cases=TWO_RANGES,
        notes=[
            """One of three cells (C = 0, 0.1, 0.2), which the readings take together. Learning
                rates are powers of the fifth root of ten from 0.01 to 1. What does not reach 97 %
                counts as its last round, 1.5 times the printed ones.""",
            """As in print the rate with the fewest rounds on the test set is taken, in each cell,
                range and trial. The mean over five trials has a 98.3 % interval (Student's t), so
                that the three cells together have one of 95 %.""",
            """Does the range account for print? Confirmed: with pixels from −0.5 to 0.5 the
                intervals of all three cells lie within 20 % of print (3275, 664 and 619 rounds),
                and with pixels from 0 to 1 all three outside. Refuted: with −0.5 to 0.5 some cell
                lies outside, or with 0 to 1 all three within. Else: not shown.""",
            """Does the range move the rounds, where each range has its own best rate? In each trial
                the fewest rounds with −0.5 to 0.5 are divided by those with 0 to 1. Confirmed: the
                interval of the mean logarithm lies above ln 1.5 in all three cells. Refuted: below
                in some cell. Else: not shown.""",
            f"These readings were fixed before any number of this exhibit. {MEASURED}",
        ],
    )


def to_99(rounds: Rounds) -> Entry:
    """Return FedAvg to 99 %, 5 epochs, at THREE_RATES; `rounds` is {share C: most rounds}."""
    return to_the_end(by_fraction(0.99, rounds, epochs=5))[0]


exhibits["table-1-cnn"] = exhibit(
    TABLE_1,
    title="Rounds to 99 % with the convolutional network, by the share of clients in a round",
    caption="As table-1, to 99 % with the convolutional network of 1,663,370 parameters, E = 5.",
    model=CNN,
    methods=[by_fraction(0.99, {0.0: 75, 0.1: 30, 0.2: 27}, epochs=5)],
    cases={**row("iid-10"), **row("iid-inf", by_fraction(0.99, {0.0: 581}, epochs=5))},
)

CENTRED_CNN = exhibit(TABLE_1, model=CNN, dataset=CENTRED, notes=TO_THE_END)
exhibits["table-1-cnn-centred"] = exhibit(
    CENTRED_CNN,
    title="Rounds to 99 % with the convolutional network, pixels from −0.5 to 0.5",
    caption="As table-1-cnn, with pixels from −0.5 to 0.5; three learning rates run to the end.",
    methods=[to_99({0.0: 75, 0.1: 30, 0.2: 27})],
    cases={**row("iid-10"), **row("iid-inf", to_99({0.0: 581}))},
)
ONE_A_ROUND = "for non-IID clients, one a round"
for name, which, share, ends, differing in (
    ("one-client", "shards-10", 0.0, 1434, ONE_A_ROUND),
    ("one-client-inf", "shards-inf", 0.0, 1772, ONE_A_ROUND),
    ("half", "iid-10", 0.5, 27, "with half of the clients in a round"),
    ("all", "iid-10", 1.0, 24, "with all clients in a round"),
    ("tenth", "shards-10", 0.1, 344, "for non-IID clients, a tenth of them in a round"),
    ("tenth-inf", "iid-inf", 0.1, 509, "for all data of a client as minibatch"),
):
    case = f"{ROWS[which]['label']}, C = {share:g}"
    exhibits[f"table-1-cnn-{name}"] = exhibit(
        CENTRED_CNN,
        title=f"Rounds to 99 % with the convolutional network, {case}",
        caption=f"As table-1-cnn-centred, {differing}.",
        methods=[to_99({share: ends})],
        cases=row(which),
    )
exhibits["table-1-cnn-rest"] = exhibit(
    CENTRED_CNN,
    title="Rounds to 99 % with the convolutional network, the cells of table 1 that cost most",
    caption="As table-1-cnn-centred, for the other values of C.",
    methods=[to_99({0.2: 506, 0.5: 246, 1.0: 369})],
    cases={
        **row("iid-inf"),
        **row("shards-inf", to_99({0.1: 1650, 0.2: 1467, 0.5: 1601})),
        **row("shards-10", to_99({0.2: 300, 0.5: 392, 1.0: 146})),
    },
)
