"""An exhibit whose job is killed between any two of its files is made again."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from synthetic import plan, workplace, write_runs  # noqa: F401

from fedrepro.stages.figures_and_pages import draw_exhibit

KILLED = 9
TABLE = "dense/readme-cifar10"


def killed_at(file, work):
    """Whether a process that does the work died as it was to put its n-th file in place."""
    child = os.fork()
    if not child:
        whole, count = os.replace, 0

        def replace(part, target):
            nonlocal count
            count += 1
            if count == file:
                os._exit(KILLED)
            whole(part, target)

        os.replace = replace  # type: ignore[assignment]
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, KILLED)
    return code == KILLED


def files_in(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_an_exhibit_that_is_killed_between_its_files_is_made_again(workplace):  # noqa: F811
    made = plan()
    write_runs(made, TABLE)
    draw_exhibit(TABLE, made, Path("undisturbed/one"))
    due, died = files_in(Path("undisturbed")), 0
    folder = Path("killed")
    while killed_at(died + 1, lambda: draw_exhibit(TABLE, made, folder / "one")):
        died += 1
        left = files_in(folder) if folder.exists() else {}
        whole = {name: content for name, content in left.items() if not name.endswith(".tmp")}
        assert whole.items() <= due.items()
        assert len(whole) == died - 1
        draw_exhibit(TABLE, made, folder / "one")
        assert files_in(folder) == due
        shutil.rmtree(folder)
    assert died == len(due)
