"""Entry point: stages go through argparse and load little; commands for people use typer."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run a stage or a command; a FedreproError becomes a sentence and exit code 2."""
    given = list(sys.argv[1:] if argv is None else argv)
    # asked before anything else is imported: a job that is handed over costs no imports
    if given[:1] == ["stage"] and "FEDREPRO_PRELOADED" in os.environ:
        from fedrepro.cli.preloaded import run_preloaded

        status = run_preloaded(given)
        if status is not None:
            return status
    return run_here(given)


def run_here(given: Sequence[str]) -> int:
    """Run a stage or a command in this process."""
    from fedrepro.core.errors import FedreproError, sentence_for

    debug = "--debug" in given
    given = [word for word in given if word != "--debug"]
    try:
        from fedrepro.core.provenance import loaded

        loaded()  # what is stamped into files is what is loaded from here on
        if given[:1] == ["stage"]:
            from fedrepro.cli.stage import run_stage

            return run_stage(given[1:])
        # numerical libraries read this when they are loaded; on a busy machine their threads wait
        # for each other and can take ten times as long as one
        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
            os.environ.setdefault(name, "1")
        from fedrepro.cli.people import run_command

        return run_command(given)
    except KeyboardInterrupt:
        print("fedrepro: stopped", file=sys.stderr)
        return 130
    except Exception as error:
        said = error if isinstance(error, FedreproError) else sentence_for(error)
        if said is None:
            raise
        if debug:
            import traceback

            traceback.print_exc()
        print(f"fedrepro: {said}", file=sys.stderr)
        return 2
