"""The kinds of machines, by the name of their instruction set: the only list on this side.

A kind from outside is an entry point of the group ``tvm_npu.machine_kinds``: its name is the isa,
its value an object like those of `BUILT_IN`. Nothing of a kind is imported before it is asked for,
and its simulator not before it loads a program.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib import metadata
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.errors import KindError, SimError
from tvm_npu.sim.limits import DEFAULT, LimitError, Limits

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from tvm_npu.sim.events import EventSink
    from tvm_npu.sim.image import ProgramImage
    from tvm_npu.sim.isa.table import Isa
    from tvm_npu.sim.statistics import RunStatistics

ENTRY_POINTS = "tvm_npu.machine_kinds"
BUILT_IN = {
    "nmp": "tvm_npu.sim.nmp.kind:KIND",
    "snowflake": "tvm_npu.sim.snowflake.kind:KIND",
    "tiles": "tvm_npu.sim.tiles.kind:KIND",
}

FileReader = tuple[Callable[[str, str, Mapping[str, Any]], dict[str, Any]], str]
"""(reads (text, origin, values of the base machine) -> values to validate, name of the base)."""


MOST_STATISTICS_ROWS = 1 << 20
"""A run's statistics have one for each unit of each layer."""
_STATISTICS_BYTES = 400
"""Of a row, about: counted, and as a `UnitStatistics`."""
_DECODING_BYTES = 32
"""Of a word, while it is decoded: it, its place and its operands as int64."""


@dataclass(frozen=True)
class CodeFault:
    """What of a code no machine of its kind could have been given: ``found`` instead of
    ``expected``."""

    what: str
    found: object
    expected: object


def chip_bytes(machine: MachineDescription) -> int:
    """Of all memories on one device's chip."""
    return sum(unit.capacity_bytes for unit in machine.units() if unit.part != "dram")


def illegal_word(words: NDArray[np.uint32], isa: Isa) -> CodeFault | None:
    """The first word that is no instruction, for kinds whose code holds nothing else."""
    rows = (isa.decode_array(words)[:, 0] < 0).nonzero()[0]
    if not len(rows):
        return None
    first = f"{int(words[rows[0]]):#010x} at {int(rows[0])}"
    return CodeFault("word of the code that is no instruction", first, "none")


class Simulator(Protocol):
    """A simulated machine, or one device of it, that holds one program: loads once, runs many
    times."""

    @property
    def dram(self) -> NDArray[np.uint8]:
        """The program's DRAM, from the machine's base address on; a view, writable."""

    def write(self, address: int, data: NDArray[Any]) -> None:
        """Copies bytes into DRAM; SimError when they leave it."""

    def run(self, *, timing: bool = True, events: EventSink | None = None) -> RunStatistics:
        """One run. Raises Trap when the machine stops against the program's will. Values do not
        depend on ``timing``; neither they nor the statistics depend on ``events``, which gets the
        run's events. A simulator that can be watched (`sim.watch`) takes ``watch``, too."""


class MachineKind(Protocol):
    """What the project asks of a kind of machine. A kind inherits here what it leaves out."""

    @property
    def description(self) -> type[MachineDescription]:
        """What a machine file of this kind is validated as."""

    @property
    def isa(self) -> Isa:
        """The instructions; ``isa.name`` is the kind's name."""

    @property
    def holds_addresses(self) -> bool:
        """Whether code or constants may hold absolute addresses, which loading relocates."""
        return False

    @property
    def hidden_locations(self) -> tuple[str, ...]:
        """Parts of pydantic's locations that no file has as keys."""
        return ()

    @property
    def readers(self) -> Mapping[str, FileReader]:
        """Other formats of machine files, by the file's suffix."""
        return {}

    @property
    def machines(self) -> Traversable | None:
        """A folder of machine files that come with a kind from outside."""
        return None

    def drop_alternatives(self, base: dict[str, Any], values: Mapping[str, Any]) -> None:
        """Takes out of ``base`` what ``values``, which extend it, replace by an alternative."""
        return

    def code_fault(
        self, words: NDArray[np.uint32], machine: MachineDescription
    ) -> CodeFault | None:
        """The first thing that keeps ``machine`` from running code, as far as it can be told
        before the code runs."""
        return illegal_word(words, self.isa)

    def check_image(self, image: ProgramImage, machine: MachineDescription) -> None:
        """SimError for an image that ``machine`` cannot hold, whatever its code does. That it fits
        the DRAM is known."""
        return

    def host_bytes(self, machine: MachineDescription, dram_bytes: int) -> int:
        """Memory that a simulator of one device takes of the host, about: its DRAM, and memories on
        the chip with their content as numbers."""
        return dram_bytes + 16 * chip_bytes(machine)

    def code_host_bytes(self, words: NDArray[np.uint32], machine: MachineDescription) -> int:
        """Memory that a simulator takes of the host for code, about: as it is, decoded, with layer
        and stream of each word, what decoding takes meanwhile, and what only some instructions
        use."""
        return len(words) * (4 * (3 + len(self.isa.columns)) + _DECODING_BYTES)

    def load(
        self, image: ProgramImage, machine: MachineDescription, limits: Limits
    ) -> Simulator:
        """A simulator of ``machine`` with the image's code; `load_program` writes the content, and
        has checked image and memory. Runs trap that take more work or instructions than ``limits``
        say."""


