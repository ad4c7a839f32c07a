"""How inner kernels are compiled: as far as it takes to link them into the kernels that call them.

Numba optimises a function, makes machine code of it, links it into its callers and optimises these,
at every level of the calls. An inner kernel never runs by itself, so what counts is done once, in
the kernel that is called from Python: that takes a quarter off the time to compile.
"""

from __future__ import annotations

from typing import Any

from llvmlite import binding
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import LoweringPass, register_pass
from numba.core.typed_passes import AnnotateTypes


class LinkedLibrary(JITCodeLibrary):  # type: ignore[misc]  # numba has no types
    """Code of a function that is only ever linked into that of others."""

    def _optimize_final_module(self) -> None:
        """The code it is linked into is optimised as a whole."""

    def _finalize_final_module(self) -> None:
        """No machine code is made; numba writes addresses to the variables of environments."""
        self._finalize_dynamic_globals()
        names = [variable.name for variable in self._final_module.global_variables]
        self._codegen._add_module(
            binding.parse_assembly(
                "\n".join(
                    f'@"{name}" = common global i64 0' for name in names if "NumbaEnv" in name
                )
            )
        )
        self._finalized = True


@register_pass(mutates_CFG=False, analysis_only=False)
class _LinkOnly(LoweringPass):  # type: ignore[misc]
    _name = "mdsd_opt_link_only"

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        state.library = LinkedLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        return True


class InnerCompiler(CompilerBase):  # type: ignore[misc]
    """Numba's compiler for functions that other compiled functions alone can call."""

    def define_pipelines(self) -> list[Any]:
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.add_pass_after(_LinkOnly, AnnotateTypes)
        passes.finalize()
        return [passes]
