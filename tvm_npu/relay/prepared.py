"""Programs that are made ahead of a build, and stand-ins for the regions that they are of.

`relay.build` infers the types of every function of a module some seventy times. A region has all
the layers of a network in it, a stand-in of the same type has none: 4 of 6 seconds of a ResNet-50.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import tvm
from tvm import relay

from tvm_npu.door.program_section import StoredProgram, stored
from tvm_npu.door.region import MarkedRegion
from tvm_npu.relay import operands as of

PREPARED = "npu.prepared"
"""Attribute of a stand-in: the digest of its region's program."""
_programs: dict[str, StoredProgram] = {}


@contextmanager
def prepared(mod: tvm.IRModule, regions: dict[str, MarkedRegion]) -> Iterator[tvm.IRModule]:
    """``mod`` with stand-ins for its ``regions``, by symbol; inside of the block `program_of` has
    their programs. Raises what `MarkedRegion.compiled` raises."""
    light = tvm.IRModule(dict(mod.functions), mod.type_definitions, attrs=mod.attrs)
    digests = []
    try:
        for symbol, region in regions.items():
            program = stored(region)
            digests.append(program.digest)
            _programs[program.digest] = program
            light[symbol] = stand_in(mod[symbol]).with_attr(PREPARED, program.digest)
        yield light
    finally:
        for digest in digests:
            _programs.pop(digest, None)


def program_of(function: relay.Function) -> StoredProgram | None:
    """The program that was made ahead for a stand-in; None for a region itself."""
    digest = function.attrs.get_str(PREPARED) if PREPARED in function.attrs else None
    return None if digest is None else _programs[digest]


def stand_in(function: relay.Function) -> relay.Function:
    """A function of the same parameters, type and attributes that computes nothing of it; types
    are checked."""
    found = function.body.checked_type
    zeros = [relay.zeros(of.static_shape(one), one.dtype) for one in of.tensor_types(found)]
    body = relay.Tuple(zeros) if isinstance(found, tvm.ir.TupleType) else zeros[0]
    params = [relay.Var(var.name_hint, var.checked_type) for var in function.params]
    return relay.Function(params, body, found, attrs=function.attrs)
