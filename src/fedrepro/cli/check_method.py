"""`fedrepro check-method`: the needs, traffic and cost of a method, and the checks it passes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fedrepro.cli.printing import say, show, table_of

if TYPE_CHECKING:
    from fedrepro.stages.user_models.check_method import CheckedMethod


def check_method(
    method: Annotated[str, typer.Argument(help="a file, such as mine.py, or a method's name")],
    model: Annotated[
        str, typer.Option(help="network, such as resnet8+norm~batch or nets.py:Net")
    ] = "",
) -> None:
    """Check a method by the tests that every method passes, on digits: exit 1 if it fails one."""
    from fedrepro.stages.user_models import check_method as stage

    failed = 0
    for item in stage.methods_of(method):
        checked = stage.check_method(item, model)
        _show(checked)
        failed += not checked.passes
    raise typer.Exit(int(bool(failed)))


def _show(checked: CheckedMethod) -> None:
    """Print two tables: properties and costs, and the checks."""
    table = table_of("", f"{checked.item.name}: {checked.item.doc}")
    for name, text in _rows(checked):
        table.add_row(name, text)
    show(table)
    checks = table_of("check", "", "why not")
    for text, why in checked.findings:
        checks.add_row(text, "FAILS" if why else "passes", why)
    show(checks)
    broken = sum(1 for _, why in checked.findings if why)
    result = f"fails {broken} of" if broken else "passes all"
    low = f", but its accuracy on digits is {checked.at_chance}" if checked.at_chance else ""
    say(f"{checked.item.name}: {result} {len(checked.findings)} checks{low}")


def _rows(checked: CheckedMethod) -> list[tuple[str, str]]:
    """List properties, needs, traffic and costs, a row each."""
    from fedrepro.api import NEEDS
    from fedrepro.core.method_kinds import METHOD_KINDS
    from fedrepro.numbers.cost_words import megabytes, times
    from fedrepro.stages.user_models.method_contract import DIGITS

    meta, numbers = checked.item.meta, checked.numbers
    needs = [f"{NEEDS[need]} ({need})" for need in sorted(meta["needs"]) if need in NEEDS]
    kind = METHOD_KINDS[meta["kind"]]
    inputs = ["the clients' weights"] if kind.with_data else ["no data: it draws its own"]
    rows = [("kind", kind.words), ("sees", "; ".join([*inputs, *needs]))]
    if meta["merges"]:
        words = "averages running statistics with the weights, by its parameter batchnorm otherwise"
        rows.append(("BatchNorm", words))
    if meta["one_start"]:
        rows.append(("asks for", "models that trained from one start"))
    if not numbers:
        return rows
    up, down, models = numbers["bytes_up"], numbers["bytes_down"], numbers["models"]
    sent = f"{megabytes(up)} up, {times(up, models) or 'nothing'} the clients' models once"
    what = f"; beside models: {meta['sends']}" if meta["sends"] else ""
    count = f"{numbers['rounds']:.0f}"
    exchanges = f"; {count} exchange{'' if count == '1' else 's'}"
    rows.append(("sends", f"{sent}; {megabytes(down)} down{exchanges}{what}"))
    if numbers.get("passes"):
        rows.append(("reads", f"{numbers['passes']:.1f} times a client's examples beside training"))
    server, clients = numbers["seconds"], numbers["client_seconds"]
    rows.append(("takes", f"{server:.3f} s at the server, {clients:.3f} s at all clients"))
    networks = f" in {numbers['forward_passes']:.0f} networks or draws"
    per_client = models / 4 / checked.clients
    size = (
        f"{numbers['parameters']:,.0f} parameters, "
        f"{times(numbers['parameters'], per_client)} a client's"
    )
    rows.append(("makes", size + (networks if numbers["forward_passes"] > 1 else "")))
    after = f" after {checked.rounds} rounds" if checked.rounds else ""
    accuracy = (
        f"{100 * numbers['accuracy']:.1f} %{after}; clients alone {100 * numbers['alone']:.1f} %"
    )
    low = f"{checked.at_chance}; " if checked.at_chance else ""
    rows.append(("accuracy", f"{low}{accuracy} ({DIGITS})"))
    return rows
