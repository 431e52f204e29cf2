"""Bad programs stop with an error that names instruction, layer, value and limit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.sim.snowflake.programs import (
    ACTIVATIONS,
    CONSTANT_BYTES,
    END,
    NOP,
    load,
    machine,
    sets,
    simulator,
    store,
    words,
)
from tvm_npu.sim.errors import SimError
from tvm_npu.sim.snowflake.isa import BANK_INSTRUCTIONS, SNOWFLAKE_ISA
from tvm_npu.sim.snowflake.simulator import Segment, SnowflakeSimulator
from tvm_npu.sim.snowflake.traps import SnowflakeTrapCode as Code
from tvm_npu.sim.traps import Trap


def trapped(text: str, name: str = "snowflake-1cc", **options: Any) -> Trap:
    lines = len(words(text + END))
    found = simulator(text + END, machine(name), layer_names=["a", "b"],
                      layer_of=[np.ones(lines, np.int32)] * machine(name).core_count,
                      **options)  # fmt: skip
    for timing in (True, False):
        with pytest.raises(Trap) as caught:
            found.run(timing=timing)
    return caught.value


MAC = "mac coop, result, r1, r2, 64"
INDP = "mac indp, result, r1, r2, 64"


@pytest.mark.parametrize(
    ("values", "instruction", "message"),
    [
        ({"r1": 32705}, MAC, r"words 32705..32768 of MBuf, which has 32768"),
        ({"r1": -1}, MAC, r"words -1..62 of MBuf"),
        ({"r1": -(1 << 31)}, MAC, r"of MBuf"),
        ({"r2": 16321}, MAC, r"words 16321..16384 of WBuf, which has 16384"),
        ({"r2": 15376}, INDP, r"words 15376..16399 of WBuf"),
        ({"r2": 8}, INDP, r"b is 8; it has to be a multiple of 16"),
        ({"out": 32753}, MAC, r"words 32753..32768 of MBuf"),
        ({"outputs": 17}, MAC, r"OUTPUTS is 17; allowed here are 1 to 16"),
        ({"outputs": 65}, INDP, r"OUTPUTS is 65; allowed here are 1 to 64"),
        ({"outputs": 0}, "vmov bias, indp, r1", r"OUTPUTS is 0"),
        ({"cus": 0}, MAC, r"CUS is 0; allowed here are 1 to 15"),
        ({"cus": 16}, "max r1, r2, 5", r"CUS is 16"),
        ({"target": 0}, MAC, r"TARGET is 0"),
        ({"shift": 64}, MAC, r"SHIFT is 64; allowed here are -46 to 63"),
        ({"low": 5, "high": 4}, MAC, r"HIGH is 4; allowed here are 5 to 32767"),
        ({"low": -40000}, MAC, r"LOW is -40000"),
        ({"divisor": 0}, MAC, r"DIVISOR is 0"),
        ({"sum_shift": 16}, MAC, r"SUM_SHIFT is 16"),
        ({"residual_shift": -1}, MAC, r"RESIDUAL_SHIFT is -1"),
        ({"lane_step": 2100}, "mac lane, keep, r1, r2, 17", r"words 0..33663 of MBuf"),
        ({"lane_step": -1}, "mac lane, keep, r1, r2, 17", r"LANE_STEP is -1"),
        ({"lane_step": 1 << 20}, "mac lane, keep, r1, r2, 2", r"of MBuf"),
        ({"shift_b": 47}, "mac add, result, r1, r2, 5", r"SHIFT_B is 47"),
        ({"table_bits": 1}, "mac table, result, r1, r2, 5", r"words 0..32768 of WBuf"),
        ({"table_bits": 16}, "mac table, result, r1, r2, 5", r"TABLE_BITS is 16"),
        ({}, "mac multiply, keep, r1, r2, 5", r"finish is 0; allowed here are 1 to 1"),
        ({"r2": 32765}, "max r1, r2, 5", r"words 32765..32769 of MBuf"),
        ({"r1": 32767}, "vmov sums, coop, r1", r"words 32767..\d+ of MBuf"),
        ({"r1": 16383}, "vmov bias, coop, r1", r"words 16383..16384 of WBuf"),
        ({"r3": 0}, "ld mbuf, r1, r2, r3, 15, all, own, in", r"words is 0; allowed here are 1"),
        ({"r3": 40000}, "ld mbuf, r1, r2, r3, 15, all, own, in", r"words is 40000"),
        ({"r1": 3}, "ld mbuf, r1, r2, r3, 15, all, own, in", r"memory is 3; it has to be a mult"),
        ({"r1": -2}, "ld mbuf, r1, r2, r3, 15, all, own, in", r"bytes -2..29 of memory"),
        ({"r1": CONSTANT_BYTES - 30}, "ld mbuf, r1, r2, r3, 15, all, own, in", r"no one segment"),
        ({"r1": 64}, "tmov r1, r2, r3, 0, out", r"bytes 64..95 of memory, a segment of constants"),
        ({"r2": 32760}, "ld mbuf, r1, r2, r3, 15, all, own, in", r"32760..32775 of MBuf"),
        ({"r2": 16380}, "ld wbuf, r1, r2, r3, 15, v1, own, in", r"16380..16395 of WBuf"),
        ({}, "ld mbuf, r1, r2, r3, 0, all, own, in", r"cus is 0; allowed here are 1 to 15"),
        ({}, "ld wbuf, r1, r2, r3, 15, 5, own, in", r"vmac is 5"),
        ({}, "ld mbuf, r1, r2, r3, 15, all, own, 7", r"stream is 7"),
        ({}, "ld 3, r1, r2, r3, 15, all, own, in", r"buffer is 3"),
        ({"ld_runs": 0}, "ld mbuf, r1, r2, r3, 15, all, own, in", r"LD_RUNS is 0"),
        ({"ld_runs": 3, "ld_memory_step": 7}, "ld mbuf, r1, r2, r3, 15, all, own, in",
         r"LD_MEMORY_STEP is 7; it has to be a multiple of 2"),
        ({"ld_runs": 3, "ld_buffer_step": -8}, "ld mbuf, r1, r2, r3, 15, all, own, in",
         r"words -16..15 of MBuf"),
        ({"st_runs": 65536, "st_memory_step": 1 << 20, "r1": ACTIVATIONS},
         "tmov r1, r2, r3, 0, out", r"no one segment"),
        ({"r3": 2}, "ld icache, r1, r2, r3, 0, all, own, other", r"bank 0; it comes from bank 0"),
        ({"r2": 100}, "ld icache, r1, r2, r3, 0, all, own, other", r"place is 100"),
        ({"r2": 512, "r3": 1026}, "ld icache, r1, r2, r3, 0, all, own, other", r"words is 1026"),
        ({"r2": 512, "r1": 4000}, "ld icache, r1, r2, r3, 0, all, own, other", r"code\) is 4000"),
        ({}, "sync 6, 0", r"what is 6"),
        ({}, "vmov 3, coop, r1", r"what is 3"),
        ({}, "mac 7, keep, r1, r2, 1", r"mode is 7"),
        ({}, "mac coop, 3, r1, r2, 1", r"finish is 3"),
    ],
)  # fmt: skip
def test_operands(values: dict[str, int], instruction: str, message: str) -> None:
    outputs = 16 if "coop" in instruction else 64
    text = sets(**{"outputs": outputs, "r1": 0, "r2": 0, "r3": 16} | values) + f"{NOP}\n"
    error = trapped(text + instruction + "\n")
    assert error.place.layer == "b" and error.place.index == len(words(text))
    assert error.place.instruction.split()[0] == instruction.split()[0]
    with pytest.raises(Trap, match=message):
        raise error
    for name, value in values.items():
        if name in ("r1", "r2", "r3"):
            assert error.place.registers.get(name.upper(), value) == value


def test_cus_that_a_machine_has_not() -> None:
    assert "cu is 1; allowed here are 0 to 0" in str(
        trapped(store(ACTIVATIONS, 0, 4, 1), "snowflake-1cu")
    )
    assert "cus is 2" in str(trapped(load("mbuf", 0, 0, 4, 2), "snowflake-1cu"))


def test_a_branch_in_a_delay_slot() -> None:
    for first in (0, 1):  # taken or not
        text = f"movi r1, {first}\nthere: beq r1, r2, there\n{NOP}\nbeq r1, r2, there\n"
        error = trapped(text + f"{NOP}\n" * 4)
        assert error.code is Code.BRANCH_IN_SLOT and error.place.index == 3


def test_the_code_ends_without_an_end() -> None:
    on = machine("snowflake-1cu")
    found = SnowflakeSimulator(on, [words(NOP)], [], 0)
    with pytest.raises(Trap, match="no instruction at place 1 .*: the bank holds none"):
        found.run()
    bad = np.array([0xFFFFFFFF], np.uint32)
    found = SnowflakeSimulator(on, [bad], [], 0)
    with pytest.raises(Trap, match="at place 0 .*: .word 0xffffffff"):
        found.run()
    with pytest.raises(Trap, match="no instruction at place 0"):
        SnowflakeSimulator(on, [words(NOP)[:0]], [], 0).run()
    # The second bank was never loaded.
    text = words(f"{NOP}\n" * BANK_INSTRUCTIONS + END)
    with pytest.raises(Trap, match="no instruction at place 512"):
        SnowflakeSimulator(on, [text], [], 0).run()


def test_an_endless_loop() -> None:
    text = f"again: beq r1, r1, again\n{NOP}\n{NOP}\n{NOP}\n{NOP}\n"
    assert trapped(text, budget=1 << 14).code is Code.RUNAWAY
    long = sets(outputs=4, r1=0) + "mac indp, keep, r1, r1, 1000\n" * 4
    assert trapped(long, most_work=1 << 17).code is Code.BUDGET


def test_transfers_without_a_barrier() -> None:
    """What clusters have moved since the last one is kept to compare it: so much, and no more."""
    text = sets(r25=0, r26=0, r27=1, r1=0) + "again: ld mbuf, r25, r26, r27, 1, all, own, in\n"
    text += f"beq r1, r1, again\n{NOP}\n{NOP}\n{NOP}\n{NOP}\n"
    on = machine("snowflake-2cc")
    found = simulator([text, END], on)
    with pytest.raises(Trap, match="more than 524288 transfers of a cluster") as caught:
        found.run(timing=False)
    assert caught.value.code is Code.NO_BARRIER


def test_sums_that_do_not_fit() -> None:
    """2**30 * 4096 = 2**42 a trace: 32 of them are one too many for 48 bits."""
    on = machine("snowflake-1cu")
    data = np.full(4096, -(1 << 15), np.int16)
    start = load("mbuf", 0, 0, 4096, 1) + load("wbuf", 0, 0, 4096, 1) + "sync all, 0\n"
    start += sets(outputs=1, r1=0)
    trace = "mac coop, keep, r1, r1, 4096\n"
    simulator(start + trace * 31 + END, on, data).run()
    with pytest.raises(Trap, match="a sum of CU 0 does not fit 48 bits") as caught:
        simulator(start + trace * 32 + END, on, data).run()
    assert caught.value.code is Code.SUM_OVERFLOW


@pytest.mark.parametrize("first", ["sync clusters, 0\n", load("mbuf", 0, 0, 4, shared="shared")])
def test_clusters_that_do_not_come(first: str) -> None:
    wait = first + "sync all, 0\n"
    found = simulator([wait + END, END], machine("snowflake-2cc"))
    with pytest.raises(Trap, match="cluster 1 does not come") as caught:
        found.run()
    assert caught.value.place.unit == "cluster 0" and caught.value.code is Code.NO_PARTNER
    found = simulator([END, wait + END], machine("snowflake-2cc"))
    with pytest.raises(Trap, match="cluster 0 does not come"):
        found.run()


def test_shared_loads_that_differ() -> None:
    texts = [load("mbuf", 64 * k, 0, 4, shared="shared") + END for k in range(2)]
    with pytest.raises(Trap, match="differs from the one that cluster 0 has come to"):
        simulator(texts, machine("snowflake-2cc")).run()


def test_images_that_do_not_fit() -> None:
    on = machine("snowflake-2cc")
    base = on.dram.base_address
    code = [words(END)] * 2
    with pytest.raises(SimError, match="1 code images; snowflake-2cc has 2 clusters"):
        SnowflakeSimulator(on, code[:1], [], 64)
    with pytest.raises(SimError, match="does not lie in the image's 64 bytes"):
        SnowflakeSimulator(on, code, [Segment(base, 65, True)], 64)
    with pytest.raises(SimError, match="needs .* bytes of DRAM"):
        SnowflakeSimulator(on, code, [], 1 << 40)
    with pytest.raises(SimError, match="layer_of needs a number"):
        SnowflakeSimulator(on, code, [], 64, layer_names=["a"], layer_of=[np.ones(1, np.int32)] * 2)
    with pytest.raises(SimError, match="do not lie in the image"):
        SnowflakeSimulator(on, code, [], 64).write(base + 60, np.zeros(8, np.uint8))


@settings(deadline=None, max_examples=examples(300), phases=[Phase.explicit, Phase.generate])
@given(st.integers(0, 1 << 60), st.sampled_from(("1cu", "1cc", "2cc")))
def test_random_code_runs_or_traps(seed: int, name: str) -> None:
    """Random instructions, with registers that often point somewhere: nothing but a trap or an end,
    and nothing outside of the image changes."""
    rng = np.random.default_rng(seed)
    on = machine(f"snowflake-{name}")
    count = int(rng.integers(5, 120))
    code = np.empty(count, np.uint32)
    items = SNOWFLAKE_ISA.instructions
    for row in range(count):
        item = items[int(rng.integers(len(items)))]
        operands = {}
        for field in item.fields:
            low, high = field.low // field.step, field.high // field.step
            if rng.random() < 0.6:
                low, high = max(low, -64), min(high, 64)
            operands[field.name] = int(rng.integers(low, high + 1)) * field.step
        code[row] = item.encode(**operands)
    base = on.dram.base_address
    segments = [Segment(base, 4096, False), Segment(base + 4096, 4096, True)]
    found = SnowflakeSimulator(on, [code] * on.core_count, segments, 8192, budget=1 << 16,
                               most_work=1 << 22)  # fmt: skip
    image = rng.integers(-99, 99, 4096).astype(np.int16)
    found.write(base, image)
    try:
        found.run()
    except Trap as error:
        assert str(error)
    assert np.array_equal(found.dram[:4096].view(np.int16), image[:2048])
