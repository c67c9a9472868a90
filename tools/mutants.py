"""Change the code at random places, one at a time, and see whether a test notices.

    python tools/mutants.py trace FOLDER            # which tests call which functions: 10 minutes
    python tools/mutants.py try FOLDER --count 300  # seconds to a minute for each change

FOLDER is new, outside the repository: a copy of it that is changed there, and what was found, in
found.jsonl. Changes are drawn by a seed from all places of the rooms below, so the first n are a
random sample for every n, and a second `try` goes on after the last. A change is noticed if a test
that calls the changed function fails or takes ten times as long. What its tests take in all is
limited, the nearest first, so that more may survive here than would with every test.

Left alone is what cannot matter to a result: messages, annotations, `strict=` of zip and options of
dataclasses.
"""

from __future__ import annotations

import argparse
import ast
import compileall
import contextlib
import importlib
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("core", "beliefs", "matching", "numbers", "training")
HEAVY = (
    "matplotlib.pyplot", "networkx", "numba", "numpy", "pandas", "pyarrow.parquet", "pydantic",
    "pytest", "hypothesis", "rich", "scipy.optimize", "scipy.stats", "sklearn.datasets", "torch",
    "typer", "torch.func", "ot", "snakemake",
)  # fmt: skip

# --------------------------------------------------------------------------------- changes

OTHER_WAY: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult,
    ast.FloorDiv: ast.Div, ast.Mod: ast.Add, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
    ast.And: ast.Or, ast.Or: ast.And, ast.USub: ast.UAdd, ast.LShift: ast.RShift,
    ast.RShift: ast.LShift, ast.BitXor: ast.BitAnd,
}  # fmt: skip


@dataclass(frozen=True)
class Change:
    """One change of a file: characters from `start` to `end` become `text`."""

    file: str
    line: int
    function: tuple[str, int]  # its name and first line; ("", 0) in the body of a module
    start: int
    end: int
    text: str
    was: str


def changes(file: Path, root: Path) -> Iterator[Change]:
    """All changes that can be made to a file, in the order of its lines."""
    source = file.read_text(encoding="utf-8")
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line.encode()))
    data = source.encode()

    def walk(node: ast.AST, function: tuple[str, int]) -> Iterator[Change]:
        for place, text in altered(node):
            first = starts[place.lineno - 1] + place.col_offset
            last = starts[place.end_lineno - 1] + place.end_col_offset
            name, was = str(file.relative_to(root)), data[first:last].decode()
            yield Change(name, place.lineno, function, first, last, text, was)
        if isinstance(node, ast.FunctionDef):
            function = (node.name, [*node.decorator_list, node][0].lineno)
        for child in children(node):
            yield from walk(child, function)

    yield from walk(ast.parse(source), ("", 0))


