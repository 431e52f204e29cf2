"""Runs a program on the simulator, without the runtime: what differential tests compare."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tvm_npu.codegen.program.format import Program, Segment
from tvm_npu.sim.nmp.machine import NmpMachine, load_nmp_machine, nmp_machine_from_dict
from tvm_npu.sim.nmp.simulator import NmpSimulator
from tvm_npu.sim.statistics import RunStatistics

ELEMENT_TYPES = {1: np.int8, 2: np.int16}


def simulate(
    program: Program, inputs: Mapping[str, np.ndarray], offset: int = 0, timing: bool = True
) -> tuple[dict[str, np.ndarray], RunStatistics]:
    """Outputs and statistics for inputs without a batch; ``offset`` moves the program in DRAM.

    DRAM is filled with a pattern first, so that nothing relies on zeros, and all semaphores must
    be zero again in the end."""
    machine = program.machine_description()
    base = machine.dram.base_address
    image = program.image(base + offset)
    debug = program.debug
    simulator = NmpSimulator(
        machine,
        image.code,
        image.entry_address,
        image.end_address - base,
        layer_names=[layer.name for layer in program.layers],
        layer_of=debug["layer"].astype(np.int32),
        stream_of=debug["stream"].astype(np.int8),
        tile_registers=[program.scopes[int(scope)] for scope in debug["scope"]],
        element_bytes=2 if program.precision == "int16" else 1,
    )
    code = image.addresses[Segment.CODE] - base
    simulator.dram[:code] = 0xA5
    simulator.dram[code + image.code.nbytes :] = 0xA5
    simulator.write(image.addresses[Segment.CONSTANTS], np.frombuffer(image.constants, np.uint8))
    for slot in program.inputs:
        simulator.write(image.address(slot), inputs[slot.name])
    statistics, codes = simulator.run(
        image.entry_address, {11: image.parameter_address}, timing=timing
    )
    assert not any(codes)
    state = simulator._state
    assert not state.sem_tlt.any() and not state.sem_tle.any() and not state.sem_global.any()
    outputs = {}
    for slot in program.outputs:
        begin = image.address(slot) - base
        flat = simulator.dram[begin : begin + slot.size_bytes]
        outputs[slot.name] = flat.view(ELEMENT_TYPES[slot.element_bytes]).reshape(slot.shape).copy()
    for slot in program.inputs:  # nothing may write them
        begin = image.address(slot) - base
        flat = simulator.dram[begin : begin + slot.size_bytes]
        kept = flat.view(ELEMENT_TYPES[slot.element_bytes]).reshape(slot.shape)
        assert np.array_equal(kept, inputs[slot.name])
    return outputs, statistics


def small_machine(
    tles: int = 1, tlts: int = 2, mb0: int = 512, mb1: int = 512, mb2: int = 512, **dme: int
) -> NmpMachine:
    """nmp-4x8 with other cores and scratchpads."""
    values = load_nmp_machine("nmp-4x8").model_dump()
    values["name"] = "small"
    values["cores"] |= {"tles": tles, "tlts_per_tle": tlts}
    values["memories"] |= {"mb0_bytes": mb0, "mb1_bytes": mb1, "mb2_bytes": mb2}
    values["dme"] |= dme
    return nmp_machine_from_dict(values)
