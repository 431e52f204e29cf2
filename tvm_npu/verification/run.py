"""Runs programs and models, and says where they first part from the reference."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tvm_npu.calibration import Sample, samples_from, synthetic
from tvm_npu.codegen.backend import PlannedGraph
from tvm_npu.codegen.compile import Generated
from tvm_npu.codegen.graph import Array
from tvm_npu.codegen.program.format import Program
from tvm_npu.codegen.program.parts import as_batches
from tvm_npu.codegen.reference import run_fixed
from tvm_npu.door.given_inputs import given_shapes
from tvm_npu.door.models import PartitionedModel, import_onnx
from tvm_npu.door.onnx.model import load_model
from tvm_npu.errors import PartitionError, VerificationError
from tvm_npu.options import DEFAULT_MACHINE, make_options
from tvm_npu.runtime.session import Session
from tvm_npu.sim.errors import SimError
from tvm_npu.sim.limits import DEFAULT, Limits, check_limits
from tvm_npu.sim.texts import shown
from tvm_npu.sim.watch import can_be_watched
from tvm_npu.verification.finding import Divergence
from tvm_npu.verification.reference import Reference
from tvm_npu.verification.tracker import Found, Tracker

SCHEMA = "tvm-npu verify 1"


@dataclass(frozen=True)
class Verification:
    """Of one region: how many layers its program has, and the first divergence (None: every tensor
    of every layer is what the reference says)."""

    region: str
    layers: int
    divergence: Divergence | None

    def to_dict(self) -> dict[str, Any]:
        return {"schema": SCHEMA, **asdict(self)}


def verify_program(
    program: Program,
    planned: PlannedGraph,
    inputs: Mapping[str, Array],
    limits: Limits = DEFAULT,
) -> Divergence | None:
    """The first place where a run of ``program`` parts from the reference of ``planned``, of which
    it should be a program (`codegen.compile.generate`); ``inputs`` are integers [1, *shape].

    The run is one without the cycle model: where a machine finds races there, a race is a
    divergence. Raises InputError for inputs that are not those of the graph."""
    reference = Reference.of(planned, program, inputs)
    session = Session(program, timing=False, limits=limits)
    tracker = Tracker(program, reference, session.machine.dram.base_address)
    watched = can_be_watched(session.devices[0])
    arrays = [inputs[name] for name in planned.fixed.inputs]
    try:
        if not watched:
            return _unwatched(session, arrays, tracker)
        try:
            session.run_fixed(arrays, watch=tracker)
        except SimError as error:
            return tracker.trapped(error)
        tracker.finish()
    except Found as found:
        return found.divergence
    return None


def _unwatched(session: Session, arrays: list[Array], tracker: Tracker) -> Divergence | None:
    """What can be told of a simulator that says nothing of its stores. Raises Found."""
    tracker.begins(session.devices[0].dram)
    try:
        session.run_fixed(arrays)
    except SimError as error:
        return tracker.trapped(error)
    tracker.layers_only()
    return None


class _Region:
    """A region's runner: by the reference, after a first verification."""

    def __init__(self, symbol: str, generated: Generated, program: Program, limits: Limits) -> None:
        self._planned, self._program, self._limits = generated.planned, program, limits
        self._symbol = symbol
        self.verifications: list[Verification] = []

    def run(self, arrays: Sequence[Any]) -> list[Any]:
        """The region's float outputs, as it should compute them."""
        fixed = self._planned.fixed
        integers = {
            name: fixed.scales[name].quantize(values, fixed.width_of(name))
            for name, values in as_batches(arrays, fixed.inputs, fixed.shapes).items()
        }
        first = {name: array[:1] for name, array in integers.items()}
        found = verify_program(self._program, self._planned, first, self._limits)
        self.verifications.append(Verification(self._symbol, len(self._program.layers), found))
        tensors = run_fixed(fixed, integers)
        return [fixed.scales[name].dequantize(tensors[name]) for name in fixed.outputs]


def verify_regions(
    partitioned: PartitionedModel,
    samples: Iterable[Sample],
    programs: Mapping[str, Program] | None = None,
    limits: Limits = DEFAULT,
) -> Iterator[Verification]:
    """For every sample every region, in execution order; each gets what the reference computes in
    front of it. ``programs`` (by symbol) run in the place of those that compile now. Raises
    VerificationError for one that is of another model or machine."""
    _check_programs(programs, partitioned.symbols)
    runners = {}
    for symbol in partitioned.symbols:
        generated = partitioned.region(symbol).generated()
        program = (programs or {}).get(symbol)
        if program is None:
            program = generated.program()
        else:
            _check_same(program, generated.program())
        runners[symbol] = _Region(symbol, generated, program, limits)
    for sample in samples:
        partitioned.run_regions(runners, [sample])
        for symbol in partitioned.symbols:
            yield from runners[symbol].verifications
            runners[symbol].verifications.clear()


def _check_programs(programs: object, symbols: Sequence[str]) -> None:
    """VerificationError for programs that no region would run."""
    if programs is None:
        return
    if not isinstance(programs, Mapping):
        raise VerificationError(f"programs are {shown(programs)}; expected a dict by region")
    for symbol, program in programs.items():
        if symbol not in symbols:
            raise VerificationError(
                f"a program is given for region {shown(symbol)}; there are {', '.join(symbols)}"
            )
        if not isinstance(program, Program):
            raise VerificationError(
                f"the program of region {symbol} is {shown(program)}; expected a Program"
            )


def _check_same(given: Program, made: Program) -> None:
    """Tables that tell where tensors lie must be the same; code and constants may differ."""
    for what in ("inputs", "outputs", "intermediates", "machine"):
        if getattr(given, what) != getattr(made, what):
            raise VerificationError(
                f"program {given.name!r} has other {what} than the model's region compiles to now: "
                "give the machine, precision, planner and calibration that it was made with"
            )
    names = [[layer.name for layer in one.layers] for one in (given, made)]
    if names[0] != names[1]:
        raise VerificationError(
            f"program {given.name!r} has the layers {', '.join(names[0])}; the model's region has "
            f"{', '.join(names[1])}"
        )


def verify(
    model: Any,
    machine: str | Path = DEFAULT_MACHINE,
    calibration: Any = None,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    inputs: Mapping[str, Any] | None = None,
    programs: Mapping[str, Program] | None = None,
    limits: Limits = DEFAULT,
    **options: Any,
) -> tuple[Verification, ...]:
    """Compiles an ONNX model (an onnx.ModelProto, or the path of a file) for ``machine`` and holds
    each region's program to the reference, tensor by tensor, for one inference.

    ``inputs`` are the model's, by name (left out: the first sample of the calibration data, or
    random ones); ``programs`` as `verify_regions` takes them, the other arguments as
    `tvm_npu.profile`. Raises what that raises, and VerificationError."""
    check_limits(limits)
    chosen = make_options(machine, **options)
    imported = import_onnx(load_model(model), given_shapes(shapes))
    data = None if calibration is None else list(samples_from(calibration, imported.inputs))
    partitioned = imported.partition(chosen, data)
    if not partitioned.symbols:
        raise PartitionError("no operator runs on the NPU: there is nothing to verify")
    if inputs is not None:
        samples = list(samples_from([inputs], imported.inputs))
    else:
        samples = list(data or synthetic(imported.inputs, chosen.seed))[:1]
    return tuple(verify_regions(partitioned, samples, programs, limits))
