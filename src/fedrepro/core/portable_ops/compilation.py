"""Compilation by Numba, with a cache that copies of the package share, and no needless code.

Numba caches by the path of the source, so each copy of the package would compile again. It makes
machine code of a function by itself, and again in each caller; here a function that only compiled
code calls stops at LLVM code, and convolutional steps compile in two thirds of the time. This uses
undocumented names of Numba; a version without them compiles in its own way.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numba
import xxhash
from numba.core import compiler, typed_passes
from numba.core.caching import UserProvidedCacheLocator
from numba.core.codegen import CPUCodeLibrary
from numba.core.compiler_machinery import register_pass

numba_any: Any = numba
lowering: Any = typed_passes.NativeLowering
nopython: Any = compiler.DefaultPassBuilder
register: Any = register_pass
NEEDED = ("_finalize_dynamic_globals", "_finalize_final_module", "_optimize_final_module")


def compiled_folder() -> Path:
    """Return NUMBA_CACHE_DIR or a folder in ~/.cache, for machine code; RuntimeError if no home."""
    if numba_any.config.CACHE_DIR:
        return Path(numba_any.config.CACHE_DIR)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "fedrepro", "compiled")


class ByContent(UserProvidedCacheLocator):
    """The rule by which Numba caches a function: in a folder named after a hash of its source."""

    def __init__(self, py_func: Any, py_file: str) -> None:
        self._py_file, self._lineno = py_file, py_func.__code__.co_firstlineno
        content = xxhash.xxh3_64_hexdigest(Path(py_file).read_bytes())
        self._cache_path = str(compiled_folder() / f"{Path(py_file).stem}-{content}")

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> Any:
        any_folder: Any = super(UserProvidedCacheLocator, cls)  # and not NUMBA_CACHE_DIR alone
        return any_folder.from_function(py_func, py_file)


@contextmanager
def one_process(what: str) -> Iterator[None]:
    """Run the `with` body, which compiles the code named `what`, under a file lock if possible."""
    with ExitStack() as held:
        with suppress(OSError, RuntimeError):
            path = compiled_folder() / f"{xxhash.xxh3_64_hexdigest(what.encode())}.lock"
            path.parent.mkdir(parents=True, exist_ok=True)
            fcntl.flock(held.enter_context(path.open("ab")), fcntl.LOCK_EX)
        yield


def cached(compiler: Any, function: Any) -> Any:
    """Compile by `compiler` (numba.njit or cfunc with options); cache on disk unless read-only."""
    config, ours = numba_any.config, f"{ByContent.__module__}.{ByContent.__name__}"
    before = config.CACHE_LOCATOR_CLASSES
    config.CACHE_LOCATOR_CLASSES = before or f"{ours},InTreeCacheLocator"  # or next to the source
    try:
        return compiler(cache=True)(function)
    except RuntimeError:  # neither the package's folder nor the user's can be written
        return compiler()(function)
    finally:
        config.CACHE_LOCATOR_CLASSES = before


def load_compiled(function: Any) -> None:
    """Load all machine code of a Numba function that is in the cache, for forks of this process."""
    with suppress(Exception):  # undocumented names
        index, codegen = function._cache._cache_file._load_index(), function.targetctx.codegen()
        for kinds, *_ in index:
            if function._cache._index_key(kinds, codegen) in index:
                function.compile(kinds)


@register(mutates_CFG=True, analysis_only=False)
class InnerLowering(lowering):  # type: ignore[misc]
    """A pass of Numba that stops at LLVM code, for functions that only compiled functions call."""

    _name = "fedrepro_inner_lowering"

    def run_pass(self, state: Any) -> bool:
        flags, library = state.flags, state.targetctx.codegen().create_library(str(state.func_id))

        def finish() -> None:
            library._finalize_dynamic_globals()
            library._finalized = True

        library.enable_object_caching()
        library._finalize_final_module, library._optimize_final_module = finish, lambda: None
        state.library = library
        flags.no_compile = flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
        super().run_pass(state)
        made, name = state.cr, state.cr.fndesc.qualname
        # Numba looks code up by an object of this type; nobody can call this one
        key = numba_any._dynfunc.make_function(numba, name, "", 0, made.env, (library,))
        state.targetctx.insert_user_function(key, made.fndesc, [library])
        state.reload_init.extend(library._reload_init)
        state.cr = made._replace(cfunc=key)
        return True


class InnerCompiler(compiler.CompilerBase):
    """Numba's compiler without its last step: it stops at LLVM code (`InnerLowering`)."""

    def define_pipelines(self) -> list[Any]:
        passes = nopython.define_nopython_pipeline(self.state)
        passes.passes = [
            (InnerLowering if each is lowering else each, words) for each, words in passes.passes
        ]
        passes.finalize()
        return [passes]


OPTIONS: Any = {"error_model": "numpy"}  # of numba.njit and overload
if hasattr(numba, "_dynfunc") and all(hasattr(CPUCodeLibrary, name) for name in NEEDED):
    OPTIONS["pipeline_class"] = InnerCompiler
