"""Change the code at random places, one at a time, and see whether a test notices.

    python tools/mutants.py trace FOLDER            # which tests call which functions: 15 minutes
    python tools/mutants.py try FOLDER --count 300  # a second or two for each change
    python tools/mutants.py again FOLDER            # those that survived, with the tests of today

FOLDER is new, outside the repository: a copy of it that is changed there, and what was found, in
found.jsonl. Changes are drawn by a seed from all places of the rooms below, so the first n are a
random sample for every n, and a second `try` goes on after the last. A change is noticed if a test
that calls the changed function fails, or takes ten times as long. What its tests take in all is
limited, the nearest first, so that more may survive here than would with every test.

Code of functions is replaced in a copy of a process that has loaded all tests. What then survives
is tried once more in a new process with the changed file, as is what stands outside of functions.

Left alone is what cannot matter to a result: messages, annotations, `strict=` of zip and options of
dataclasses.
"""

from __future__ import annotations

import argparse
import ast
import compileall
import gc
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
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from types import CodeType, FunctionType

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("core", "beliefs", "matching", "numbers", "training")
LATER = ("numba",)  # functions of files with these words are compiled when they are loaded

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


def changed(change: Change, tree: Path) -> bytes:
    good = (tree / change.file).read_bytes()
    return good[: change.start] + change.text.encode() + good[change.end :]


def code_of(whole: CodeType, name: str, line: int) -> Iterator[CodeType]:
    """The code of a function in the code of its module."""
    if (whole.co_name, whole.co_firstlineno) == (name, line):
        yield whole
    for constant in whole.co_consts:
        if isinstance(constant, CodeType):
            yield from code_of(constant, name, line)


def replace_code(change: Change, tree: Path) -> None:
    """Give the function its changed code in this process. Errors: LookupError."""
    path = str(tree / change.file)
    code = next(code_of(compile(changed(change, tree), path, "exec"), *change.outer))
    count = 0
    for found in gc.get_objects():
        if type(found) is FunctionType:
            old = found.__code__
            if old.co_filename == path and (old.co_name, old.co_firstlineno) == change.outer:
                found.__code__ = code
                count += 1
    if not count:
        raise LookupError(path)


class Trials:
    """A plugin of pytest that tries changes in copies of the process that has loaded all tests."""

    def __init__(self, folder: Path, todo: list[Change], tests: Tests, options, file) -> None:
        self.folder, self.tree, self.todo, self.tests = folder, folder / "tree", todo, tests
        self.options, self.file = options, file
        self.rows: list[dict] = []
        self.failed: list[str] = []

    def pytest_runtest_logreport(self, report) -> None:
        if report.failed:
            self.failed.append(report.nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session) -> bool:
        items = {item.nodeid: item for item in session.items}
        running: dict[int, Attempt] = {}
        todo, anew = self.todo[::-1], []  # what needs a new process comes last
        while todo or anew or running:
            for place in range(self.options.at_once):
                while place not in running and todo:
                    change = todo.pop()
                    near = self.tests.near(change, self.tree, self.options.seconds)
                    near = [name for name in near if name in items]
                    if self._in_a_copy(change, near):
                        running[place] = self._begin(change, [items[n] for n in near], place)
                    else:
                        anew.insert(0, (change, near))
                if place not in running and anew:
                    running[place] = self._anew(*anew.pop(), place)
            for place, attempt in list(running.items()):
                code = attempt.process.poll()
                if code is None and time.monotonic() < attempt.began + 60 + 10 * attempt.most:
                    continue
                if code is None:
                    os.killpg(attempt.process.pid, signal.SIGKILL)
                    attempt.process.wait()
                del running[place]
                shutil.rmtree(self.folder / f"temporary-{place}", ignore_errors=True)
                if attempt.copied and code != 1:
                    anew.insert(0, (attempt.change, attempt.near))
                    self._log(f"{'':9} {code!s:9} {said_of(asdict(attempt.change))}")
                else:
                    self._end(attempt, code, place)
            time.sleep(0.05)
        return True

    def _in_a_copy(self, change: Change, near: list[str]) -> bool:
        text = (self.tree / change.file).read_text()
        return bool(change.outer[0] and near and not any(word in text for word in LATER))

    def _begin(self, change: Change, chosen: list, place: int) -> Attempt:
        out, near = self.folder / f"out-{place}", [item.nodeid for item in chosen]
        process = os.fork()
        if process:
            return Attempt(change, near, Copy(process), out, self.options.seconds)
        code = 9
        try:
            os.setsid()
            temporary = self.folder / f"temporary-{place}"
            inside(self.tree, temporary)
            os.environ["FEDREPRO_TESTS_FOLDER"] = str(temporary)
            replace_code(change, self.tree)
            self.failed.clear()
            for item, later in zip(chosen, [*chosen[1:], None], strict=True):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=later)
                if self.failed:
                    out.write_text(self.failed[0])
                    break
            code = int(bool(self.failed))
        except BaseException as error:
            out.write_text(f"{type(error).__name__}: {error}")
        finally:
            os._exit(code)

    def _anew(self, change: Change, near: list[str], place: int) -> Attempt:
        """In a new process, with the changed file."""
        tree, out = self.folder / f"tree-{place}", self.folder / f"out-{place}"
        if not tree.exists():
            shutil.copytree(self.tree, tree, symlinks=True)
        (tree / change.file).write_bytes(changed(change, tree))
        temporary = self.folder / f"temporary-{place}"
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        more = {"PYTHONPATH": str(tree / "src"), "TMPDIR": str(temporary)}
        more |= {"PYTHONDONTWRITEBYTECODE": "1"}
        if "numba" in (tree / change.file).read_text():  # it keeps what it compiled by its file
            more["NUMBA_CACHE_DIR"] = str(temporary)
        env = {k: v for k, v in os.environ.items() if k != "FEDREPRO_TESTS_FOLDER"} | more
        words = ["-m", "pytest", "-xq", "-n0", "-pno:cacheprovider", "--tb=line", *near]
        words = words if near else ["-c", "pass"]
        with out.open("w") as file:
            process = subprocess.Popen(
                [sys.executable, *words], cwd=tree, env=env, stdout=file, stderr=file,
                start_new_session=True,
            )  # fmt: skip
        return Attempt(change, near, process, out, self.options.seconds)

    def _end(self, attempt: Attempt, code: int | None, place: int) -> None:
        change = attempt.change
        if attempt.copied:
            by = [attempt.out.read_text()]
        else:
            shutil.copy2(self.tree / change.file, self.folder / f"tree-{place}" / change.file)
            said = attempt.out.read_text(errors="replace").splitlines()
            by = [line for line in said if line.startswith(("FAILED", "ERROR"))][:1]
        words = {0: "survived", 4: "not tried", None: "endless"}  # 4: a test is not there
        seconds = round(time.monotonic() - attempt.began, 1)
        more = {"by": by, "tests": len(attempt.near), "seconds": seconds}
        row = asdict(change) | {"outcome": words.get(code, "noticed")} | more
        self.rows.append(row)
        print(json.dumps(row), file=self.file, flush=True)
        self._log(f"{len(self.rows)}/{len(self.todo)} {row['outcome']:9} {said_of(row)}")

    def _log(self, line: str) -> None:
        with (self.folder / "log").open("a") as log:
            print(line, file=log)


