"""Table 1 with the perceptron of two hidden layers of 200 units, and FedSGD and FedAvg with it.

The claims of the paper are judged by these. The perceptron is the model of the file's defaults.
"""

from __future__ import annotations

from fedrepro.papers.fedavg.exhibits.common import (
    ENDS,
    IID,
    QUICK_CLIENTS,
    QUICK_SHARDS,
    SECOND_HALF,
    SHARDS,
    SMALL_RATES,
    TINY_CLIENTS,
    TINY_SHARDS,
    TWO_RANGES,
    WEIGHTS,
    WHOLE,
    case,
    fedavg_by_fraction,
    minibatches,
    rounds_table,
)
from fedrepro.planning.exhibit_settings import (
    Entry,
    ExhibitData,
    component,
    exhibit,
    text,
    with_changes,
)

# share of clients C -> when a run ends at the latest, for B = 10 and B = ∞
IID_10 = {0.0: 474, 0.1: 131, 0.2: 116, 0.5: 113, 1.0: 105}
IID_INF = {0.0: 2183, 0.1: 2211, 0.2: 2487}
SHARDS_10 = {0.0: 4913, 0.1: 996, 0.2: 929, 0.5: 665, 1.0: 570}
SHARDS_INF = {0.0: 6417, 0.1: 2694, 0.2: 2292}

WHOLE_RATES = [0.1, 0.3, 0.5]  # where B = ∞
FIVE_RATES = [0.1, 0.147, 0.215, 0.316, 0.464]
ELEVEN_RATES = [0.01, 0.0158, 0.0251, 0.0398, 0.0631, 0.1, 0.158, 0.251, 0.398, 0.631, 1.0]


def table_1() -> ExhibitData:
    iid_10 = fedavg_by_fraction(0.97, IID_10)
    iid_inf = fedavg_by_fraction(0.97, IID_INF, WHOLE_RATES)
    shards_10 = fedavg_by_fraction(0.97, SHARDS_10)
    shards_inf = fedavg_by_fraction(0.97, SHARDS_INF, WHOLE_RATES)
    return exhibit(
        headline=True,
        drawing=rounds_table("case", "fraction"),
        title="Rounds to 97 % with the multilayer perceptron, by the share of clients in a round",
        place="table 1",
        caption=text("""Rounds of communication until test accuracy first reaches 97 % with two
            hidden layers of 200 units (2NN), each client training for one epoch (E = 1) on
            minibatches of B examples; C is the share of the clients that train in a round, 0 one
            client. At small scales the target is lower, on other data."""),
        methods=[iid_10],
        cases={
            "iid-inf": case("IID, B = ∞", training=WHOLE, methods=[iid_inf]),
            "iid-10": case("IID, B = 10"),
            "shards-inf": case(
                "non-IID, B = ∞", partition=SHARDS, training=WHOLE, methods=[shards_inf]
            ),
            "shards-10": case("non-IID, B = 10", partition=SHARDS, methods=[shards_10]),
        },
        notes=[
            text("""Learning rates are constant, and chosen from three: 0.05, 0.1 and 0.2, and 0.1,
                0.3 and 0.5 where B = ∞. The paper took the best of 11 to 13 for each cell by its
                number of rounds to the target; here it is chosen by accuracy on 500 training
                examples at the server, which no client holds, so that a client has 595 and not
                600."""),
            ENDS,
            f"{WEIGHTS} One trial, as printed.",
        ],
        at={
            "quick": small_table_1(0.8, {0.0: 60, 0.2: 40}, QUICK_SHARDS, whole_rates=[0.3, 0.5]),
            "tiny": small_table_1(0.5, {0.0: 6, 0.5: 4}, TINY_SHARDS, whole_rates=SMALL_RATES),
        },
    )


def small_table_1(
    target: float, rounds: dict[float, int], shards: Entry, whole_rates: list[float]
) -> ExhibitData:
    """Return table 1 with lower targets on other data; `whole_rates` are step sizes if B = ∞."""
    minibatch = fedavg_by_fraction(target, rounds, SMALL_RATES)
    whole = fedavg_by_fraction(target, rounds, whole_rates)
    return exhibit(
        methods=[minibatch],
        cases={
            "iid-inf": {"methods": [whole]},
            "shards-inf": {"partition": shards, "methods": [whole]},
            "shards-10": {"partition": shards, "methods": [minibatch]},
        },
    )


