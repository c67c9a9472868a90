"""What the workflow reaches for inside Snakemake: that it is there, and what happens without."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import snakemake.api  # first, since its modules import each other  # noqa: F401
from snakemake.dag import DAG
from snakemake.persistence import PersistenceBase
from snakemake.scheduling.job_scheduler import JobScheduler

from fedrepro.cli import hooks

ROOT = Path(__file__).parents[2]


def workflow() -> SimpleNamespace:
    forgotten: list[str] = []
    return SimpleNamespace(
        dag=SimpleNamespace(needrun_jobs=lambda: iter("abc")),
        scheduler=SimpleNamespace(job_rate_limiter=object()),
        persistence=SimpleNamespace(cleanup_metadata=lambda path: forgotten.append(str(path))),
        forgotten=forgotten,
    )


def test_the_series_is_the_one_that_is_installed_and_asked_for():
    assert hooks.tested()
    asked = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f'"snakemake>={hooks.TESTED[0]},<{int(hooks.TESTED[0]) + 1}"' in asked
    pinned = (ROOT / "envs/requirements.txt").read_text(encoding="utf-8")
    assert re.search(rf"^snakemake=={re.escape(hooks.TESTED)}", pinned, re.M)


def test_snakemake_has_the_jobs_that_wait():
    parameters = inspect.signature(DAG.needrun_jobs).parameters.values()
    assert [one.name for one in parameters if one.default is one.empty] == ["self"]
    assert hooks.waiting_jobs(workflow()) == 3


def test_snakemake_has_the_limit_that_is_lifted():
    """A name that is gone would be set and looked at by nobody."""
    looking = [f for f in vars(JobScheduler).values() if hasattr(f, "__code__")]
    assert sum("job_rate_limiter" in f.__code__.co_names for f in looking) >= 3
    one = workflow()
    assert hooks.lift_limit(one)
    assert one.scheduler.job_rate_limiter is None


def test_snakemake_has_the_records_that_are_taken_away():
    assert list(inspect.signature(PersistenceBase.cleanup_metadata).parameters) == [
        "self",
        "target",
    ]
    one = workflow()
    hooks.forget(one, [Path("a"), Path("b")])
    assert one.forgotten == ["a", "b"]


@pytest.mark.parametrize("there", ["10.0.1", "8.30.0"])
def test_with_another_series_nothing_is_reached_for(monkeypatch, there):
    monkeypatch.setattr(hooks, "version", lambda name: there)
    one = workflow()
    limit = one.scheduler.job_rate_limiter
    assert hooks.waiting_jobs(one) == 0
    assert not hooks.lift_limit(one)
    hooks.forget(one, [Path("a")])
    assert one.scheduler.job_rate_limiter is limit
    assert not one.forgotten


def test_parts_that_are_called_otherwise_are_left_alone():
    others = SimpleNamespace(dag=object(), scheduler=object(), persistence=object())
    for bare in (others, SimpleNamespace()):
        assert hooks.waiting_jobs(bare) == 0
        assert not hooks.lift_limit(bare)
        hooks.forget(bare, [Path("a")])


def test_nothing_else_of_the_workflow_reaches_for_them():
    for path in sorted(ROOT.glob("workflow/**/*")):
        if path.suffix in {".smk", ""} and path.is_file():
            text = path.read_text(encoding="utf-8")
            assert not re.search(r"workflow\.(dag|scheduler|persistence)\b", text), path


def test_where_a_module_cannot_be_told_nothing_is_joined():
    nothing = SimpleNamespace()
    hooks.join(nothing, None, None)
    assert vars(nothing) == {}