@dataclass
class Attempt:
    """Tests that run with a change, since when, and for how long at most."""

    change: Change
    near: list[str]
    process: Copy | subprocess.Popen
    out: Path
    most: float
    began: float = field(default_factory=time.monotonic)

    @property
    def copied(self) -> bool:
        return isinstance(self.process, Copy)


class Copy:
    """A forked process, asked as one of subprocess is."""

    def __init__(self, pid: int) -> None:
        self.pid, self.code = pid, None

    def poll(self) -> int | None:
        if self.code is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if ended else None
        return self.code

    def wait(self) -> None:
        os.waitpid(self.pid, 0)
        self.code = -signal.SIGKILL


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
    out, tree = folder / "found.jsonl", folder / "tree"
    rows = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    done = {(row["file"], row["start"], row["end"], row["text"]) for row in rows}
    drawn = sample(tree, options.seed)[: options.count]
    todo = [c for c in drawn if (c.file, c.start, c.end, c.text) not in done]
    with out.open("a") as file:
        print(told(rows + tried(folder, todo, options, file)))


def again(folder: Path, options: argparse.Namespace) -> None:
    """Those that survived once more, with tests as they are now; all calls of them count."""
    rows = [json.loads(line) for line in (folder / "found.jsonl").read_text().splitlines()]
    todo = [
        Change(**{one.name: _whole(row[one.name]) for one in fields(Change)})
        for row in rows
        if row["outcome"] == "survived"
    ]
    for tree in sorted(folder.glob("tree*")):
        shutil.copytree(ROOT / "tests", tree / "tests", dirs_exist_ok=True)
    with (folder / "again.jsonl").open("w") as file:
        found = tried(folder, todo, options, file)
    print(told([row for row in rows if row["outcome"] != "survived"] + found))


def _whole(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def tried(folder: Path, todo: list[Change], options: argparse.Namespace, file) -> list[dict]:
    tree = folder / "tree"
    inside(tree, folder / "temporary")
    tests = Tests.read(folder / "calls.json")
    names = options.tests or sorted({name.partition("::")[0] for name in tests.seconds})
    trials = Trials(folder, todo, tests, options, file)
    pytest.main(["-n0", "-q", "-pno:cacheprovider", *names], plugins=[trials])
    return trials.rows


def said_of(row: dict) -> str:
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
    options = parser.parse_args()
    folder = options.folder.resolve()
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = "1"
    if options.step == "trace":
        sys.exit(trace(folder, options.tests))
    (try_all if options.step == "try" else again)(folder, options)


if __name__ == "__main__":
    main()