def every_rate(rounds: dict[float, int]) -> Entry:
    """None of five learning rates is stopped early."""
    return with_changes(fedavg_by_fraction(0.97, rounds, FIVE_RATES), choose=SECOND_HALF)


def table_1_iid_10() -> ExhibitData:
    return exhibit(
        scales=["paper"],
        drawing=rounds_table("case", "fraction"),
        title="Rounds to 97 % with the perceptron in two ranges of pixels, IID clients, B = 10",
        place="table 1",
        caption=text("""As table-1, with pixels from 0 to 1 and from −0.5 to 0.5, five learning
            rates each, none of which is stopped early, and two trials."""),
        trials=2,
        methods=[every_rate(IID_10)],
        cases=TWO_RANGES,
        notes=[
            text("""The notes on the paper do not give the range of the pixels. That of print is
                taken to be the one of the two whose rounds are nearer to the printed ones over all
                16 cells of table 1 together: the mean of |ln(ours / printed)| is smaller, a target
                that is not reached counting as reached at the last round. This rule was fixed
                before any cell of these exhibits was computed; it looks at print, so that what
                agrees in that range is calibrated by one choice of two."""),
            text("""Learning rates are constant: 0.1 times powers of the sixth root of ten, from 0.1
                to 0.464. Each runs until test accuracy reaches the target, or to 1.5 times the
                printed rounds. One is chosen by accuracy on 500 training examples at the server,
                which no client holds: its mean over the second half of the rounds that all five
                ran."""),
            text(f"""{WEIGHTS} Accuracy is measured after every round up to 50, then every 2 %, and
                is linear between."""),
        ],
    )


def as_iid_10(
    which: str, rounds: dict[float, int], partition: Entry, batch_size: int | None
) -> ExhibitData:
    """table-1-iid-10 for other clients or minibatches."""
    return exhibit(
        table_1_iid_10(),
        title=f"Rounds to 97 % with the perceptron in two ranges of pixels, {which}",
        caption="As table-1-iid-10, for other clients or minibatches.",
        partition=partition,
        training={"batch_size": batch_size},
        methods=[every_rate(rounds)],
    )


def table_1_iid_inf() -> ExhibitData:
    return as_iid_10("IID clients, B = ∞", IID_INF, IID, None)


def table_1_shards_10() -> ExhibitData:
    return as_iid_10("non-IID clients, B = 10", SHARDS_10, SHARDS, 10)


def table_1_shards_inf() -> ExhibitData:
    return as_iid_10("non-IID clients, B = ∞", SHARDS_INF, SHARDS, None)


def rates_in_two_ranges(fraction: float) -> ExhibitData:
    """Decide whether the range of the pixels accounts for print, by the readings in its notes.

    The cells of the readings are an exhibit each, so that each is recorded when it is done.
    """
    to_the_end = component(
        "fedavg", measure_every="auto", until=0.97, training={"lr": ELEVEN_RATES}
    )
    return exhibit(
        scales=["paper"],
        drawing=with_changes(rounds_table("method", "case"), rows=["method", "lr"]),
        title=f"Rounds to 97 % by learning rate and range of the pixels, C = {fraction:g}",
        place="table 1",
        caption=text("""As table-1-shards-10, non-IID clients and B = 10, at eleven learning rates,
            each of which runs to the end, and in five trials."""),
        partition=SHARDS,
        trials=5,
        methods=[
            with_changes(
                to_the_end,
                f"C = {fraction:g}",
                fraction=fraction,
                rounds=SHARDS_10[fraction],
                show=["lr"],
            )
        ],
        cases=TWO_RANGES,
        notes=[
            text("""One of three cells (C = 0, 0.1, 0.2), each an exhibit, which the readings take
                together."""),
            text("""Learning rates are constant, powers of the fifth root of ten from 0.01 to 1. A
                run ends where test accuracy reaches 97 %, or at 1.5 times the printed rounds.
                What does not get there counts as its last round."""),
            text("""The paper ran 11 to 13 rates and took the one with the fewest rounds to the
                target on the test set. So what is judged is, of each cell, range and trial, the
                fewest rounds of the eleven rates: that rule carried out once, as in print. Its
                mean over five trials has a 98.3 % interval (Student's t), so that the three cells
                together have one of 95 %."""),
            text("""First question: does the range account for print? Confirmed: with pixels from
                −0.5 to 0.5 the intervals of all three cells lie within 20 % of print (3275, 664
                and 619 rounds), and with pixels from 0 to 1 those of all three lie outside.
                Refuted: with pixels from −0.5 to 0.5 the interval of some cell lies outside, or
                with pixels from 0 to 1 those of all three lie within. Else: not shown. A cell in
                which some trial does not get there at any rate lies within for no interval, and
                outside if its last round does."""),
            text("""Second question: does the range move the rounds where each range has its own
                best rate? In each trial the fewest rounds with −0.5 to 0.5 are divided by those
                with 0 to 1; the mean logarithm has such an interval too. Confirmed: in all three
                cells it lies above ln 1.5. Refuted: in some cell below. Else: not shown."""),
            text("""These readings were fixed before any number of this exhibit. Known were those of
                table-1-shards-10, with five rates from 0.1 to 0.464, chosen by validation, in two
                trials: 381 and 398 rounds with −0.5 to 0.5 for C = 0.1 and 0.2, 197 and 168 with 0
                to 1; with one client a round no rate got there with −0.5 to 0.5, and 0.1 took 1,472
                rounds with 0 to 1. So the first is expected to be refuted; rates below 0.1 are
                new."""),
            text(f"""{WEIGHTS} Accuracy is measured after every round up to 50, then every 2 %, and
                is linear between."""),
        ],
    )


