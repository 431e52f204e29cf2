"""Networks under planners on machines of every kind: compiled, simulated, values checked."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from studies.harness.errors import StudyError
from studies.shared.networks import Network, prepare
from studies.shared.simulation import check_values
from tvm_npu.codegen.compile import Generated, generate
from tvm_npu.codegen.errors import CodegenError
from tvm_npu.codegen.plan import planner
from tvm_npu.codegen.program.format import Program
from tvm_npu.runtime.session import Session
from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.statistics import RunStatistics


@lru_cache(maxsize=1)
def network_on(model: str, machine: MachineDescription) -> Network:
    """Prepared with the machine's own precision. StudyError where that fails."""
    try:
        return prepare(model, machine, machine.default_precision)
    except CodegenError as error:
        raise StudyError(f"model {model!r}, machine {machine.name!r}: {error}") from error


def simulated(
    model: str, machine: MachineDescription, name: str
) -> Iterator[tuple[Generated, Program, RunStatistics]]:
    """Every region under the planner ``name``. StudyError when a value differs from the
    reference's in any bit, and for what cannot be compiled."""
    for region in network_on(model, machine).regions:
        try:
            generated = generate(region.fixed, machine, planner(name))
            program = generated.program()
        except CodegenError as error:
            where = f"model {model!r}, machine {machine.name!r}, planner {name!r}"
            raise StudyError(f"{where}: {error}") from error
        session = Session(program)
        check_values(model, name, region, session.run_fixed(region.inputs))
        assert session.statistics is not None
        yield generated, program, session.statistics