@dataclass(frozen=True)
class ElfRun:
    """What a bare-metal executable came to: registers by name, and `memory`, which gives bytes at
    an address or raises SimError where the program has none."""

    exit_code: int
    statistics: RunStatistics
    registers: Mapping[str, int]
    memory: Callable[[int, int], bytes]


@dataclass(frozen=True)
class ElfLeft:
    """What a bare-metal executable leaves behind where it ends or traps: how many ``instructions``
    it has executed, registers and memory as in `ElfRun`."""

    instructions: int
    registers: Mapping[str, int]
    memory: Callable[[int, int], bytes]


@dataclass(frozen=True)
class ElfObserver:
    """Gets what a bare-metal executable writes to its console, lines about its last
    ``trace_instructions`` instructions, and what it leaves behind, also where it traps. ``ranges``
    (address, size) that will be asked of the run's memory are looked at before it runs."""

    console: Callable[[bytes], object] = bytes
    trace: Callable[[list[str]], object] = list
    trace_instructions: int = 0
    ranges: tuple[tuple[int, int], ...] = ()
    left: Callable[[ElfLeft], object] = id


QUIET = ElfObserver()


@runtime_checkable
class RunsElf(Protocol):
    """A capability of some kinds: machines that run bare-metal executables."""

    @property
    def start_files(self) -> Path:
        """A folder with a linker script and start-up code for such executables."""

    def run_elf(
        self, path: Path, machine: MachineDescription, limits: Limits,
        observer: ElfObserver = QUIET,
    ) -> ElfRun:  # fmt: skip
        """Runs an ELF file on one core; ElfError for a file that is none."""

    def elf_summary(self, path: Path, limits: Limits) -> str:
        """What an ELF file holds, in words; ElfError for a file that is none, LimitError for one
        that takes more than ``limits`` say."""


_PARTS = (
    "description", "isa", "holds_addresses", "hidden_locations", "readers", "machines",
    "drop_alternatives", "code_fault", "load",
)  # fmt: skip
"""Of a `MachineKind`; a kind from outside is refused without one of them."""


@lru_cache(maxsize=1)
def _outside() -> dict[str, tuple[metadata.EntryPoint, ...]]:
    """Entry points by name. Packages that are found twice on the path count once."""
    found: dict[str, dict[tuple[str, str], metadata.EntryPoint]] = {}
    for point in metadata.entry_points(group=ENTRY_POINTS):
        found.setdefault(point.name, {})[_package(point), point.value] = point
    return {
        name: tuple(point for _, point in sorted(points.items(), key=lambda item: item[0]))
        for name, points in sorted(found.items())
    }


def _package(point: metadata.EntryPoint) -> str:
    distribution = getattr(point, "dist", None)
    return "an unknown package" if distribution is None else f"package {distribution.name!r}"


def isa_names() -> tuple[str, ...]:
    """The known instruction sets, built-in ones first."""
    return (*BUILT_IN, *(name for name in _outside() if name not in BUILT_IN))


@lru_cache(maxsize=64)
def machine_kind(isa: str) -> MachineKind:
    """The kind called ``isa``. Raises KindError, with the known ones, for another name, and, with
    the name of the package, for one from outside that does not load."""
    if isa in BUILT_IN:
        module, _, name = BUILT_IN[isa].partition(":")
        kind: MachineKind = getattr(importlib.import_module(module), name)
        return kind
    if isa in _outside():
        return _load(isa, _outside()[isa])
    known = ", ".join(map(repr, isa_names()))
    raise KindError(f"no kind of machine has the isa {isa!r}; there are {known}")


