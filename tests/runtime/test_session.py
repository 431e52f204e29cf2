"""Sessions: values, batches, messages, statistics, threads."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from tests.runtime.networks import MACS, compiled, machine, network
from tvm_npu.codegen.errors import ProgramError, QuantizationError
from tvm_npu.codegen.fixed_point import dequantize_tensor, quantize_tensor
from tvm_npu.codegen.program.parts import as_batch
from tvm_npu.codegen.reference import run_fixed
from tvm_npu.runtime.errors import RunError
from tvm_npu.runtime.session import Session
from tvm_npu.sim.statistics import RunStatistics
from tvm_npu.sim.traps import Trap

SMALL = machine()


def inputs(batch: int, seed: int = 0, precision: str = "int16") -> list[np.ndarray]:
    """Random integers at the inputs' types."""
    kind = {"int16": np.int16, "int8": np.int8}[precision]
    info = np.iinfo(kind)
    random = np.random.default_rng(seed)
    return [random.integers(info.min, info.max + 1, (batch, 3, 12, 12)).astype(kind) for _ in "xy"]


def expected(arrays: list[np.ndarray], precision: str = "int16") -> list[np.ndarray]:
    _, fixed = compiled(SMALL, precision)
    tensors = run_fixed(fixed, dict(zip(("x", "y"), arrays, strict=True)))
    return [tensors["z"], tensors["d"]]


def same(one: list[np.ndarray], two: list[np.ndarray]) -> bool:
    return all(np.array_equal(a, b) and a.dtype == b.dtype for a, b in zip(one, two, strict=True))


@pytest.mark.parametrize("precision", ["int16", "int8"])
@pytest.mark.parametrize("timing", [True, False])
def test_values_equal_the_reference(precision: str, timing: bool) -> None:
    program, _ = compiled(SMALL, precision)
    session = Session(program, timing=timing)
    for seed in range(2):  # a second run does not see what the first left behind
        arrays = inputs(3, seed, precision)
        assert same(session.run_fixed(arrays), expected(arrays, precision))
    assert (session.statistics.cycles > 0) == timing


def test_from_program_bytes_and_file(tmp_path: Path) -> None:
    program, _ = compiled(SMALL)
    path = tmp_path / "program.npu"
    program.to_file(path)
    arrays = inputs(1)
    sessions = [Session(program), Session(program.to_bytes()), Session.from_file(path)]
    results = [session.run_fixed(arrays) for session in sessions]
    assert same(results[0], expected(arrays))
    assert all(same(results[0], result) for result in results)
    assert len({session.statistics.cycles for session in sessions}) == 1
    damaged = bytearray(program.to_bytes())
    damaged[-1] ^= 1
    with pytest.raises(ProgramError):
        Session(bytes(damaged))
    with pytest.raises(OSError, match="absent"):
        Session.from_file(tmp_path / "absent.npu")


def test_float_inputs_and_outputs() -> None:
    program, fixed = compiled(SMALL)
    _, samples = network()
    session = Session(program)
    outputs = session.run([samples, samples[::-1]])
    points = fixed.q_points
    integers = [quantize_tensor(a, points[n], 2) for n, a in (("x", samples), ("y", samples[::-1]))]
    for output, name, values in zip(outputs, ("z", "d"), expected(integers), strict=True):
        assert output.dtype == np.float32
        assert np.array_equal(output, dequantize_tensor(values, points[name]))
    as_double = session.run([samples.astype(np.float64), samples[::-1].astype(np.float64)])
    assert same(outputs, as_double)
    with pytest.raises(QuantizationError, match=r"input 'x' of program .* NaN values in image 0"):
        session.run([np.full_like(samples, np.nan), samples])
    one = samples.copy()
    one[-1].flat[3] = np.nan
    with pytest.raises(QuantizationError, match=rf"'y' .* 1 NaN values in image {len(one) - 1};"):
        session.run([samples, one])
    with pytest.raises(RunError, match="'x' .* has type complex64; it takes real numbers"):
        session.run([samples + np.complex64(1j), samples])
    with pytest.raises(RunError, match="'y' .* has type object"):
        session.run([samples, None])  # type: ignore[list-item]
    with pytest.raises(RunError, match="'y' .* has type <U"):
        session.run([samples, "image.png"])  # type: ignore[list-item]
    with pytest.raises(RunError, match="'x' .* rows of different lengths are no array"):
        session.run([[[1.0], [1.0, 2.0]], samples])  # type: ignore[list-item]


