"""The PassContext of builds that the door starts itself."""

from __future__ import annotations

from typing import Any

import tvm

DISABLE_CSE = "tir.disable_cse_tir"


def build_context(opt_level: int, disabled_pass: tuple[str, ...] = ()) -> Any:
    """A PassContext at ``opt_level`` that keeps the caller's configuration and choice of passes.

    TVM 0.19 binds what common subexpression elimination finds to variables, and the LLVM of its
    wheel rejects those of type float ("location of #dbg_declare must be a pointer or int"): a
    bilinear resize could not be built. LLVM eliminates the same expressions, so the pass is off
    unless the caller's context says otherwise.
    """
    caller = tvm.transform.PassContext.current()
    config = {str(key): value for key, value in (caller.config or {}).items()}
    return tvm.transform.PassContext(
        opt_level=opt_level,
        required_pass=[str(name) for name in caller.required_pass],
        disabled_pass=[*(str(name) for name in caller.disabled_pass), *disabled_pass],
        config={DISABLE_CSE: True, **config},
    )
