"""What the project asks of a kind of machine to generate code for it: the protocol `Backend`.

A kind implements it in one object (`backends` lists them) and inherits here what it leaves out.
Everything that takes a machine gets one of the backend's own kind.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from tvm_npu.codegen.plan.limits import NO_LIMITS, TileLimits

if TYPE_CHECKING:
    from tvm_npu.codegen.graph import FixedGraph, FixedLayer, Shape
    from tvm_npu.codegen.graph_bound import GraphBound
    from tvm_npu.codegen.least import LeastNeeds
    from tvm_npu.codegen.passes.storage import Layout, Storage
    from tvm_npu.codegen.plan.faults import PlanFault
    from tvm_npu.codegen.plan.layers import LayerPlanner, PlannedLayer
    from tvm_npu.codegen.plan.loops.plan import Step
    from tvm_npu.codegen.plan.loops.questions import LoopPlannerFactory, LoopQuestion
    from tvm_npu.codegen.plan.planner import Planner
    from tvm_npu.codegen.plan.problem import ConvProblem, Infeasible, Prediction
    from tvm_npu.codegen.program.code import Code
    from tvm_npu.codegen.program.format import Program
    from tvm_npu.codegen.tune.space import Space
    from tvm_npu.sim.description import MachineDescription
    from tvm_npu.sim.machine_parts import Precision

M = TypeVar("M", bound="MachineDescription", contravariant=True)
"""The kind's description."""
P = TypeVar("P")
"""The kind's plan of a convolution: an immutable dataclass with the fields ``prediction`` and
``planner``, which other fields do not hang on; its choices are what the layer table shows."""

P_text = TypeVar("P_text", contravariant=True)

Images = Literal["together", "apart"]
"""What the units of a device that could work alone (clusters) do with a batch: share every image,
or compute an image each."""

PlannerFactory = Callable[[str, TileLimits], "Planner"]
"""Makes the planner of a name, which keeps to the limits."""


@dataclass(frozen=True)
class PlannedGraph:
    """What a backend emits code for: ``layers`` in order of execution, planned, and the places of
    their tensors. ``planner`` is the name of whose plans these are."""

    fixed: FixedGraph
    machine: MachineDescription
    precision: Precision
    storage: Storage
    layers: tuple[PlannedLayer, ...]
    planner: str
    images: Images = "together"


class Emitted(Protocol):
    """A region's code before it becomes words."""

    def text(self, layer: int) -> str:
        """The command level of a layer, for people."""

    def assemble(self) -> Code:
        """Words, constants and tables."""


class PlanTexts(Protocol[M, P_text]):
    """Execution plans as text: a kind that runs such texts has one (`Backend.texts`). What `read`
    gives is the kind's own."""

    def write(
        self, problem: ConvProblem, plan: P_text, machine: M, comment: tuple[str, ...]
    ) -> str:
        """A plan for the machine. EmitError for one that does not fit it."""

    def write_steps(
        self, problem: ConvProblem, steps: Iterable[Step], machine: M, comment: tuple[str, ...]
    ) -> str:
        """The tiles of a plan for a machine of any kind (`Backend.steps`), for this machine."""

    def read(self, text: str) -> Any:
        """Checked; CodegenError with the line of what is wrong."""

    def precision(self, read: Any, machine: M) -> Precision:
        """The precision whose widths are the text's."""

    def check_fits(self, read: Any, machine: M) -> None:
        """EmitError where text and machine do not fit each other; nothing is computed."""

    def random_bytes(self, read: Any, element_bytes: Literal[1, 2]) -> int:
        """What a run of `random_layer` takes of the host beside the simulator, about."""

    def random_layer(
        self, read: Any, element_bytes: Literal[1, 2], seed: int, name: str
    ) -> FixedGraph:
        """A graph of the text's convolution with random weights."""

    def program(self, read: Any, fixed: FixedGraph, machine: M) -> Program:
        """EmitError where text, graph and machine do not fit each other."""