def children(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a node that can matter to a result."""
    if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr | ast.Import | ast.ImportFrom):
        return
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.keyword) and child.arg == "strict":
                continue
            if name == "decorator_list" and "dataclass" in ast.unparse(child):
                continue
            if isinstance(child, ast.AST):
                yield child


def altered(node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """What can stand in the place of a node, or of its condition."""
    match node:
        case ast.Compare(ops=[op]):
            yield node, _with(node, ops=[OTHER_WAY[type(op)]()])
        case ast.BinOp(op=ast.MatMult()):
            yield node, _with(node, left=ast.Attribute(node.left, "T", ast.Load()))
        case ast.BinOp() | ast.BoolOp():
            yield node, _with(node, op=OTHER_WAY[type(node.op)]())
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield node, f"({ast.unparse(node.operand)})"
        case ast.Attribute(attr="T" | "mT"):
            yield node, ast.unparse(node.value)
        case ast.Constant(value=bool()):
            yield node, str(not node.value)
        case ast.Constant(value=int() | float()):
            yield node, repr(node.value + 1)
        case ast.Continue():
            yield node, "break"
        case ast.Break():
            yield node, "continue"
        case ast.AugAssign() | ast.Expr(value=ast.Call()):
            yield node, "pass"
    test = getattr(node, "test", None)
    if isinstance(test, ast.Name | ast.Attribute | ast.Call):
        yield test, f"(not {ast.unparse(test)})"


def _with(node: ast.expr, **fields: object) -> str:
    given = {name: getattr(node, name) for name in node._fields} | fields
    return f"({ast.unparse(type(node)(**given))})"


def sample(root: Path, seed: int) -> list[Change]:
    """All changes of the rooms, in random order."""
    package = root / "src" / "fedrepro"
    files = sorted(file for room in ROOMS for file in (package / room).rglob("*.py"))
    found = [change for file in files for change in changes(file, root)]
    random.Random(seed).shuffle(found)
    return found


# ----------------------------------------------------------------- which tests call what


class Calls:
    """A plugin of pytest: the functions of the rooms that each test calls, and its seconds."""

    def __init__(self, root: Path, out: Path) -> None:
        self.prefixes = tuple(f"{root}/src/fedrepro/{room}/" for room in ROOMS)
        self.root, self.out = root, out
        self.called: set[tuple[str, str, int]] = set()
        self.seen: set[object] = set()
        self.fixtures: dict[object, set[tuple[str, str, int]]] = {}
        self.tests: dict[str, dict] = {}
        self.bad: set[str] = set()
        threading.settrace(self.trace)

    def trace(self, frame, event, argument) -> None:
        code = frame.f_code
        if code not in self.seen:
            self.seen.add(code)
            if code.co_filename.startswith(self.prefixes):
                name = os.path.relpath(code.co_filename, self.root)
                self.called.add((name, code.co_name, code.co_firstlineno))

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef):
        """What a shared fixture calls counts for every test that uses it."""
        outside, self.called, self.seen = self.called, set(), set()
        try:
            return (yield)
        finally:
            self.fixtures[fixturedef] = self.called
            self.called, self.seen = outside | self.called, set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        self.called, self.seen = set(), set()
        before = time.perf_counter()
        sys.settrace(self.trace)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            for *_, used in item._fixtureinfo.name2fixturedefs.values():
                self.called |= self.fixtures.get(used, set())
            seconds = time.perf_counter() - before
            self.tests[item.nodeid] = {"seconds": seconds, "calls": sorted(self.called)}

    def pytest_runtest_logreport(self, report) -> None:
        if report.outcome != "passed":
            self.bad.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        good = {name: found for name, found in self.tests.items() if name not in self.bad}
        self.out.write_text(json.dumps(good))


def copied(tree: Path) -> None:
    """The files of the repository, as they are, with the environment."""
    names = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True)
    for name in names.split("\0")[:-1]:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_file():
            shutil.copy2(ROOT / name, tree / name)
    (tree / ".venv").symlink_to((ROOT / ".venv").resolve())
    compileall.compile_dir(tree / "src", quiet=1)


def inside(tree: Path, temporary: Path) -> None:
    """Let this process work in a tree."""
    temporary.mkdir(parents=True, exist_ok=True)
    os.chdir(tree)
    sys.path.insert(0, str(tree / "src"))
    os.environ.update(PYTHONPATH=str(tree / "src"), TMPDIR=str(temporary))
    tempfile.tempdir = None


def trace(folder: Path, tests: list[str]) -> int:
    tree = folder / "tree"
    copied(tree)
    inside(tree, folder / "temporary")
    calls = Calls(tree, folder / "calls.json")
    return int(pytest.main(["-n", "0", "-q", *(tests or ["tests/unit"])], plugins=[calls]))


# -------------------------------------------------------------------------------- trying


@dataclass
class Tests:
    """Which tests call what."""

    seconds: dict[str, float]
    size: dict[str, int]
    of_function: dict[tuple[str, str, int], set[str]]
    of_file: dict[str, set[str]]

    @classmethod
    def read(cls, path: Path) -> Tests:
        found = json.loads(path.read_text())
        of_function, of_file = defaultdict(set), defaultdict(set)
        for test, row in found.items():
            for file, name, line in row["calls"]:
                of_function[file, name, line].add(test)
                of_file[file].add(test)
        seconds = {test: row["seconds"] for test, row in found.items()}
        size = {test: len(row["calls"]) for test, row in found.items()}
        return cls(seconds, size, of_function, of_file)

    def near(self, change: Change, root: Path, most: float) -> list[str]:
        """Tests that may notice a change, the nearest first, of so many seconds in all.

        Where no test calls the function itself, as in the body of a module or where Numba has
        compiled it, those that call others of its file, or of files that import it.
        """
        found = self.of_function.get((change.file, *change.function)) or set()
        if not found:
            module = change.file.removeprefix("src/").removesuffix(".py").replace("/", ".")
            words = (module, f"from {module.rpartition('.')[0]} import")
            users = [
                path
                for path in (root / "src").rglob("*.py")
                if any(word in path.read_text() for word in words)
            ]
            found = set(self.of_file.get(change.file, ()))
            for path in users:
                found |= self.of_file.get(str(path.relative_to(root)), set())
        chosen, spent = [], 0.0
        for test in sorted(found, key=lambda test: (self.size[test] * self.seconds[test], test)):
            if spent + self.seconds[test] <= most:
                chosen.append(test)
                spent += self.seconds[test]
        return chosen


class Attempt:
    """A run of tests on a tree with one change, in a process of its own."""

    def __init__(self, change: Change, tests: list[str], folder: Path, place: int, most: float):
        self.change, self.tests = change, tests
        self.whole, self.tree = folder / "tree", folder / f"tree-{place}"
        self.temporary = folder / f"temporary-{place}"
        self.log = folder / f"log-{place}"
        if not self.tree.exists():
            shutil.copytree(self.whole, self.tree, symlinks=True)
        good = (self.whole / change.file).read_bytes()
        bad = good[: change.start] + change.text.encode() + good[change.end :]
        (self.tree / change.file).write_bytes(bad)
        self.began = time.monotonic()
        self.end_by = self.began + 60 + 10 * most
        self.process = os.fork()
        if not self.process:
            self._run(b"numba" in good)

    def _run(self, compiled: bool) -> None:
        code = 99
        try:
            os.setsid()
            with self.log.open("w") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
            inside(self.tree, self.temporary)
            sys.dont_write_bytecode = True
            os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
            if compiled:
                import numba

                numba.config.CACHE_DIR = os.environ["NUMBA_CACHE_DIR"] = str(self.temporary)
            options = ["-x", "-q", "-n0", "-pno:cacheprovider", "--tb=line"]
            code = int(pytest.main([*options, *self.tests]))
        finally:
            os._exit(code)

    def outcome(self) -> str | None:
        """What came of it; None while it runs."""
        ended, status = os.waitpid(self.process, os.WNOHANG)
        if not ended and time.monotonic() < self.end_by:
            return None
        if not ended:
            os.killpg(self.process, signal.SIGKILL)
            os.waitpid(self.process, 0)
        shutil.copy2(self.whole / self.change.file, self.tree / self.change.file)
        shutil.rmtree(self.temporary, ignore_errors=True)
        if not ended:
            return "endless"
        words = {0: "survived", 5: "survived", 4: "not tried"}  # 4: a test is not there
        return words.get(os.waitstatus_to_exitcode(status), "noticed")

    def row(self, outcome: str) -> dict[str, object]:
        said = self.log.read_text(errors="replace").splitlines()
        by = [line for line in said if line.startswith(("FAILED", "ERROR"))]
        seconds = round(time.monotonic() - self.began, 1)
        more = {"outcome": outcome, "by": by[:1], "tests": len(self.tests), "seconds": seconds}
        return asdict(self.change) | more


def attempts(
    folder: Path, todo: list[Change], near: Callable[[Change], list[str]], at_once: int, most: float
) -> Iterator[dict[str, object]]:
    """Try changes, some at once; rows in the order in which they end."""
    for name in HEAVY:  # each process has them from this one
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    running: dict[int, Attempt] = {}
    todo = todo[::-1]
    while todo or running:
        for place in range(at_once):
            if place not in running and todo:
                change = todo.pop()
                tests = near(change)
                if tests:
                    running[place] = Attempt(change, tests, folder, place, most)
                else:
                    yield asdict(change) | {"outcome": "survived", "by": ["no test calls it"]}
        for place, attempt in list(running.items()):
            outcome = attempt.outcome()
            if outcome is not None:
                yield running.pop(place).row(outcome)
        time.sleep(0.1)


def interval(count: int, of: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's interval of a share, in percent."""
    share, width = count / of, z * z / of
    middle = (share + width / 2) / (1 + width)
    half = z * math.sqrt(share * (1 - share) / of + width / (4 * of)) / (1 + width)
    return 100 * (middle - half), 100 * (middle + half)


def told(rows: list[dict]) -> str:
    """The share that survives, in each room and in all."""
    lines = []
    for room in (*ROOMS, ""):
        own = [row for row in rows if row["file"].startswith(f"src/fedrepro/{room}")]
        left = sum(row["outcome"] == "survived" for row in own)
        if own:
            low, high = interval(left, len(own))
            share = f"{100 * left / len(own):.1f} % ({low:.1f} to {high:.1f})"
            lines.append(f"{room or 'all':10} {left:4} of {len(own):4} survive: {share}")
    return "\n".join(lines)


def try_all(folder: Path, options: argparse.Namespace) -> None:
    out, whole = folder / "found.jsonl", folder / "tree"
    rows = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    tests = Tests.read(folder / "calls.json")
    drawn = sample(whole, options.seed)[: options.count]
    done = {(row["file"], row["start"], row["end"]) for row in rows}
    todo = [change for change in drawn if (change.file, change.start, change.end) not in done]

    def near(change: Change) -> list[str]:
        return tests.near(change, whole, options.seconds)

    with out.open("a") as file:
        for row in attempts(folder, todo, near, options.at_once, options.seconds):
            rows.append(row)
            print(json.dumps(row), file=file, flush=True)
            print(f"{len(rows)}/{len(drawn)} {row['outcome']:9} {said(row)}", flush=True)
    print(told(rows))


def again(folder: Path, options: argparse.Namespace) -> None:
    """Those that survived once more, with tests as they are now."""
    rows = [json.loads(line) for line in (folder / "found.jsonl").read_text().splitlines()]
    names = [field.name for field in fields(Change)]
    left = [
        Change(**{name: row[name] for name in names})
        for row in rows
        if row["outcome"] == "survived" and options.only in row["file"]
    ]
    for tree in sorted(folder.glob("tree*")):
        shutil.copytree(ROOT / "tests", tree / "tests", dirs_exist_ok=True)
    for row in attempts(folder, left, lambda change: options.tests, options.at_once, 60.0):
        print(f"{row['outcome']:9} {said(row)}  {row['by']}", flush=True)


def said(row: dict) -> str:
    return f"{row['file']}:{row['line']}  {' '.join(row['was'].split())}  ->  {row['text']}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("step", choices=("trace", "try", "again"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("tests", nargs="*", help="files of tests; all of tests/unit, if none")
    parser.add_argument("--count", type=int, default=300, help="changes to try")
    parser.add_argument("--seed", type=int, default=0, help="which changes")
    parser.add_argument("--seconds", type=float, default=40, help="of tests for each change")
    parser.add_argument("--at-once", type=int, default=2, help="changes tried at the same time")
    parser.add_argument("--only", default="", help="again: files whose name has this in it")
    options = parser.parse_args()
    folder = options.folder.resolve()
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = "1"
    if options.step == "trace":
        sys.exit(trace(folder, options.tests))
    (try_all if options.step == "try" else again)(folder, options)


if __name__ == "__main__":
    main()
