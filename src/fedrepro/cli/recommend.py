"""`fedrepro recommend`: names the methods to take."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedrepro.cli.printing import say, show, table_of
from fedrepro.core.errors import FedreproError

if TYPE_CHECKING:
    from rich.table import Table

    from fedrepro.numbers.recommendation import AfterRounds, Recommendation, RecommendedMethod

FAR = 3.0  # doublings, from which on scenarios say little


def recommend(
    clients: Annotated[int, typer.Option(help="how many you have")],
    skew: Annotated[
        str, typer.Option(help="alpha of Dirichlet shares, such as 0.1; iid; labels: a few each")
    ],
    exchanges: Annotated[int, typer.Option(help="how often clients can answer")] = 1,
    public: Annotated[
        str, typer.Option(help="none, or images: the server has unlabelled ones of other data")
    ] = "none",
    starts: Annotated[
        str, typer.Option(help="of your clients' training: one or different")
    ] = "one",
    only_models: Annotated[
        bool,
        typer.Option("--only-models", help="clients send models and how many examples they have"),
    ] = False,
    scale: Annotated[str, typer.Option(help="of the leaderboard")] = "paper",
    reports: Annotated[
        Path, typer.Option(help="folder of the leaderboard; none here: reports")
    ] = Path("reports/record"),
) -> None:
    """List methods in the best group of the leaderboard's nearest scenarios."""
    from fedrepro.numbers.recommendation import Situation, after_rounds
    from fedrepro.numbers.recommendation import recommend as recommended

    for name, value, known in (
        ("public", public, ("none", "images")),
        ("starts", starts, ("one", "different")),
    ):
        if value not in known:
            raise FedreproError(f"--{name} must be {known[0]} or {known[1]}, not '{value}'")
    wanted = Situation(clients, skew, exchanges, public == "images", starts == "one", only_models)
    _found(recommended(wanted, reports / scale))
    rounds = after_rounds(reports / scale)
    if rounds is None:
        return
    if exchanges == 1:
        say("With --exchanges above 1 methods that train in rounds stand beside these.")
    elif not wanted.one_start:
        say("Methods that train in rounds begin from one start; none is shown here.")
    else:
        _in_rounds(rounds, exchanges)


def _found(recommendation: Recommendation) -> None:
    """Print the nearest scenarios, the methods to take there, and their costs."""
    say("Nearest in the leaderboard:")
    for number, scenario in enumerate(recommendation.scenarios, 1):
        say(f"  {number}  {scenario}")
    if recommendation.doublings:
        far = ": they say little of it" if recommendation.doublings >= FAR else ""
        say(
            f"Their clients and alpha are {recommendation.doublings:.1f} doublings "
            f"from your case{far}."
        )
    heads = [str(number) for number in range(1, len(recommendation.scenarios) + 1)]
    table = table_of("class", "method", "score", "95 %", *heads, "sent", "asked")
    for entry in recommendation.choices:
        sent, asked = entry.costs["bytes_up"], entry.costs["exchanges"]
        _row(table, entry, entry.kind, f"{sent:.1f} ×", f"{asked:.0f}")
    shown = {choice.method for choice in recommendation.choices}
    for entry in recommendation.lines:
        if entry.method not in shown:
            _row(table, entry, "to compare", "", "")
    show(table)
    if not recommendation.choices:
        say("No method of the leaderboard makes do with that.")
    for entry in recommendation.choices:
        if isinstance(sent := entry.costs.get("clients_also_send"), str):
            say(f"{entry.method}: clients also send {sent}.")
        elif "client and class" in str(entry.costs.get("sees")):
            say(f"{entry.method}: clients also send how many examples of each class they have.")
    for name, count in recommendation.partly.items():
        say(
            f"{name} has no place: it was run in {count} of these "
            f"{len(recommendation.scenarios)} scenarios."
        )
    if recommendation.best_client_leads:
        say("The best client alone, by validation, has a higher score than every one model above.")
    for entry in recommendation.more:
        say(
            f"With more exchanges {entry.method} has a score of {entry.score:.2f}. It asks "
            f"{entry.costs['exchanges']:.0f} times and takes {entry.costs['bytes_up']:.1f} times "
            f"the bytes, and {_networks(entry.costs['networks'])}."
        )
    say(
        "Score: 0 is FedAvg, 1 is pooled training; the mean over these scenarios, and its 95 % "
        "interval over trials, which says nothing of other data. Below a scenario's number: test "
        "accuracy in %. Sent: as a multiple of the models. Asked: exchanges. Several models: all "
        "of the clients' networks predict."
    )


def _networks(count: object) -> str:
    return "one network predicts" if count == 1 else f"{count:.0f} networks predict"


def _row(table: Table, taken: RecommendedMethod, kind: str, *costs: str) -> None:
    from fedrepro.numbers.leaderboard import VERIFIED

    by_others = taken.costs.get("computed") == VERIFIED
    table.add_row(
        kind,
        f"{taken.method} ({VERIFIED})" if by_others else taken.method,
        f"{taken.score:.2f}",
        f"{taken.low:.2f} to {taken.high:.2f}",
        *("–" if math.isnan(share) else f"{100 * share:.1f}" for share in taken.accuracy),
        *costs,
    )


def _in_rounds(rounds: AfterRounds, exchanges: int) -> None:
    """Print a separate table, since its scenario and its local training differ."""
    say(
        f"Methods that train in rounds, test accuracy in %, {rounds.trials} trials. "
        f"{rounds.title}. That is one scenario, with another number of local epochs than above: "
        "compare the two tables with care."
    )
    every = sorted({number for reached in rounds.accuracy.values() for number in reached})
    shown = [number for number in every if number <= exchanges]
    heads = [f"{number} round{'s' if number > 1 else ''}" for number in shown]
    table = table_of("method in rounds", *heads)
    for method, reached in rounds.accuracy.items():
        numbers = (100 * reached.get(number, math.nan) for number in shown)
        table.add_row(method, *("–" if math.isnan(value) else f"{value:.1f}" for value in numbers))
    show(table)