def fedsgd_against_fedavg() -> ExhibitData:
    """Both after equally many rounds; every learning rate runs to the end."""
    paper = {"fraction": [0.0, 0.1], "rounds": 200}
    quick = {"fraction": [0.0, 0.2], "rounds": 40}
    tiny = {"fraction": [0.0, 0.5], "rounds": 3}
    both = component("fedavg", **paper, show=["fraction"], choose=SECOND_HALF, measure_every="auto")
    fedsgd = with_changes(both, "FedSGD", training=minibatches(None, [0.1, 0.3, 0.5, 0.8]))
    fedavg = with_changes(both, "FedAvg", training=minibatches(10, [0.05, 0.1, 0.2, 0.4]))
    return exhibit(
        drawing=component("table", rows=["method", "fraction"], columns=["case"], sizes=False),
        title="FedSGD and FedAvg after the same rounds, by the share of clients in a round",
        place="algorithm 1, the claims of page 1 and of the conclusion",
        caption=text("""Test accuracy after equally many rounds, 200 at the paper's size, with two
            hidden layers of 200 units. FedSGD takes one step a round along the gradient of all data
            of a client; FedAvg trains for an epoch on minibatches of 10. fraction is C, the share
            of the clients that train in a round."""),
        by_rounds=True,  # claim F2 is about them
        trials=5,
        methods=[fedsgd, fedavg],
        cases={
            "iid": case("IID"),
            "shards": case("non-IID", partition=SHARDS),
            "unbalanced": case(
                "unbalanced", partition=with_changes(IID, name="power_law", min_examples=50)
            ),
        },
        notes=[
            text("""The claims of the paper are judged by this exhibit, over ten trials at the
                paper's size: table 1 has one, as printed, which decides nothing."""),
            text("""Unbalanced clients have labels alike and sizes that fall off as one over their
                rank, from 50 examples on; the notes on the paper give no such partition."""),
            text("""Learning rates are constant, chosen from 0.05, 0.1, 0.2 and 0.4 (FedSGD: 0.1,
                0.3, 0.5 and 0.8) by accuracy on 500 training examples at the server, which no
                client holds: its mean over the second half of the rounds. Every rate runs to the
                end, since a race that looked once had stopped the best rate of FedSGD."""),
        ],
        at={
            # claim F5 was undecided with five, which said that about ten would decide
            "paper": exhibit(trials=10),
            "quick": exhibit(
                methods=[with_changes(fedsgd, **quick), with_changes(fedavg, **quick)],
                cases={
                    "shards": {"partition": QUICK_SHARDS},
                    "unbalanced": {"partition": {**QUICK_CLIENTS, "min_examples": 20}},
                },
            ),
            "tiny": exhibit(
                methods=[
                    with_changes(fedsgd, **tiny, training=minibatches(None, [0.1, 0.3])),
                    with_changes(fedavg, **tiny, training=minibatches(10, SMALL_RATES)),
                ],
                cases={
                    "shards": {"partition": TINY_SHARDS},
                    "unbalanced": {"partition": {**TINY_CLIENTS, "min_examples": 20}},
                },
            ),
        },
    )
