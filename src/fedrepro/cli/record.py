"""Commands that keep results under reports/record, and draw them again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedrepro.cli.printing import say

if TYPE_CHECKING:
    from fedrepro.planning.plan import Plan

Scale = Annotated[str, typer.Option(help="tiny, quick or paper")]


def planned(scale: str) -> Plan:
    """Return the plan of all exhibits of a scale."""
    from fedrepro.planning.config import load_config, load_exhibits
    from fedrepro.planning.plan import Plan

    return Plan(load_config(), load_exhibits(), scale)


def record(
    keys: Annotated[
        list[str] | None,
        typer.Argument(help="exhibits such as pfnm/figure-2a; none: all there are"),
    ] = None,
    scale: Scale = "quick",
    source: Annotated[Path, typer.Option(help="reports folder, also of another machine")] = Path(
        "reports"
    ),
    target: Annotated[Path, typer.Option(help="folder of the record")] = Path("reports/record"),
) -> None:
    """Keep results under reports/record: figures, numbers, provenance, run time."""
    from fedrepro.record.record_results import record as keep

    done = keep(scale, keys or (), source, target)
    for warning in done.warnings:
        say(f"warning: {warning}")
    for path in done.files:
        say(f"recorded: {path}")


def redraw(
    keys: Annotated[list[str], typer.Argument(help="recorded exhibits such as pfnm/figure-2a")],
    scale: Scale = "quick",
    source: Annotated[
        str | None, typer.Option(help="recorded exhibit that holds their numbers, if not their own")
    ] = None,
    target: Annotated[Path, typer.Option(help="folder of the record")] = Path("reports/record"),
) -> None:
    """Draw recorded exhibits again, as config and drawings are now, from the recorded numbers."""
    from fedrepro.stages.redraw import redraw as again

    for path in again(scale, keys, target, source).files:
        say(f"recorded: {path}")
