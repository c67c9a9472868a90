"""Entry point: jobs go through argparse and load little; commands for people use typer."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Sequence

CONFIG = "config/config.yaml"
DEBUG = "--debug"
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")  # of libraries
MENDABLE = 2  # exit statuses: a person can correct it,
FAULT = 70  # it is a fault of the program (EX_SOFTWARE of sysexits.h),
STOPPED = 130  # Ctrl-C, as a shell has it,
NOBODY_READS = 141  # the reader of a pipe is gone, as a shell has it


def main(argv: Sequence[str] | None = None) -> int:
    """Run command line `argv` (None: this process's); print errors in words; return the status."""
    return _guarded(_there_or_here, sys.argv[1:] if argv is None else argv)


def run_here(arguments: Sequence[str]) -> int:
    """Run a command line in this process, print any error as a sentence; return the exit status."""
    return _guarded(_here, arguments)


def _guarded(run: Callable[[list[str]], int], arguments: Sequence[str]) -> int:
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        status = run(list(arguments))
        sys.stdout.flush()  # an error of writing is raised here, not when the interpreter ends
        return status
    except KeyboardInterrupt:
        print("fedrepro: stopped", file=sys.stderr)
        return STOPPED
    except (Exception, SystemExit) as error:
        if isinstance(error, BrokenPipeError) and not error.filename:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # for the interpreter's own last flush
            return NOBODY_READS
        from fedrepro.core.user_component_files import own_fault

        if isinstance(error, SystemExit) and not own_fault(error):
            raise  # else, whatever status a user's file asks for, it made nothing
        return _said(error, arguments)


def _said(error: BaseException, arguments: Sequence[str]) -> int:
    """Print an error in a sentence (a trace if `arguments` ask for it); return the exit status."""
    from fedrepro.core.errors import FedreproError, arose, sentence_for
    from fedrepro.core.user_component_files import own_fault

    sentence = error if isinstance(error, FedreproError) else sentence_for(error)
    own, in_log = own_fault(error.__cause__ or error), arguments[:1] == ["job"]
    if own and sentence is None:
        sentence = FedreproError(f"your file fails: {own}; `{DEBUG}` shows its whole trace")
    if DEBUG in arguments or (own and in_log):
        import traceback

        traceback.print_exc()
    said = f"this is a fault of the program ({arose(error)}): `{DEBUG}` behind the same command"
    fault = f"{said} shows where it arose; please report it with that"
    print(f"fedrepro: {sentence or fault}", file=sys.stderr)
    return MENDABLE if sentence else FAULT


def _there_or_here(arguments: list[str]) -> int:
    # asked before anything else is imported: a job that is handed over costs no imports
    if arguments[:1] == ["job"] and "FEDREPRO_PRELOADED" in os.environ:
        from fedrepro.cli.preload_client import run_preloaded

        status = run_preloaded(arguments)
        if status is not None:
            return status
    return _here(arguments)


def name_configured() -> None:
    """Let this process load users' methods, data sets, … from the files that config.yaml lists.

    They are under its key `components`, which the variable FEDREPRO_COMPONENTS, if set, overrides.
    """
    from fedrepro.core import user_component_files as component_files

    text = ""
    with contextlib.suppress(OSError), open(CONFIG, encoding="utf-8") as file:
        text = file.read()
    # reading yaml takes longer than all else here
    if component_files.NAMED in os.environ or "components" not in text:
        return
    from fedrepro.core.yaml_text import parse_yaml

    try:
        config = parse_yaml(text)
    except ValueError as error:
        print(f"{CONFIG} is not valid YAML, so no components are read: {error}", file=sys.stderr)
        return
    files = config.get("components") if isinstance(config, dict) else None
    if isinstance(files, list) and all(isinstance(file, str) for file in files):
        component_files.set_files(files)


def _here(command: list[str]) -> int:
    from fedrepro.core import kernel_pinning
    from fedrepro.core.provenance import loaded_source

    arguments = [argument for argument in command if argument != DEBUG]
    kernel_pinning.pin()
    loaded_source()  # files are stamped with the sources that are loaded from here on
    name_configured()
    if arguments[:1] == ["job"]:
        from fedrepro.cli.job import run_job

        return run_job(arguments[1:])
    # numerical libraries read this when they are loaded; on a busy machine their threads wait
    # for each other and can take ten times as long as one
    for name in THREADS:
        os.environ.setdefault(name, "1")
    from fedrepro.cli.app_and_general_commands import run_command

    return run_command(arguments)