def test_wrong_inputs_by_message() -> None:
    session = Session(compiled(SMALL)[0])
    x, y = inputs(2)
    for arrays, message in (
        ([x], r"takes 2 inputs, got 1"),
        ([x, y, y], r"takes 2 inputs, got 3"),
        ([x, y.astype(np.int8)], r"input 'y' has type int8, the program takes int16"),
        ([x.astype(np.float32), y], r"input 'x' has type float32, the program takes int16"),
        ([x, y[:, :2]], r"input 'y' has shape \(2, 2, 12, 12\), the program takes \(batch, 3, 12"),
        ([x[0], y[0]], r"input 'x' has shape \(3, 12, 12\), the program takes"),
        ([np.int16(3), y], r"input 'x' has shape \(\), the program takes"),
        ([x, y[:1]], r"batches of 2, 1 images"),
    ):
        with pytest.raises(RunError, match=message):
            session.run_fixed(arrays)
    with pytest.raises(RunError, match="takes 2 inputs, got 0"):
        session.run([])
    with pytest.raises(RunError, match=r"input 'x' has shape"):
        session.run([x[:, :, 1:].astype(np.float32), y.astype(np.float32)])
    assert session.statistics is None
    assert same(session.run_fixed([x, y]), expected([x, y]))


@pytest.mark.parametrize(
    ("given", "shape", "wanted"),
    [
        ((4, 1, 3), (4, 3), (1, 4, 3)),
        ((1, 1, 5), (5,), (1, 5)),
        ((2, 4, 3), (4, 3), (2, 4, 3)),
        ((1, 1, 3), (1, 3), (1, 1, 3)),
        ((3, 1, 4), (4, 3), (3, 1, 4)),
        ((1, 12, 12, 3), (3, 12, 12), (1, 12, 12, 3)),
        ((0, 4, 3), (4, 3), (0, 4, 3)),
        ((2, 4), (8,), (2, 4)),
    ],
)
def test_a_sequence_of_one_image_becomes_a_batch(
    given: tuple[int, ...], shape: tuple[int, ...], wanted: tuple[int, ...]
) -> None:
    values = np.arange(np.prod(given)).reshape(given)
    made = as_batch(values, shape)
    assert made.shape == wanted and made.reshape(-1).tolist() == values.reshape(-1).tolist()


def test_float_inputs_of_another_layout_are_refused() -> None:
    session = Session(compiled(SMALL)[0])
    swapped = [np.zeros((1, 12, 12, 3), np.float32) for _ in "xy"]
    with pytest.raises(RunError, match=r"has shape \(1, 12, 12, 3\)"):
        session.run(swapped)


def test_empty_batch() -> None:
    outputs = Session(compiled(SMALL)[0]).run_fixed(inputs(0))
    assert [o.shape for o in outputs] == [(0, 10), (0, 8, 12, 12)]


def check_sums(statistics: RunStatistics, images: int) -> None:
    assert statistics.runs == images
    assert statistics.macs == images * MACS == sum(layer.macs for layer in statistics.layers)
    for kind in ("loaded_bytes", "stored_bytes"):
        totals: dict[str, int] = {}
        for layer in statistics.layers:
            for stream, count in getattr(layer, kind).items():
                totals[stream] = totals.get(stream, 0) + count
        assert totals == getattr(statistics, kind) and totals
    assert sum(layer.instructions for layer in statistics.layers) <= statistics.instructions
    assert sum(layer.code_bytes for layer in statistics.layers) <= statistics.code_bytes
    layers = sum(layer.cycles for layer in statistics.layers)
    assert 0.9 * statistics.cycles < layers <= statistics.cycles * (1 + 1e-9)
    for layer in statistics.layers:
        for cores in (layer.busy_cycles("mac"), layer.wait_cycles("control")):
            assert len(cores) == SMALL.core_count
            assert all(0 <= value for value in cores)
        assert len(layer.busy_cycles("dma")) == SMALL.cores.tles
        assert all(0 <= value <= statistics.cycles for value in layer.busy_cycles("dma"))
    for unit, *of_layers in zip(
        statistics.units, *(layer.units for layer in statistics.layers), strict=True
    ):
        assert {unit.name} == {one.name for one in of_layers}
        assert sum(one.busy_cycles for one in of_layers) <= unit.busy_cycles * (1 + 1e-9)


def test_statistics_add_up() -> None:
    program, _ = compiled(SMALL)
    session = Session(program)
    assert session.statistics is None and session.total_statistics is None
    session.run_fixed(inputs(1))
    one = session.statistics
    check_sums(one, 1)
    peak = SMALL.macs_per_cycle(2) * SMALL.core_count
    assert one.mac_utilization == pytest.approx(MACS / (one.cycles * peak))
    assert one.time_us == pytest.approx(one.cycles / SMALL.frequency_mhz)
    # every output element of every layer leaves the chip once
    stored = {layer.name: layer.stored_bytes for layer in one.layers}
    assert sum(stored["dw"].values()) >= 2 * 8 * 144
    session.run_fixed(inputs(3, 1))
    three = session.statistics
    check_sums(three, 3)
    assert three.loaded_bytes == {k: 3 * v for k, v in one.loaded_bytes.items()}
    assert three.cycles == pytest.approx(3 * one.cycles)  # time does not depend on values
    assert three.mac_utilization == pytest.approx(one.mac_utilization)
    assert three.code_bytes == one.code_bytes
    check_sums(session.total_statistics, 4)
    assert session.total_statistics.cycles == pytest.approx(4 * one.cycles)


