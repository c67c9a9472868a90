"""Functions that only compiled functions call: options by which Numba compiles them quicker.

By itself Numba compiles every function to machine code, and compiles it again in each of its
callers. Here a function is turned into LLVM code alone, and only its callers become machine code:
convolutional steps compile in two thirds of the time. This uses undocumented names of Numba; a
version without them compiles in its own way.
"""

from __future__ import annotations

from typing import Any

import numba
from numba.core import compiler, typed_passes
from numba.core.codegen import CPUCodeLibrary
from numba.core.compiler_machinery import register_pass

numba_any: Any = numba
lowering: Any = typed_passes.NativeLowering
nopython: Any = compiler.DefaultPassBuilder
register: Any = register_pass
NEEDED = ("_finalize_dynamic_globals", "_finalize_final_module", "_optimize_final_module")


@register(mutates_CFG=True, analysis_only=False)
class InnerLowering(lowering):  # type: ignore[misc]
    """A pass of Numba's compiler that stops at LLVM code, for functions that compiled code calls.

    Numba's own pass, the base class, also makes machine code, which takes longer.
    """

    _name = "fedrepro_inner_lowering"

    def run_pass(self, state: Any) -> bool:
        """Compile the function in Numba's `state` to LLVM code; return True: `state` changed."""
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
        """Return a list of one pipeline: the passes for functions without Python objects."""
        passes = nopython.define_nopython_pipeline(self.state)
        passes.passes = [
            (InnerLowering if each is lowering else each, words) for each, words in passes.passes
        ]
        passes.finalize()
        return [passes]


OPTIONS: Any = {"error_model": "numpy"}  # of numba.njit and overload
if hasattr(numba, "_dynfunc") and all(hasattr(CPUCodeLibrary, name) for name in NEEDED):
    OPTIONS["pipeline_class"] = InnerCompiler
