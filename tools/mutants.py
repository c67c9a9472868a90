"""Change the code at random places, one at a time, and see whether a test notices.

    python tools/mutants.py trace FOLDER            # which tests call which functions
    python tools/mutants.py try FOLDER --count 100  # some ten seconds for each change
    python tools/mutants.py again FOLDER            # those that survived, with the tests of today

FOLDER is new, outside the repository: a copy of it that is changed there, and what was found, in
found.jsonl. Changes are drawn by a seed from all places of the rooms below, so the first n are a
random sample for every n, and a second `try` goes on after the last. Each is tried in a process of
its own. It is noticed if a test that calls the changed function fails, or takes ten times as long.
What its tests take in all is limited, the nearest first, so that more may survive here than would
with every test. Tests given by name are traced, or tried, in the place of all of tests/papers and
tests/unit; a second `trace` adds to the first.

Left alone is what cannot matter to a result: messages, annotations, `strict=` of zip and options of
dataclasses. A line of EQUIVALENT names a change that no test can notice, and why; it is counted
apart.

No tool that there is does this: cosmic-ray runs one and the same command for every change, and
mutmut leaves out what stands outside of functions and puts a decorator on every function, which
Numba, and components that are read by their signatures, do not bear.
"""

from __future__ import annotations

import argparse
import ast
import csv
import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from queue import SimpleQueue

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "unit"))

import loaded  # noqa: E402

TESTS = ["tests/papers", "tests/unit"]
ROOMS = ("core", "matching", "numbers", "papers/p2p/beliefs", "training", "verdicts")
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.csv")
# no bytecode: it goes by the second and the size of a source, which may be those of the next change
PYTEST = """import sys
sys.dont_write_bytecode = True
import pytest
sys.exit(pytest.main(sys.argv[1:]) if sys.argv[1:] else 0)"""
THREADS = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")

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
    outer: tuple[str, int]  # the outermost function around it, likewise
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

    def walk(node: ast.AST, function: tuple[str, int], outer: tuple[str, int]) -> Iterator[Change]:
        for place, text in altered(node):
            first = starts[place.lineno - 1] + place.col_offset
            last = starts[place.end_lineno - 1] + place.end_col_offset
            name, was = str(file.relative_to(root)), data[first:last].decode()
            yield Change(name, place.lineno, function, outer, first, last, text, was)
        inside = [] if not isinstance(node, ast.FunctionDef) else node.body
        own = (node.name, [*node.decorator_list, node][0].lineno) if inside else ("", 0)
        for child in children(node):
            if child in inside:
                yield from walk(child, own, outer if outer[0] else own)
            else:  # defaults and decorators belong to what is around
                yield from walk(child, function, outer)

    yield from walk(ast.parse(source), ("", 0), ("", 0))


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
        case ast.If(test=ast.Name("TYPE_CHECKING")):
            return
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


def sample(root: Path, seed: int, without: Sequence[str] = ()) -> list[Change]:
    """All changes of the rooms but for files of these names, in random order."""
    package = root / "src" / "fedrepro"
    files = sorted(file for room in ROOMS for file in (package / room).rglob("*.py"))
    found = [c for file in files if file.name not in without for c in changes(file, root)]
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
        before = json.loads(self.out.read_text(encoding="utf-8")) if self.out.exists() else {}
        self.out.write_text(json.dumps(before | good), encoding="utf-8")


def copied(tree: Path) -> None:
    """The files of the repository, as they are, with the environment."""
    asked = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    for name in subprocess.check_output(asked, cwd=ROOT, text=True).split("\0")[:-1]:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_file():
            shutil.copy2(ROOT / name, tree / name)
    if not (tree / ".venv").exists():
        (tree / ".venv").symlink_to((ROOT / ".venv").resolve())


def trace(folder: Path, tests: list[str]) -> int:
    tree, temporary = folder / "tree", folder / "temporary"
    copied(tree)
    temporary.mkdir(exist_ok=True)
    os.chdir(tree)
    sys.path.insert(0, str(tree / "src"))
    os.environ.update(PYTHONPATH=str(tree / "src"), TMPDIR=str(temporary))
    tempfile.tempdir = None
    calls = Calls(tree, folder / "calls.json")
    return int(pytest.main(["-n", "0", "-q", *(tests or TESTS)], plugins=[calls]))


# -------------------------------------------------------------------------------- trying


@dataclass
class Tests:
    """Which tests call what."""

    seconds: dict[str, float]
    size: dict[str, int]
    of_function: dict[tuple[str, str, int], set[str]]
    of_file: dict[str, set[str]]

    @classmethod
    def read(cls, path: Path, files: Sequence[str]) -> Tests:
        """files: only those of these files, if there are any."""
        whole = json.loads(path.read_text(encoding="utf-8"))
        found = {k: v for k, v in whole.items() if not files or k.partition("::")[0] in files}
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
                if any(word in path.read_text(encoding="utf-8") for word in words)
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


