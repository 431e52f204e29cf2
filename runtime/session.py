"""A loaded program: quantizes what comes in, drives the simulator, dequantizes what comes out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.errors import QuantizationError
from tvm_npu.codegen.program.format import Program, Segment, TensorSlot
from tvm_npu.codegen.program.parts import STORED_TYPE, as_batch
from tvm_npu.runtime.errors import RunError
from tvm_npu.runtime.loading import program_image
from tvm_npu.sim.events import EventSink
from tvm_npu.sim.kinds import Simulator, load_program
from tvm_npu.sim.limits import DEFAULT, Limits, check_limits
from tvm_npu.sim.locks import ForkedLock
from tvm_npu.sim.statistics import RunStatistics, add, beside
from tvm_npu.sim.texts import shown
from tvm_npu.sim.watch import Watch

Array = NDArray[np.generic]

_REAL = "fiub"
"""Kinds of NumPy types that are real numbers."""


class Session:
    """One program on one simulated machine, on all of its devices; loads once, runs many.

    Safe to use from several threads: runs of one session take turns. ``timing`` turns the cycle
    model off for faster runs; the values do not change. ``limits`` bounds what loading and a run
    take: set it for programs of other people. ``budget`` is short for its instructions; of both
    the smaller number holds.
    ``observer``, when set, is called after every `run_fixed` with its inputs and outputs
    (integers).
    """

    def __init__(
        self,
        program: Program | bytes,
        *,
        timing: bool = True,
        budget: int | None = None,
        limits: Limits = DEFAULT,
    ) -> None:
        """Raises RunError and LimitError for arguments that are none, and ProgramError for bytes
        that are no program, and for a program that no file could hold (`Program.checked`)."""
        if isinstance(program, bytes | bytearray | memoryview):
            program = Program.from_bytes(program)
        elif not isinstance(program, Program):
            raise RunError(
                f"a session's program is a {type(program).__name__}; expected a Program or the "
                "bytes of its file (Session.from_file reads one)"
            )
        else:
            program = program.checked()
        check_limits(limits)
        self.program = program
        self.timing = timing
        self.observer: Callable[[list[Array], list[Array]], None] | None = None
        self.machine = self.program.machine_description()
        base = self.machine.dram.base_address
        self._image = self.program.image(base)
        self._lock = ForkedLock()
        self._runner = 0
        self._total: RunStatistics | None = None
        self._last: RunStatistics | None = None
        self._limits = limits if budget is None else limits.lowered(budget)
        self._devices: list[Simulator] = []
        self._used = self._device(0), 0

    @classmethod
    def from_file(
        cls, path: str | Path, *, timing: bool = True, limits: Limits = DEFAULT
    ) -> Session:
        """Raises OSError when there is no file, else as a session of its bytes."""
        return cls(Program.from_file(path), timing=timing, limits=limits)

    @property
    def statistics(self) -> RunStatistics | None:
        """Statistics of the last `run`, summed over its batch; None before the first."""
        return self._last

    @property
    def total_statistics(self) -> RunStatistics | None:
        """Statistics of all runs so far, summed; None before the first."""
        return self._total

    @property
    def devices(self) -> tuple[Simulator, ...]:
        """The simulators that are loaded: as many as a run has needed so far, one to begin with."""
        return tuple(self._devices)

    def _device(self, number: int) -> Simulator:
        """A device of the machine; loaded when it first gets an image."""
        while len(self._devices) <= number:
            image = program_image(self.program, self._image)
            self._devices.append(load_program(image, self.machine, self._limits))
        return self._devices[number]

    def run(
        self, inputs: Sequence[Array], *, events: EventSink | None = None
    ) -> list[NDArray[np.float32]]:
        """float arrays [B, *shape] in the program's input order -> float32 outputs [B, *shape].
        A sequence of one image may be [T, 1, N] for a shape (T, N). ``events`` as in
        `run_fixed`."""
        slots = self.program.inputs
        self._check_count(inputs)
        fixed = [self._quantized(array, slot) for array, slot in zip(inputs, slots, strict=True)]
        return [
            slot.scale.dequantize(array)
            for array, slot in zip(
                self.run_fixed(fixed, events=events), self.program.outputs, strict=True
            )
        ]

    def run_fixed(
        self,
        inputs: Sequence[Array],
        *,
        events: EventSink | None = None,
        watch: Watch | None = None,
    ) -> list[Array]:
        """Integers [B, *shape] at the inputs' scales -> integers at the outputs'. States begin each
        image's run as zeros.

        Images of a batch run one after another, as many together as the program computes in a run
        and the machine has devices; statistics are summed over them. Raises RunError
        for wrong inputs and `tvm_npu.sim.traps.Trap` when the simulated machine stops against the
        program's will. ``events`` gets what the machine's units did when, image by image; ``watch``
        sees the stores of simulators that can be watched.
        """
        self._check_count(inputs)
        for name, given, needed in (
            ("events", events, ("record",)), ("watch", watch, ("begins", "stored")),
        ):  # fmt: skip
            if given is not None and not all(hasattr(given, one) for one in needed):
                raise RunError(
                    f"{name} is a {type(given).__name__}; it needs {' and '.join(needed)}"
                )
        slots = self.program.inputs
        arrays = [self._checked(a, slot) for a, slot in zip(inputs, slots, strict=True)]
        batch = arrays[0].shape[0] if arrays else 1
        if any(array.shape[0] != batch for array in arrays):
            sizes = ", ".join(str(array.shape[0]) for array in arrays)
            raise RunError(f"program {self.program.name!r}: inputs have batches of {sizes} images")
        results = [
            np.empty((batch, *slot.shape), _element_type(slot)) for slot in self.program.outputs
        ]
        if self._lock.is_held() and self._runner == threading.get_ident():
            raise RunError(
                f"program {self.program.name!r}: a run began inside of a run of the same session, "
                "in what it calls: open a second session for it"
            )
        with self._lock():
            self._runner = threading.get_ident()
            try:
                self._run_all(batch, arrays, results, events, watch)
            finally:
                self._runner = 0
        if self.observer is not None:
            self.observer(arrays, results)
        return results

    def _run_all(
        self, batch: int, arrays: list[Array], results: list[Array],
        events: EventSink | None, watch: Watch | None,
    ) -> None:  # fmt: skip
        """``batch`` images, from ``arrays`` to ``results``."""
        self._last = None
        together = self.program.batch * self.machine.device_count
        for first in range(0, batch, together):
            images = range(first, min(first + together, batch))
            self._account(self._run_together(images, arrays, results, events, watch))

    def _run_together(
        self, images: range, arrays: list[Array], results: list[Array],
        events: EventSink | None, watch: Watch | None,
    ) -> RunStatistics:  # fmt: skip
        """At most as many images as all devices compute in one run, from ``arrays`` to
        ``results``."""
        each = self.program.batch
        runs = []
        for number in range(-(-len(images) // each)):
            device, mine = self._device(number), images[number * each : (number + 1) * each]
            for share, image in enumerate(mine):
                for array, slot in zip(arrays, self.program.inputs, strict=True):
                    device.write(self._address(slot, share), _stored(array[image], slot))
            self._clear_states(device)
            looks: dict[str, Any] = {"events": events}
            if watch is not None:
                watch.begins(device.dram)
                looks["watch"] = watch
            runs.append(replace(device.run(timing=self.timing, **looks), runs=len(mine)))
            for share, image in enumerate(mine):
                self._used = device, share
                for result, slot in zip(results, self.program.outputs, strict=True):
                    result[image] = self._read(slot)
        return beside(runs, self.machine.device_count)

    def _address(self, slot: TensorSlot, share: int) -> int:
        return self._image.address(slot) + share * self.program.share_bytes(slot.segment)

    def read_intermediate(self, name: str) -> Array:
        """The last image's tensor ``name`` as it lies in DRAM now (it may have been reused)."""
        program = self.program
        slots = (*program.inputs, *program.intermediates, *program.outputs, *program.states)
        for slot in slots:
            if slot.name == name:
                return self._read(slot)
        raise RunError(f"program {self.program.name!r} has no tensor {name!r}")

    def _read(self, slot: TensorSlot) -> Array:
        device, share = self._used
        begin = self._address(slot, share) - self.machine.dram.base_address
        stored = slot.view(device.dram, begin)
        return stored.astype(_element_type(slot), order="C").reshape(slot.shape)

    def _clear_states(self, device: Simulator) -> None:
        size_bytes = self.program.segments[Segment.STATES].size_bytes
        if size_bytes:
            zeros = np.zeros(size_bytes, np.uint8)
            device.write(self._image.addresses[Segment.STATES], zeros)

    def _account(self, run: RunStatistics) -> None:
        self._last = run if self._last is None else add(self._last, run)
        self._total = run if self._total is None else add(self._total, run)

    def _check_count(self, inputs: Sequence[Array]) -> None:
        listed = isinstance(inputs, Sequence) and not isinstance(inputs, str | bytes | bytearray)
        if not listed and not (isinstance(inputs, np.ndarray) and inputs.ndim):
            raise RunError(
                f"inputs of program {self.program.name!r} are a {type(inputs).__name__}; expected "
                f"a list of {len(self.program.inputs)} arrays, one an input"
            )
        if len(inputs) != len(self.program.inputs):
            raise RunError(
                f"program {self.program.name!r} takes {len(self.program.inputs)} inputs, "
                f"got {len(inputs)}"
            )

    def _quantized(self, array: Array, slot: TensorSlot) -> Array:
        """An input as integers; RunError for what are no real numbers, QuantizationError for NaN
        that names image, input, the nodes that the program stands for and what of the model gives
        NaN, where that is known: inputs of regions have names of their own (in0)."""
        where = f"input {slot.name!r} of program {self.program.name!r}"
        values = as_batch(_as_array(array, where), slot.shape)
        if values.dtype.kind not in _REAL:
            raise RunError(
                f"{where} has type {values.dtype}; it takes real numbers, such as float32 "
                "(of complex ones give the real part or the magnitude)"
            )
        try:
            return slot.scale.quantize(values, slot.element_bytes)
        except QuantizationError as error:
            wrong = np.isnan(values).reshape(len(values), -1).any(axis=1) if values.ndim else []
            images = np.flatnonzero(wrong)
            if not len(images):
                raise
            maker = f"what computes {slot.name!r}"
            if slot.source:
                maker = f"{shown(slot.source)} of the model"
            raise QuantizationError(
                f"{where}{self._nodes()}: {error} in image {images[0]}; {maker} gives NaN"
            ) from error

    def _nodes(self) -> str:
        """The model's nodes that the program computes first and last, where it says them."""
        sources = [name for layer in self.program.layers for name in layer.source if name]
        if not sources:
            return ""
        ends = dict.fromkeys((sources[0], sources[-1]))
        return f", which computes nodes {' to '.join(map(shown, ends))}"

    def _checked(self, array: Array, slot: TensorSlot) -> Array:
        array = _as_array(array, f"input {slot.name!r} of program {self.program.name!r}")
        wanted = _element_type(slot)
        if array.dtype != wanted:
            raise RunError(
                f"input {slot.name!r} has type {array.dtype}, the program takes {wanted}"
            )
        if not array.ndim or array.shape[1:] != slot.shape:
            raise RunError(
                f"input {slot.name!r} has shape {array.shape}, the program takes "
                f"(batch{''.join(f', {extent}' for extent in slot.shape)})"
            )
        return array


def _as_array(values: Any, where: str) -> Array:
    try:
        return np.asarray(values)
    except ValueError as error:
        raise RunError(f"{where}: rows of different lengths are no array: {error}") from error


def _stored(array: Array, slot: TensorSlot) -> Array:
    """An input as it lies in memory."""
    stored = array.astype(STORED_TYPE[slot.stored_bytes], copy=False)
    return stored.reshape(slot.planes, -1).T if slot.planes else stored


def _element_type(slot: TensorSlot) -> np.dtype[np.generic]:
    return np.dtype(np.int16 if slot.element_bytes == 2 else np.int8)
