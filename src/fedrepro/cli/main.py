"""Entry point: stages go through argparse and load little; commands for people use typer."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence

from fedrepro.errors import FedreproError


def main(argv: Sequence[str] | None = None) -> int:
    """Run a stage or a command; a FedreproError becomes a sentence and exit code 2."""
    given = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in given
    given = [word for word in given if word != "--debug"]
    try:
        if given[:1] == ["stage"]:
            from fedrepro.cli.stage import run_stage

            return run_stage(given[1:])
        from fedrepro.cli.people import run_command

        return run_command(given)
    except FedreproError as error:
        if debug:
            traceback.print_exc()
        print(f"fedrepro: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("fedrepro: stopped", file=sys.stderr)
        return 130