class Backend(Protocol[M, P]):
    """One kind of machines. The questions of layers may be of any hashable type; those of
    convolutions and fully connected layers are `ConvProblem`s, which all planners can be asked."""

    # --- what a door may give the machine ------------------------------------------------------

    @property
    @abstractmethod
    def layer_types(self) -> frozenset[type[FixedLayer]]:
        """Layers that code can be emitted for; `passes.storage.LAYOUT_ONLY` needs none."""

    def made(self, machine: M) -> frozenset[type]:
        """What `passes.fuse.fuse` may make for a machine: layers, and activations other than clips
        that its requantize step does."""
        return self.layer_types

    @property
    def mixes_precisions(self) -> bool:
        """Whether a program can have layers of several precisions, and copies and requantize steps
        whose results have another one than their operands."""
        return False

    def common(self, machine: M) -> tuple[int, ...]:
        """Of what planners keep (`plan.kept`): machines that have it in common answer the same. A
        sweep evaluates these one after the other."""
        return ()

    @property
    def layout(self) -> Layout:
        """How tensors lie in the memory outside of the chip."""
        return "channels first"

    @property
    def layers_beside(self) -> int:
        """How many layers behind a layer may run at the same time."""
        return 0

    @abstractmethod
    def least_needs(self, machine: M, precision: Precision) -> LeastNeeds:
        """What layers need of the machine's memories, whatever the planner."""

    # --- questions and answers -----------------------------------------------------------------

    @abstractmethod
    def problem(
        self, layer: FixedLayer, shapes: Mapping[str, Shape], precision: Precision, machine: M
    ) -> Any:
        """What is asked about a layer: all that its plan depends on, hashable, so that equal layers
        are planned once. EmitError for a layer of another type than `layer_types`."""

    @abstractmethod
    def plan(self, problem: Any, machine: M, chosen: Planner, limits: TileLimits) -> Any:
        """The answer, or Infeasible: that of ``chosen`` to a ConvProblem, the kind's own to others.
        ``chosen`` is what `RegisteredPlanner.on` gives for this machine, or a caller's planner."""

    def rewrite(self, fixed: FixedGraph, planner: LayerPlanner, machine: M) -> FixedGraph:
        """``fixed`` with layers that run faster as one (by ``planner``) made one."""
        return fixed

    def candidates(self, fixed: FixedGraph, machine: M) -> Iterable[FixedLayer]:
        """The layers that `rewrite` might make, for tuners."""
        return ()

    @abstractmethod
    def check(self, problem: ConvProblem, plan: P, machine: M) -> PlanFault | None:
        """The first fault of a convolution's plan, found independently of planners."""

    @abstractmethod
    def predict(self, problem: ConvProblem, plan: P, machine: M) -> Prediction:
        """What the cost model expects of a sound plan. PlanningError for one with a fault."""

    @abstractmethod
    def predicted_cycles(
        self, layer: FixedLayer, problem: Any, plan: Any, machine: M
    ) -> float | None:
        """What a planned layer of any type is expected to take; None where nobody knows."""

    def check_length(self, layers: tuple[PlannedLayer, ...], machine: M) -> None:
        """CapacityError where the code of a region's layers, which have no predictions yet, is too
        long by their plans."""
        return

    def in_sequence(self, layers: tuple[PlannedLayer, ...], machine: M) -> tuple[PlannedLayer, ...]:
        """The layers of a region in the order in which they run, with predictions that know what
        comes before."""
        return layers

    def graph_bound(self, planned: PlannedGraph, machine: M) -> GraphBound | None:
        """What no plan of a region's layers beats in a run of the program, joined in whatever way;
        None where nobody knows."""
        return None

    # --- planners ------------------------------------------------------------------------------

    def planners(self) -> Mapping[str, PlannerFactory]:
        """Planners of the kind's own plans; they come before planners of loops of the same name."""
        return {}

    def loop_planners(self) -> Mapping[str, LoopPlannerFactory]:
        """Those of `planners` that can also plan loops, for machines of other kinds."""
        return {}

    def loop_questions(
        self, problem: ConvProblem, machine: M, limits: TileLimits, splits_memory: bool
    ) -> Iterator[LoopQuestion[P]]:
        """What planners of loops are asked about a layer; with ``splits_memory`` only about
        machines with `SplitMemories`. Nothing: they cannot plan this kind."""
        return iter(())

    def otherwise(
        self, problem: ConvProblem, machine: M, limits: TileLimits
    ) -> P | Infeasible | None:
        """The plan where no answer to `loop_questions` could be realized; None: Infeasible."""
        return None

    # --- code ----------------------------------------------------------------------------------

    def apart(self, machine: M) -> Any:
        """The machine as each image sees it when several are computed at a time, which plans are
        made for with images "apart"; None where a run computes one image."""
        return None

    @abstractmethod
    def emit(self, planned: PlannedGraph, machine: M) -> Emitted:
        """The code of a region. EmitError for plans that the machine cannot run."""

    def steps(self, problem: ConvProblem, plan: P, machine: M) -> Iterator[Step]:
        """The tiles of a plan, core after core, in order of execution, as an execution plan in text
        lists them. EmitError where that cannot be said."""
        from tvm_npu.codegen.errors import EmitError

        raise EmitError(f"plans for machine {machine.name!r} cannot be written as text")

    @property
    def texts(self) -> PlanTexts[M, P] | None:
        """Execution plans in text that run on machines of this kind."""
        return None

    # --- tuning --------------------------------------------------------------------------------

    @property
    def is_tunable(self) -> bool:
        """Whether there is a `space` of the kind's plans, which tuners search."""
        return False

    def space(self, problem: ConvProblem, machine: M) -> Space[P]:
        """All plans of a layer, where the kind `is_tunable`; PlanningError elsewhere."""
        from tvm_npu.codegen.tune.space import untunable

        raise untunable(machine)

    def shortlist(
        self, problem: ConvProblem, machine: M, count: int, limits: TileLimits = NO_LIMITS
    ) -> tuple[P, ...] | Infeasible | None:
        """The best plans by the cost model, predicted, the best first, to be ranked anew by
        measurements; None where the kind has no such list."""
        return None

    def warm_plans(self, problem: ConvProblem, machine: M) -> Iterable[P]:
        """With which a tuner may begin, the best first."""
        return ()

    def trial_fault(self, problem: ConvProblem, plan: P, machine: M) -> str | None:
        """Why a plan is not worth a trial, whatever a tuner thinks of it."""
        return None