def outcome_of(change: Change, near: list[str], tree: Path, most: float) -> tuple[str, str]:
    """What becomes of a change that is made in this tree, and the first words of why."""
    path = tree / change.file
    good = path.read_bytes()
    if good[change.start : change.end] != change.was.encode():
        return "moved", "the file has changed since it was drawn"
    with tempfile.TemporaryDirectory(prefix="fedrepro-mutant-") as temporary:
        own = {"PYTHONPATH": str(tree / "src"), "TMPDIR": temporary}
        if b"numba" in good:  # it keeps what it compiled by its file
            own["NUMBA_CACHE_DIR"] = temporary
        path.write_bytes(good[: change.start] + change.text.encode() + good[change.end :])
        words = ["-xq", "-n0", "-pno:cacheprovider", "--tb=line", *near]
        try:
            run = loaded.python(
                ["-c", PYTEST, *(words if near else [])], tree, os.environ | THREADS | own,
                patience=60 + 10 * most,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return "endless", ""
        finally:
            path.write_bytes(good)
    said = run.stdout + run.stderr
    why = next((line for line in said.splitlines() if line.startswith(("FAILED", "ERROR"))), "")
    # 4: a test is not there
    return {0: "survived", 4: "not tried"}.get(run.returncode, "noticed"), why


def tried(folder: Path, todo: list[Change], options: argparse.Namespace, out: Path) -> list[dict]:
    import fedrepro  # noqa: F401  # says how libraries compute, before a child of ours loads them

    tests = Tests.read(folder / "calls.json", options.tests)
    trees: SimpleQueue[Path] = SimpleQueue()
    for place in range(options.at_once):
        tree = folder / f"tree-{place}"
        shutil.rmtree(tree, ignore_errors=True)
        shutil.copytree(folder / "tree", tree, symlinks=True)
        trees.put(tree)

    def one(change: Change) -> dict:
        tree, began = trees.get(), time.monotonic()
        near = tests.near(change, tree, options.seconds)
        try:
            outcome, by = outcome_of(change, near, tree, options.seconds)
        finally:
            trees.put(tree)
        seconds = round(time.monotonic() - began, 1)
        row = asdict(change) | {
            "outcome": outcome, "by": by, "tests": len(near), "seconds": seconds
        }  # fmt: skip
        with out.open("a", encoding="utf-8") as file:
            print(json.dumps(row), file=file)
        print(f"{outcome:9} {said_of(row)}", flush=True)
        return row

    with ThreadPoolExecutor(options.at_once) as pool:
        return list(pool.map(one, todo))


def rows_of(out: Path) -> list[dict]:
    return (
        [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
        if out.exists()
        else []
    )


def try_all(folder: Path, options: argparse.Namespace) -> None:
    out = folder / "found.jsonl"
    rows = rows_of(out)
    done = {(row["file"], row["start"], row["end"], row["text"]) for row in rows}
    drawn = sample(folder / "tree", options.seed, options.without)[: options.count]
    todo = [c for c in drawn if (c.file, c.start, c.end, c.text) not in done]
    print(told(rows + tried(folder, todo, options, out), folder / "tree"))


def again(folder: Path, options: argparse.Namespace) -> None:
    """Those that survived once more, with tests as they are now; all calls of them count."""
    rows, out = rows_of(folder / "found.jsonl"), folder / "again.jsonl"
    todo = [
        Change(**{one.name: _whole(row[one.name]) for one in fields(Change)})
        for row in rows
        if row["outcome"] == "survived"
    ]
    shutil.copytree(ROOT / "tests", folder / "tree" / "tests", dirs_exist_ok=True)
    out.unlink(missing_ok=True)
    found = tried(folder, todo, options, out)
    rest = [row for row in rows if row["outcome"] != "survived"]
    print(told(rest + found, folder / "tree"))


def _whole(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def interval(count: int, of: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's interval of a share, in percent."""
    share, width = count / of, z * z / of
    middle = (share + width / 2) / (1 + width)
    half = z * math.sqrt(share * (1 - share) / of + width / (4 * of)) / (1 + width)
    return 100 * (middle - half), 100 * (middle + half)


def is_equivalent(row: dict, tree: Path) -> bool:
    """Whether it is known that no test can notice a change; a line in `tree` says which it is."""
    with EQUIVALENT.open(newline="", encoding="utf-8") as file:
        known = {
            (one["file"], one["line"], one["was"], one["text"]) for one in csv.DictReader(file)
        }
    line = (tree / row["file"]).read_text(encoding="utf-8").splitlines()[row["line"] - 1]
    return (row["file"], line.strip(), " ".join(row["was"].split()), row["text"]) in known


def told(rows: list[dict], tree: Path) -> str:
    """The share that survives, in each room and in all; what is equivalent is counted apart."""
    tried = [row for row in rows if row["outcome"] not in ("moved", "not tried")]
    counted = [row for row in tried if not is_equivalent(row, tree)]
    lines = [f"{len(tried) - len(counted)} are known to be equivalent and left out"]
    rows = counted
    for room in (*ROOMS, ""):
        own = [row for row in rows if row["file"].startswith(f"src/fedrepro/{room}")]
        left = sum(row["outcome"] == "survived" for row in own)
        if own:
            low, high = interval(left, len(own))
            share = f"{100 * left / len(own):.1f} % ({low:.1f} to {high:.1f})"
            lines.append(f"{room or 'all':10} {left:4} of {len(own):4} survive: {share}")
    return "\n".join(lines)


def said_of(row: dict) -> str:
    return f"{row['file']}:{row['line']}  {' '.join(row['was'].split())}  ->  {row['text']}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("step", choices=("trace", "try", "again"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("tests", nargs="*", help="files of tests; all but the workflow's, if none")
    parser.add_argument("--count", type=int, default=100, help="changes to try")
    parser.add_argument("--seed", type=int, default=0, help="which changes")
    parser.add_argument("--seconds", type=float, default=40, help="of tests for each change")
    parser.add_argument("--at-once", type=int, default=2, help="changes tried at the same time")
    parser.add_argument("--without", nargs="*", default=(), help="names of files to leave out")
    options = parser.parse_args()
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    os.environ.update(THREADS)
    if options.step == "trace":
        sys.exit(trace(folder, options.tests))
    (try_all if options.step == "try" else again)(folder, options)


if __name__ == "__main__":
    main()
