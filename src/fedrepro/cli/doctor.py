"""`fedrepro doctor`: describes this machine, whether it computes right, and what it lacks."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator

from fedrepro.core.diagnostics.machine_facts import ASKED, Observation, asked, environment, facts

SECONDS = 120  # for each library; all take some seconds, a minute under QEMU


def examine(say: Callable[[str], None]) -> int:
    """Check this machine and print each observation by `say`; return 1 if one is wrong, else 0."""
    wrong = []
    for what, words, is_wrong in (one for part in PARTS for one in part()):
        say(f"{what:19}{words}")
        wrong += [what] if is_wrong and what not in wrong else []
    say(f"Not all is well: see {', '.join(wrong)}." if wrong else "All is well.")
    return int(bool(wrong))


def computing(seconds: float = SECONDS) -> Iterator[Observation]:
    """Check in a process of its own that each numerical library computes right; yield the results.

    The process may crash, and is ended after `seconds`. It is forked, so that an emulator that runs
    this process also runs the check.
    """
    context = multiprocessing.get_context("fork")
    for what in ASKED:
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=lambda to=sender, of=what: to.send(list(asked(of))))
        process.start()
        sender.close()
        words = f"gave no answer for {seconds:g} s: is the machine busy?"
        try:
            if receiver.poll(seconds):
                yield from receiver.recv()
                continue
        except EOFError:
            process.join()
            words = (
                f"broke down (exit status {process.exitcode}): run `make env` again, or install "
                "builds for this processor"
            )
        finally:
            process.kill()
            process.join()
        yield Observation(what, words, wrong=True)
    yield environment()


PARTS: tuple[Callable[[], Iterator[Observation]], ...] = (facts, computing)
