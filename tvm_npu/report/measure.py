"""`tvm_npu.profile`: from a model to what it costs, in one call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tvm_npu.calibration import images_of_run, samples_from, synthetic
from tvm_npu.codegen.program.format import Program
from tvm_npu.door.given_inputs import given_shapes
from tvm_npu.door.models import PartitionedModel, import_onnx
from tvm_npu.door.onnx.model import load_model
from tvm_npu.errors import PartitionError, TargetError
from tvm_npu.options import DEFAULT_MACHINE, make_options
from tvm_npu.report.model_graph import graph_of_onnx
from tvm_npu.report.profile import Profile, profile_of
from tvm_npu.report.runs import EventRoom, RegionRun
from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.frames import Tabular
from tvm_npu.sim.limits import DEFAULT, Limits, check_limits
from tvm_npu.sim.numbers import check_whole
from tvm_npu.sim.texts import encoded
from tvm_npu.sim.whole_files import write_whole

if TYPE_CHECKING:
    from tvm_npu.report.shares import Shares


@dataclass(frozen=True)
class ProfiledModel(Tabular):
    """A profile with what it was made of: ``model`` is the onnx.ModelProto."""

    model: Any
    profile: Profile
    runs: tuple[RegionRun, ...]
    partitioned: PartitionedModel

    shown_columns = Profile.shown_columns

    def flat_rows(self) -> list[dict[str, Any]]:
        """A row for each layer, as those of `Profile`."""
        return self.profile.flat_rows()

    @property
    def programs(self) -> dict[str, Program]:
        """The compiled regions by symbol, whose tables show the layers' plans."""
        return {run.symbol: run.session.program for run in self.runs}

    def shares(self) -> dict[str, list[Shares]]:
        """Which part of the machine made which part of each layer's outputs, by layer; empty lists
        where the machine does not say where its stores write."""
        from tvm_npu.report.shares import region_shares

        return {
            layer.name: shares
            for run in self.runs
            for layer, shares in zip(run.session.program.layers, region_shares(run), strict=True)
        }

    def write_html(self, path: str | Path) -> None:
        """The report as one page that opens offline. PageError without Bokeh and Jinja2."""
        from tvm_npu.report.page import make_page

        graph = graph_of_onnx(self.model, self.profile.layers, self.profile.report.refusals)
        write_whole(path, encoded(make_page(self.profile, self.runs, graph)))

    def write_trace(self, path: str | Path, layers: str | None = None) -> None:
        """What every unit did when, for Perfetto; ``layers`` is ``FIRST:LAST``. TraceError for a
        layer that the model does not have."""
        from tvm_npu.report.trace import make_trace

        trace = make_trace(self.runs, self.profile.report.refusals, layers)
        write_whole(path, trace.content)

    def write_overlay(self, path: str | Path, value: str = "time_us") -> None:
        """The model with what was found as metadata of its nodes, for Netron; or, to a path that
        ends in .json, Model Explorer's node data, by one ``value`` of `overlay.VALUES`. Raises
        OverlayError."""
        from tvm_npu.report.overlay import notes_by_node, overlay_bytes

        notes = notes_by_node(self.model, self.profile, self.partitioned.fixed_graphs().values())
        write_whole(path, overlay_bytes(Path(path), self.model, notes, value))


def profile(
    model: Any,
    machine: MachineDescription | str | Path = DEFAULT_MACHINE,
    calibration: Any = None,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    runs: int = 1,
    limits: Limits = DEFAULT,
    **options: Any,
) -> ProfiledModel:
    """Compiles an ONNX model (an onnx.ModelProto, or the path of a file) for ``machine`` and runs
    its NPU regions ``runs`` times on the simulator.

    ``calibration`` and ``options`` (``precision``, ``planner``, ``percentile``, ``seed`` ...) as
    `partition_for_npu` takes them; ``shapes`` fills open shapes of inputs; ``limits``
    bound what each region's simulator takes. Raises what `partition_for_npu` raises, PartitionError
    when no operator runs on the NPU, and LimitError or the machine's trap at a limit.
    """
    check_whole(runs, "runs", TargetError, 1)
    check_limits(limits)
    chosen = make_options(machine, **options)
    proto = load_model(model)
    imported = import_onnx(proto, given_shapes(shapes))
    data = None if calibration is None else list(samples_from(calibration, imported.inputs))
    partitioned = imported.partition(chosen, data)
    report = partitioned.report
    if not report.regions:
        raise PartitionError(f"no operator runs on the NPU ({len(report.refusals)} on the CPU)")
    room = EventRoom()
    made = tuple(
        RegionRun.of(symbol, partitioned.region(symbol).generated(), True, True, limits, room)
        for symbol in partitioned.symbols
    )
    samples: Iterable[Any] = synthetic(imported.inputs, chosen.seed) if data is None else data
    partitioned.run_regions({run.symbol: run for run in made}, islice(cycle(samples), runs))
    name = str(model) if isinstance(model, str | Path) else proto.graph.name
    source = None if data is None else "given data"
    images = images_of_run(imported.inputs)
    found = profile_of(
        made, report, name, images=images, calibration=source, seed=chosen.seed
    )
    return ProfiledModel(proto, found, made, partitioned)
