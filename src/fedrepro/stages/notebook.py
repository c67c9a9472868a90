"""From Python, as in a notebook: make a working folder, compute an exhibit, compare methods.

Only computing needs Snakemake.
"""

from __future__ import annotations

import os
import shutil
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrepro.core import plugins, source_digests
from fedrepro.core.errors import FedreproError
from fedrepro.numbers.exhibit_files import open_exhibit
from fedrepro.planning.config import load_config, load_exhibits
from fedrepro.planning.forecast import notes_of
from fedrepro.planning.plan import Plan
from fedrepro.stages.run_snakemake import WORKFLOW, compute, inside_folder

if TYPE_CHECKING:
    import pandas as pd

# the content of a new working folder
BEGINNING = ("Snakefile", "config", "workflow", "profiles", "envs")
INSTALLED = ".folder"  # in the package of a wheel; not part of its sources


def start(folder: str | Path = ".") -> Path:
    """Make a folder in which exhibits are computed: the configuration and the workflow.

    Raises:
        FedreproError: one of these exists already, since it may have been changed.
    """
    target, origin = Path(folder), _beginning()
    taken = [name for name in BEGINNING if (target / name).exists()]
    if taken:
        raise FedreproError(
            f"{target / taken[0]} is there already: name a folder that has none, or go on in it"
        )
    target.mkdir(parents=True, exist_ok=True)
    for name in BEGINNING:
        if (origin / name).is_dir():
            shutil.copytree(
                origin / name, target / name, ignore=shutil.ignore_patterns("__pycache__")
            )
        else:
            shutil.copy(origin / name, target / name)
    return target


def _beginning() -> Path:
    """Return the folder to copy: of the wheel, or of the checkout with the package."""
    package = Path(source_digests.PACKAGE)
    for place in (package / INSTALLED, *package.parents[1:2]):
        if (place / WORKFLOW).is_file():
            return place
    raise FedreproError(
        f"this fedrepro has no workflow at {package}: install it from its wheel, or from a checkout"
    )


def run(
    key: str | Path = "",
    scale: str = "quick",
    *,
    folder: str | Path = "",
    cores: int | None = None,
    profile: str = "",
    **words: Any,
) -> pd.DataFrame:
    """Compute an exhibit, such as pfnm/figure-2a, or a run, and return its numbers.

    A run is given by options, as in run(methods="fedavg,scaffold", data="mnist",
    partition="dirichlet:0.1"), or by a YAML file of exhibits; it returns the table that `fedrepro
    run` prints, a row per method. An exhibit returns a row per point, method, metric and split:
    mean, sd and number of trials, the value of each trial and the chosen setting. A leaderboard,
    such as arena/1, returns a row per method. `attrs` has the file that people look at; notes are
    warnings.

    Args:
        key: of the exhibit or leaderboard, or the path of a YAML file.
        scale: of the exhibit.
        folder: made by `start`, or the root of the repository; for a run it is made where it is
            missing, by default `runs`.
        cores: by default all that this process may use.
        profile: of Snakemake.
        words: options of a run, and `changes`, such as {"scaffold.lr": 0.1}.

    Raises:
        FedreproError: Snakemake is not installed, or something failed, with its sentence.
    """
    if words or Path(key).suffix == ".yaml":
        from fedrepro.stages.user_runs import run_words

        return run_words(words or Path(key), folder, cores, profile)
    key = str(key)
    with inside_folder(folder or "."):
        config = load_config()
        if config.components and plugins.NAMED not in os.environ:
            plugins.set_plugin_files(os.path.abspath(file) for file in config.components)
        plan = Plan(config, load_exhibits(), scale)
        paper, _, name = key.partition("/")
        if paper in plan.files and name in plan.files[paper].boards:
            compute([f"reports/{scale}/{key}.csv"], cores)
            return _frame(f"reports/{scale}/{key}.csv")
        for note in notes_of(plan, plan.exhibit(key)):
            warnings.warn(note, stacklevel=2)
        target = plan.exhibit_file(key, plan.exhibit(key).suffix)
        compute([target], cores)
        numbers = open_exhibit(Path("reports") / scale, key, scale).numbers
        numbers.attrs["file"] = os.path.abspath(target)
        return numbers


def _frame(path: str) -> pd.DataFrame:
    from fedrepro.numbers.summary import read_csv

    frame = read_csv(Path(path).read_text(encoding="utf-8"))
    frame.attrs["file"] = os.path.abspath(path)
    return frame


def compare(
    one: str,
    other: str | None = None,
    scale: str = "quick",
    *,
    folder: str | Path = ".",
    reports: str | Path = "reports",
    recorded: str | Path = "reports/record",
    metric: str = "accuracy",
    split: str = "test",
    exhibit: str = "",
) -> pd.DataFrame:
    """Compare two methods trial by trial, or an exhibit with the record, as `fedrepro compare`.

    Two methods have a row per point of the drawn exhibits that have both, with the difference and
    its 95 % interval. An exhibit has a row per number, ours and the recorded one. `attrs` has the
    verdict, a sentence.

    Args:
        one: label or name of a method; without `other`, an exhibit.
        other: label or name of the second method.
        scale: of the exhibits.
        folder: the working folder.
        reports: folder of drawn exhibits.
        recorded: folder of recorded exhibits.
        metric: to compare methods by.
        split: to compare methods on.
        exhibit: compare methods in this one alone.

    Raises:
        FedreproError: an exhibit is not drawn.
    """
    import pandas as pd

    from fedrepro.numbers.paired_differences import paired_differences, paired_verdict, sides
    from fedrepro.record.compare import compare as beside

    with inside_folder(folder):
        if other is None:
            comparison = beside(scale, one, Path(reports), Path(recorded))
            rows = [{**row.point, **_without(vars(row), "point")} for row in comparison.rows]
            sentence = comparison.verdict
        else:
            pairs = paired_differences(scale, one, other, Path(reports), metric, split, exhibit)
            rows = [
                {
                    "exhibit": pair.exhibit,
                    **pair.point,
                    **dict(zip(("method", "other_method"), pair.labels, strict=True)),
                    **_without(vars(pair), "exhibit", "point", "labels"),
                }
                for pair in pairs
            ]
            sentence = paired_verdict(pairs, metric, sides(pairs, one, other))
    frame = pd.DataFrame(rows)
    frame.attrs["verdict"] = sentence
    return frame


def _without(values: dict[str, object], *names: str) -> dict[str, object]:
    return {name: value for name, value in values.items() if name not in names}
