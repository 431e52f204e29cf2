"""Watches a run store by store and finds the first one that makes a tensor wrong.

A layer is judged when the first layer that reads its outputs stores something; one that lacks
values then, when others take its memory, or at the end: its outputs' bytes are what the reference
says, or the earliest store that is to blame is named.
Stores to bytes of another tensor that is still needed are found at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.program.format import Program, Segment
from tvm_npu.sim.traps import Trap
from tvm_npu.sim.watch import Store
from tvm_npu.verification.finding import Divergence, Element, Kind
from tvm_npu.verification.reference import Places, Reference

NOBODY = -1
Bytes = NDArray[np.int64]


class Found(Exception):  # noqa: N818 - no error: it ends a watched run
    """The run need not go on: there is a divergence."""

    def __init__(self, divergence: Divergence) -> None:
        super().__init__(divergence)
        self.divergence = divergence


@dataclass(frozen=True, eq=False)
class _Seen:
    """A store and which bytes of the activations it changed."""

    store: Store
    changed: Bytes


@dataclass(eq=False)
class _Running:
    """A layer that has begun: the bytes of its outputs, what they should be, and which of its
    stores (`seen`) changed each last."""

    number: int
    mask: NDArray[np.bool_]
    wanted: NDArray[np.uint8]
    writer: NDArray[np.int32]
    seen: list[_Seen] = field(default_factory=list)
    astray: list[int] = field(default_factory=list)


class Tracker:
    """`sim.watch.Watch` of one run. ``base`` is the address at which the simulator's memory
    begins."""

    def __init__(self, program: Program, reference: Reference, base: int) -> None:
        self._reference = reference
        self._dram = self._shadow = np.zeros(0, np.uint8)
        begin = program.placement(base)[Segment.ACTIVATIONS] - base
        self._begin, self._places = begin, Places(program, reference)
        self._running: dict[int, _Running] = {}
        self._judged: set[int] = set()
        tensors = (t for one in reference.layers for t in (*one.inputs, *one.outputs))
        self._any_tensor = self._places.mask(tuple(reference.slots))
        self._live = {tensor: reference.live(tensor) for tensor in dict.fromkeys(tensors)}

    # --- during the run ------------------------------------------------------------------------

    def begins(self, dram: NDArray[np.uint8]) -> None:
        """Memory that nothing lies in yet gets what it should not become: every store shows."""
        begin, layers = self._begin, self._reference.layers
        memory = dram[begin : begin + self._places.size_bytes]
        inputs = self._places.mask(self._reference.inputs)
        kept = memory[inputs]
        for layer in reversed(layers):
            mask = self._places.mask(layer.outputs)
            memory[mask] = ~self._places.wanted(layer.outputs)[mask]
        memory[inputs] = kept
        self._dram, self._shadow = dram, dram.copy()

    def stored(self, stores: Sequence[Store]) -> None:
        """Raises Found."""
        for store in stores:
            span = store.within
            changed = np.flatnonzero(self._dram[span] != self._shadow[span]) + span.start
            self._see(store, changed - self._begin)
            self._shadow[changed] = self._dram[changed]

    def _see(self, store: Store, changed: Bytes) -> None:
        if (changed < 0).any():
            first = int(changed.min()) + self._begin
            raise Found(self._stray(store, None, f"byte {first} of code or constants"))
        changed = changed[changed < self._places.size_bytes]
        if store.layer is None or store.layer in self._judged:
            self._check_others(store, changed, max(self._running, default=0) + 1)
            return
        running = self._layer(store.layer)
        number = len(running.seen)
        running.seen.append(_Seen(store, changed))
        own = running.mask[changed]
        if not own.all():
            self._check_others(store, changed[~own], store.layer)
            if self._any_tensor[changed[~own]].any():
                running.astray.append(number)
        running.writer[changed[own]] = number

    def _layer(self, number: int) -> _Running:
        """Judges the layers that it reads from when it begins."""
        if number in self._running:
            return self._running[number]
        layer = self._reference.layers[number]
        read, made = self._places.mask(layer.inputs), self._places.mask(layer.outputs)
        for before in range(number):
            if before in self._judged:
                continue
            mask = self._begun(before).mask
            if (mask & made).any():
                self._judge(before)
            elif (mask & read).any():
                self._judge(before, is_over=False)
        return self._begun(number)

    def _begun(self, number: int) -> _Running:
        if number not in self._running:
            outputs = self._reference.layers[number].outputs
            self._running[number] = _Running(
                number,
                self._places.mask(outputs),
                self._places.wanted(outputs),
                np.full(self._places.size_bytes, NOBODY, np.int32),
            )
        return self._running[number]

    def _check_others(self, store: Store, changed: Bytes, layer: int) -> None:
        """Whether a store hits a tensor that somebody still reads."""
        now = self._dram[self._begin :]
        for tensor, (made, read) in self._live.items():
            if not made < layer <= read:
                continue
            hit = changed[self._places.mask((tensor,))[changed]]
            wrong = hit[now[hit] != self._places.wanted((tensor,))[hit]]
            if len(wrong):
                found = self._element(tensor, int(wrong[0]), self._dram)
                raise Found(self._stray(store, found, ""))

    # --- at the end ----------------------------------------------------------------------------

    def finish(self) -> None:
        """The run has ended. Raises Found."""
        self._shadow[:] = self._dram
        for number in range(len(self._reference.layers)):
            if number in self._running or (number not in self._judged and self._is_output(number)):
                self._begun(number)
                self._judge(number)

    def trapped(self, trap: Trap | Exception) -> Divergence:
        """What was wrong when the machine stopped: a store before, or what stopped it."""
        self._shadow[:] = self._dram
        for number in sorted(self._running):
            running = self._running[number]
            blamed = self._wrong(running)
            blamed = blamed[running.writer[blamed] != NOBODY]
            if len(blamed):
                return self._blame(running, blamed, str(trap))
        place = trap.place if isinstance(trap, Trap) else None
        layer = "" if place is None else place.layer
        names = [one.name for one in self._reference.layers]
        number_of = names.index(layer) if layer in names else None
        return Divergence("trap", layer, number_of, place, trap=str(trap))

    def layers_only(self) -> None:
        """After a run that nobody watched: whether tensors that still lie in memory are right.
        Raises Found."""
        self._shadow[:] = self._dram
        layers = self._reference.layers
        masks = [self._places.mask(layer.outputs) for layer in layers]
        for number, mask in enumerate(masks):
            if any((mask & later).any() for later in masks[number + 1 :]):
                continue
            running = self._begun(number)
            wrong = self._wrong(running)
            if len(wrong):
                raise Found(self._told(running, wrong, "layer", None, int(wrong[0])))
            del self._running[number]

    def _is_output(self, number: int) -> bool:
        end = len(self._reference.layers)
        return any(self._live[t][1] == end for t in self._reference.layers[number].outputs)

    # --- judging -------------------------------------------------------------------------------

    def _judge(self, number: int, is_over: bool = True) -> None:
        """Raises Found, for an earlier layer that is wrong, if there is one. A layer that is not
        over may lack values."""
        wrong = self._wrong(self._running[number])
        if not len(wrong):
            del self._running[number]
            self._judged.add(number)
            return
        if not is_over and (self._running[number].writer[wrong] == NOBODY).all():
            return
        for before in sorted(one for one in self._running if one <= number):
            wrong = self._wrong(self._running[before])
            if len(wrong):
                raise Found(self._blame(self._running[before], wrong, ""))

    def _wrong(self, running: _Running) -> Bytes:
        now = self._shadow[self._begin : self._begin + self._places.size_bytes]
        return np.flatnonzero(running.mask & (now != running.wanted))

    def _blame(self, running: _Running, wrong: Bytes, trap: str) -> Divergence:
        writers = running.writer[wrong]
        stored = writers != NOBODY
        suspects = set(writers[stored].tolist())
        if not stored.all():
            suspects |= set(running.astray)
        if not suspects:
            return self._missing(running, wrong, trap)
        first = min(suspects)
        mine = wrong[writers == first]
        at = int(mine[0]) if len(mine) else int(wrong[0])
        return self._told(running, wrong, "value", running.seen[first], at, trap)

    def _missing(self, running: _Running, wrong: Bytes, trap: str) -> Divergence:
        """A store that changed nothing; or the one behind the first missing byte, or else that in
        front of it."""
        at = int(wrong[0])
        idle = [one for one in running.seen if not len(one.changed)]
        if idle:
            return self._told(running, wrong, "missing", idle[0], at, trap)
        behind = [one for one in running.seen if one.changed[-1] > at]
        near = min(behind, key=lambda one: int(one.changed[-1])) if behind else None
        if near is None and running.seen:
            near = max(running.seen, key=lambda one: int(one.changed[-1]))
        return self._told(running, wrong, "missing", near, at, trap)

    def _told(
        self, running: _Running, wrong: Bytes, kind: Kind, seen: _Seen | None, at: int,
        trap: str = "",
    ) -> Divergence:  # fmt: skip
        layer = self._reference.layers[running.number]
        tensor = self._places.owner(at, layer.outputs)
        assert tensor is not None  # masks are made of the layer's outputs
        slot = self._reference.slots[tensor]
        expected = self._reference.values[tensor]
        now = slot.view(self._shadow, self._begin + slot.offset)
        return Divergence(
            kind,
            layer.name,
            running.number,
            None if seen is None else seen.store.place,
            self._element(tensor, at, self._shadow),
            () if seen is None or kind == "missing" else self._box(tensor, seen.changed),
            int((now != expected.reshape(now.shape)).sum()),
            expected.size,
            trap,
        )

    def _box(self, tensor: str, changed: Bytes) -> tuple[tuple[int, int], ...]:
        inside = changed[self._places.mask((tensor,))[changed]]
        if not len(inside):
            return ()
        found = np.array([self._places.element(tensor, int(byte)) for byte in inside])
        return tuple(zip(found.min(axis=0).tolist(), (found.max(axis=0) + 1).tolist(), strict=True))

    def _stray(self, store: Store, element: Element | None, where: str) -> Divergence:
        names = [one.name for one in self._reference.layers]
        layer = "" if store.layer is None else names[store.layer]
        return Divergence("stray", layer, store.layer, store.place, element, trap=where)

    def _element(self, tensor: str, byte: int, memory: NDArray[np.uint8]) -> Element:
        slot = self._reference.slots[tensor]
        index = self._places.element(tensor, byte)
        view = slot.view(memory, self._begin + slot.offset)
        found = int(view.reshape(slot.shape)[index])
        expected = int(self._reference.values[tensor].reshape(slot.shape)[index])
        real = slot.scale.dequantize(np.array([found, expected]))
        return Element(tensor, index, found, expected, float(real[0]), float(real[1]))
