"""What the workflow reaches for inside Snakemake: that it is there, and what happens without."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from types import SimpleNamespace

import snakemake.api  # first, since its modules import each other  # noqa: F401
from snakemake.dag import DAG
from snakemake.scheduling.job_scheduler import JobScheduler

from fedrepro.cli import snakemake_internals

ROOT = Path(__file__).parents[2]


def workflow() -> SimpleNamespace:
    return SimpleNamespace(
        dag=SimpleNamespace(needrun_jobs=lambda: iter("abc")),
        scheduler=SimpleNamespace(job_rate_limiter=object()),
    )


def test_snakemake_has_the_jobs_that_wait():
    parameters = inspect.signature(DAG.needrun_jobs).parameters.values()
    assert [one.name for one in parameters if one.default is one.empty] == ["self"]
    assert snakemake_internals.waiting_jobs(workflow()) == 3


def test_snakemake_has_the_limit_that_is_lifted():
    """A name that is gone would be set and looked at by nobody."""
    looking = [f for f in vars(JobScheduler).values() if hasattr(f, "__code__")]
    assert sum("job_rate_limiter" in f.__code__.co_names for f in looking) >= 3
    one = workflow()
    snakemake_internals.lift_limit(one)
    assert one.scheduler.job_rate_limiter is None


def test_parts_that_are_called_otherwise_are_left_alone():
    others = SimpleNamespace(dag=object(), scheduler=object())
    for bare in (others, SimpleNamespace()):
        assert snakemake_internals.waiting_jobs(bare) == 0
        snakemake_internals.lift_limit(bare)


def test_nothing_else_of_the_workflow_reaches_for_them():
    for path in sorted(ROOT.glob("workflow/**/*")):
        if path.suffix in {".smk", ""} and path.is_file():
            text = path.read_text(encoding="utf-8")
            assert not re.search(r"workflow\.(dag|scheduler|persistence)\b", text), path


def test_where_a_module_cannot_be_told_nothing_is_joined():
    nothing = SimpleNamespace()
    snakemake_internals.join(nothing, None, None)
    assert vars(nothing) == {}
