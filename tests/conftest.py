"""Settings of all tests: one thread, libraries unsteered, helpers on the path, lines that ran."""

import gc
import os
import re
import signal
import sys
from collections.abc import Generator, Iterator
from importlib.util import find_spec
from pathlib import Path
from types import CodeType
from typing import Any

# by these a library takes another branch than tests expect; children of tests inherit none of them
STEERING = (
    *("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "MKL_CBWR", "NPVL_", "NUMBA_CPU_", "ONEDNN_"),
    *("DNNL_", "ATEN_", "NPY_"),
)
for name in [name for name in os.environ if name.startswith(STEERING)]:
    del os.environ[name]
for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[name] = "1"

sys.path.insert(0, str(Path(__file__).parent / "unit"))

import once  # noqa: E402
import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402

from fedrepro.core import kernel_pinning  # noqa: E402
from fedrepro.core.kernel_pinning import BRANCHES  # noqa: E402
from fedrepro.core.user_component_files import NAMED  # noqa: E402

kernel_pinning.pin()  # before NumPy and torch are loaded
# a machine that is busy with other work must not fail a property, so there are no deadlines
for name, examples in (("fedrepro", 25), ("nightly", 100), ("long", 3000)):
    settings.register_profile(name, deadline=None, max_examples=examples)
settings.load_profile("fedrepro")

FOLDER = pytest.StashKey[str | None]()
COUNTER = pytest.StashKey[Any]()
COUNTED = pytest.StashKey[dict[str, Any]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--lines", type=float, metavar="PERCENT",
        help="count which lines of src run; it fails where fewer than this do",
    )  # fmt: skip


@pytest.fixture(scope="module")
def given() -> Any:
    """The small problem, one for each module: its clients count what they send."""
    from problems import problem

    return problem()


@pytest.fixture
def in_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[1])


@pytest.fixture
def within_a_minute() -> Iterator[None]:
    def late(*_: object) -> None:
        raise TimeoutError("not done in a minute")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(autouse=True)
def _environment_of_one_test_only() -> Iterator[None]:
    """Keep variables that a test, or what it calls, sets from the tests to come."""
    names = (NAMED, *BRANCHES)
    before = {name: os.environ[name] for name in names if name in os.environ}
    yield
    for name in names:
        os.environ.pop(name, None)
    os.environ.update(before)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "bytes: compares bytes, which differ between machines")
    config.stash[FOLDER] = once.begin()
    if config.getoption("lines") is not None and find_spec("slipcover") is not None:
        import lines

        config.stash[COUNTER] = lines.Counter(whole=not hasattr(config, "workerinput"))


def pytest_unconfigure(config: pytest.Config) -> None:
    once.end(config.stash.get(FOLDER, None))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    counter = node.config.stash.get(COUNTER, None)
    if counter is not None and "lines" in getattr(node, "workeroutput", {}):
        counter.add(node.workeroutput["lines"])


def pytest_sessionfinish(session: pytest.Session) -> None:
    config = session.config
    counter = config.stash.get(COUNTER, None)
    if counter is None:
        return
    if hasattr(config, "workeroutput"):
        config.workeroutput["lines"] = counter.found()
        return
    import lines

    config.stash[COUNTED] = counted = counter.together()
    if lines.percent(counted) < config.getoption("lines") and session.exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    counted, asked = config.stash.get(COUNTED, None), config.getoption("lines")
    if asked is None:
        return
    if counted is None:
        terminalreporter.write_line("lines were not counted: SlipCover is not installed")
        return
    import lines

    terminalreporter.section("lines of src that did not run")
    lines.show(counted, terminalreporter)
    share = lines.percent(counted)
    enough = "at least" if share >= asked else "too few: not"
    terminalreporter.write_line(f"{share:.1f} % of the lines ran, {enough} {asked:g} %")


# how a test that compares bytes is known: by its name, or by what it calls
BYTES = re.compile(r"_bytes?(_|$|\[)")
COMPARING = {"array_equal", "tobytes"}


def _calls(code: CodeType) -> set[str]:
    within = [const for const in code.co_consts if isinstance(const, CodeType)]
    return set(code.co_names).union(*map(_calls, within))


def pytest_itemcollected(item: pytest.Item) -> None:
    code = getattr(getattr(item, "function", None), "__code__", None)
    if BYTES.search(item.name) or (code is not None and COMPARING & _calls(code)):
        item.add_marker("bytes")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, pytest.TestReport]:
    """Where bytes differ, say on which machine: they may not on the next one."""
    report: pytest.TestReport = yield
    if report.failed and item.get_closest_marker("bytes"):
        from fedrepro.core.diagnostics.machine_facts import facts

        lines = [f"{what}: {words}" for what, words in facts()]
        report.sections.append(("machine", "\n".join(lines)))
    return report


def pytest_collection(session: pytest.Session) -> None:
    """Collecting looks for garbage again and again among a million objects that stay."""
    gc.disable()


def pytest_collection_finish(session: pytest.Session) -> None:
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Spread long tests over the workers; the first makes the run of a workflow that many share."""
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    marked = [item for item in items if item.get_closest_marker("workflow")]
    on_cluster = [item for item in marked if "cluster" in getattr(item, "fixturenames", ())]
    slow = [item for item in marked if item not in on_cluster]
    sharing = [item for item in slow if "finished" in getattr(item, "fixturenames", ())]
    slow = [*sharing[:1], *(item for item in slow if item not in sharing), *sharing[1:]]
    others = [item for item in items if not item.get_closest_marker("workflow")]
    slow += [item for item in others if item.get_closest_marker("long")]
    others = [item for item in others if not item.get_closest_marker("long")]
    share = -(-len(others) // workers)
    items.clear()
    for at in range(workers):
        items += on_cluster if at == workers - 1 else []
        items += slow[at::workers] + others[at * share : (at + 1) * share]
