"""Settings of all tests: one thread, helpers on the path, and a folder that workers share."""

import os
import sys
from pathlib import Path

for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[name] = "1"

sys.path.insert(0, str(Path(__file__).parent / "unit"))

import once  # noqa: E402
import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402

# a machine that is busy with other work must not fail a property
settings.register_profile("fedrepro", deadline=None)
# more of every property: pytest tests/unit/test_fuzz_*.py --hypothesis-profile long
settings.register_profile("long", deadline=None, max_examples=3000)
settings.load_profile("fedrepro")

FOLDER = pytest.StashKey[str | None]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[FOLDER] = once.begin()


def pytest_unconfigure(config: pytest.Config) -> None:
    once.end(config.stash.get(FOLDER, None))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Spread tests of the workflow over the workers, each of which is given a run of tests.

    All of them with one worker would be what the others wait for at the end.
    """
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    slow = [item for item in items if item.get_closest_marker("workflow")]
    others = [item for item in items if not item.get_closest_marker("workflow")]
    share = -(-len(others) // workers)
    items[:] = [
        item
        for at in range(workers)
        for item in (*slow[at::workers], *others[at * share : (at + 1) * share])
    ]