def test_statistics_are_json() -> None:
    session = Session(compiled(SMALL)[0])
    session.run_fixed(inputs(2))
    values = session.statistics.to_dict()
    again = json.loads(json.dumps(values, allow_nan=False))
    assert again["macs"] == 2 * MACS and again["runs"] == 2
    assert [layer["name"] for layer in again["layers"]] == [
        layer.name for layer in session.program.layers
    ]
    assert again["layers"][0]["units"][0].keys() == {
        "name", "role", "busy_cycles", "wait_cycles",
    }  # fmt: skip
    assert again["bytes_by_memory"]["dram"]["read_bytes"] == sum(
        again["bytes_by_link"]["loaded"].values()
    )
    units = ("cycles", "bytes", "_us", "_core", "_tle")
    counts = {"name", "machine", "runs", "macs", "mac_utilization", "instructions", "layers",
              "instruction_cache_misses", "bursts", "units", "bytes_by_link",
              "bytes_by_memory"}  # fmt: skip
    assert all(key in counts or key.endswith(units) for key in again), list(again)


def test_intermediate_tensors() -> None:
    program, fixed = compiled(SMALL)
    session = Session(program)
    arrays = inputs(1)
    session.run_fixed(arrays)
    tensors = run_fixed(fixed, dict(zip(("x", "y"), arrays, strict=True)))
    assert np.array_equal(session.read_intermediate("z"), tensors["z"][0])
    assert np.array_equal(session.read_intermediate("x"), arrays[0][0])
    with pytest.raises(RunError, match="no tensor 'nothing'"):
        session.read_intermediate("nothing")


def test_a_program_that_traps_leaves_the_session_usable() -> None:
    program, _ = compiled(SMALL)
    code = program.code.copy()
    position = int(np.flatnonzero(program.debug["layer"] == 1)[0])
    code[position] = 0x0010_0073  # ebreak
    session = Session(replace(program, code=code))
    arrays = inputs(1)
    for _ in range(2):
        with pytest.raises(Trap) as caught:
            session.run_fixed(arrays)
        assert caught.value.place.layer == program.layers[1].name
        assert caught.value.place.instruction == "ebreak"
    good = Session(program)
    assert same(good.run_fixed(arrays), expected(arrays))


def blas_threads() -> dict[str, int]:
    return {lib["filepath"]: lib["num_threads"] for lib in threadpool_info()
            if lib["user_api"] == "blas"}  # fmt: skip


def test_sessions_in_threads_give_the_same_bits() -> None:
    """Several sessions at once, and one session from several threads."""
    programs = [compiled(SMALL, "int16")[0], compiled(SMALL, "int8")[0]]
    jobs = [(k % 2, inputs(2, k, ("int16", "int8")[k % 2])) for k in range(8)]
    serial = [Session(programs[kind]).run_fixed(arrays) for kind, arrays in jobs]
    before = blas_threads()
    own = [Session(programs[kind]) for kind, _ in jobs]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda k: own[k].run_fixed(jobs[k][1]), range(8)))
    assert all(same(a, b) for a, b in zip(serial, results, strict=True))
    assert {s.statistics.cycles for s in own[::2]} == {own[0].statistics.cycles}
    shared = [Session(program) for program in programs]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda job: shared[job[0]].run_fixed(job[1]), jobs))
    assert all(same(a, b) for a, b in zip(serial, results, strict=True))
    assert [session.total_statistics.runs for session in shared] == [8, 8]
    assert blas_threads() == before


@pytest.mark.parametrize(
    ("part", "key", "values"),
    [
        ("dme", "bytes_per_cycle", (0.25, 0.5, 1.5, 6.0, 100.0)),
        ("dme", "burst_cycles", (300.0, 56.0, 8.0, 0.0)),
        ("dme", "linear_burst_cycles", (300.0, 56.0, 8.0, 0.0)),
        ("dram", "bytes_per_cycle", (0.25, 1.0, 4.0, 17.0)),
        ("mac", "efficiency", (0.05, 0.2, 0.75, 1.0)),
    ],
)
def test_a_better_machine_is_never_slower(part: str, key: str, values: tuple[float, ...]) -> None:
    """The same program bytes' code on machines that differ in one constant."""
    program, _ = compiled(SMALL)
    arrays = inputs(1)
    results, cycles = [], []
    for value in values:
        description = machine(**{part: {key: value}}).model_dump()
        session = Session(replace(program, machine=description))
        results.append(session.run_fixed(arrays))
        cycles.append(session.statistics.cycles)
    assert cycles == sorted(cycles, reverse=True) and cycles[0] > cycles[-1], cycles
    assert all(same(result, results[0]) for result in results)


def test_two_runs_take_the_same_cycles() -> None:
    session = Session(compiled(SMALL)[0])
    session.run_fixed(inputs(1))
    first = session.statistics
    session.run_fixed(inputs(1))
    assert session.statistics == first
