"""What reaches into Snakemake, beside what it promises.

Where a part is called otherwise nothing is reached for, and the workflow runs all the same, slower.
"""

from __future__ import annotations

from typing import Any


def waiting_jobs(workflow: Any) -> int:
    """Count the jobs that a workflow is about to run; 0 where it cannot be asked."""
    try:
        return sum(1 for _ in workflow.dag.needrun_jobs())
    except (AttributeError, TypeError):
        return 0


def lift_limit(workflow: Any) -> None:
    """Let jobs of this machine start as fast as cores are free, not at most 100 a second: with the
    limit, each job that ended adds a look a second at all jobs that wait."""
    if hasattr(getattr(workflow, "scheduler", None), "job_rate_limiter"):
        workflow.scheduler.job_rate_limiter = None