def _load(isa: str, points: tuple[metadata.EntryPoint, ...]) -> MachineKind:
    point = points[0]
    origin = f"kind of machine {isa!r} of {_package(point)} ({point.value})"
    if len(points) > 1:
        packages = ", ".join(f"{_package(one)} ({one.value})" for one in points)
        raise KindError(f"kind of machine {isa!r} comes more than once: {packages}; keep one")
    try:
        kind: MachineKind = point.load()
        missing = [part for part in _PARTS if not hasattr(kind, part)]
        name = "" if missing else kind.isa.name
    except Exception as error:  # whatever the other package's code does
        raise KindError(f"{origin} does not load: {type(error).__name__}: {error}") from error
    if missing:
        raise KindError(f"{origin} has no {', '.join(missing)}")
    if name != isa:
        raise KindError(f"{origin} has an isa called {name!r}; the two names must be the same")
    return kind


@lru_cache(maxsize=1)
def outside_problems() -> tuple[str, ...]:
    """Why kinds of installed packages cannot be used, a sentence each."""
    problems = []
    for isa, points in _outside().items():
        if isa in BUILT_IN:
            packages = ", ".join(f"{_package(point)} ({point.value})" for point in points)
            problems.append(
                f"kind of machine {isa!r} of {packages} is refused: tvm-npu has a kind of this "
                "name; call the entry point and its isa something else"
            )
            continue
        try:
            machine_kind(isa)
        except KindError as error:
            problems.append(str(error))
    return tuple(problems)


def usable_kinds() -> dict[str, MachineKind]:
    """The kinds that load, by isa; `outside_problems` says why others do not."""
    kinds = {}
    for isa in isa_names():
        try:
            kinds[isa] = machine_kind(isa)
        except KindError:
            if isa in BUILT_IN:
                raise
    return kinds


def file_readers() -> dict[str, FileReader]:
    """Other formats of machine files than TOML, of all kinds, by suffix; built-in kinds first."""
    readers: dict[str, FileReader] = {}
    for kind in usable_kinds().values():
        for suffix, reader in kind.readers.items():
            readers.setdefault(suffix, reader)
    return readers


def machine_folders() -> tuple[Traversable, ...]:
    """Folders of machine files that come with kinds from outside."""
    folders = (kind.machines for isa, kind in usable_kinds().items() if isa not in BUILT_IN)
    return tuple(folder for folder in folders if folder is not None)


def host_bytes(
    machine: MachineDescription, dram_bytes: int, *codes: NDArray[np.uint32]
) -> int:
    """Memory that a simulator of one device takes of the host, about, with that of its code."""
    kind = machine_kind(machine.isa)
    device = getattr(kind, "host_bytes", partial(MachineKind.host_bytes, kind))
    code = getattr(kind, "code_host_bytes", partial(MachineKind.code_host_bytes, kind))
    return int(device(machine, dram_bytes)) + sum(int(code(words, machine)) for words in codes)


def _statistics_rows(image: ProgramImage, machine: MachineDescription) -> int:
    """0 for a machine that does not say its units."""
    try:
        units = sum(unit.role != "memory" for unit in machine.units())
    except NotImplementedError:
        return 0
    return units * (1 + len(image.layer_names))


def check_loads(image: ProgramImage, machine: MachineDescription, limits: Limits) -> None:
    """All that `load_program` asks of an image: SimError when ``machine`` cannot hold it,
    LimitError when a simulator of it needs more memory than it may take."""
    from tvm_npu.sim.dram import check_room

    kind, needed = machine_kind(machine.isa), 0
    size = image.end_address - machine.dram.base_address
    check_room(machine, size)
    rows = _statistics_rows(image, machine)
    if rows > MOST_STATISTICS_ROWS:
        raise SimError(
            f"program {image.name!r}: {len(image.layer_names)} layers on {machine.name} have "
            f"{rows} rows of statistics, one for each unit of each layer; at most "
            f"{MOST_STATISTICS_ROWS}: compile the model in smaller parts"
        )
    getattr(kind, "check_image", partial(MachineKind.check_image, kind))(image, machine)
    if limits.host_bytes is not None:
        needed = host_bytes(machine, size, *(code.words for code in image.codes))
        needed += _STATISTICS_BYTES * rows
    limits.check_memory(f"program {image.name!r} on {machine.name}", size, needed)


def load_program(
    image: ProgramImage, machine: MachineDescription, limits: Limits = DEFAULT
) -> Simulator:
    """A simulator of ``machine`` with ``image`` loaded: code, and what lies in DRAM at first.
    Raises as `check_loads`, and LimitError where there is no memory for a simulator."""
    check_loads(image, machine, limits)
    try:
        simulator = machine_kind(machine.isa).load(image, machine, limits)
    except MemoryError as error:
        text = f"program {image.name!r} on {machine.name}: no memory for a simulator of it"
        raise LimitError(text) from error
    for address, data in image.content.items():
        simulator.write(address, data)
    return simulator
