"""How right the models of a sweep are on its designs.

That depends on the integers that a model is there, and on no plan: designs with the same ones share
one measurement, of all images, by compiled convolutions that equal the simulator to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from pathlib import Path
from typing import TYPE_CHECKING

from tvm_npu.codegen.graph.digests import graph_digest
from tvm_npu.errors import AccuracyError, CalibrationError
from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.errors import BoundedError
from tvm_npu.sim.limits import Limits
from tvm_npu.sweep.designs import Design
from tvm_npu.sweep.engines import Engine
from tvm_npu.sweep.evaluate import model_from
from tvm_npu.sweep.models import ModelSource
from tvm_npu.sweep.outcome import LARGEST_SQNR_DB, Outcome
from tvm_npu.sweep.spec import SweepError
from tvm_npu.sweep.store import Store, accuracy_key

if TYPE_CHECKING:
    from tvm_npu.door.models import ImportedModel, PartitionedModel

Measured = Callable[[str, int], None]
"""Called with a model and how many of its images are through."""


class Accuracies:
    """Kept in ``store``; missing ones are measured by ``engine``."""

    def __init__(self, store: Store, engine: Engine, progress: Measured, limits: Limits) -> None:
        self._store, self._engine, self._progress = store, engine, progress
        self._limits = limits
        self._known: dict[Hashable, Outcome] = {}
        self._partitioned: tuple[str, ImportedModel, PartitionedModel] | None = None

    def of(self, source: ModelSource, file: Path, design: Design) -> Outcome:
        """The fields of `outcome.ACCURACY`, or the fault of a machine that cannot be asked. Raises
        SweepError for images that cannot be run. ``file`` is where ``source`` is prepared."""
        machine, precision = design.machine, design.precision_used
        assert machine is not None and precision is not None
        graphs = model_from(str(file)).graphs
        try:
            shared = file, *(one.key(machine, precision) for one in graphs)
            if shared not in self._known:
                digests = [graph_digest(one.fixed(machine, precision)) for one in graphs]
                self._known[shared] = self._kept(source, file, machine, digests)
        except (AccuracyError, CalibrationError) as error:
            raise SweepError(f"accuracy of model {source.name!r}: {error}") from error
        except SweepError:
            raise
        except BoundedError as error:
            return Outcome(fault=f"{type(error).__name__}: {error}")
        return self._known[shared]

    def _kept(
        self, source: ModelSource, file: Path, machine: MachineDescription, digests: list[str]
    ) -> Outcome:
        assert source.images is not None
        said = source.images.said
        key = accuracy_key(file.stem, digests, said.limit, said.simulated)
        found = self._store.get(key)
        if found is None:
            found = self._measure(source, machine, digests)
            self._store.put([(key, found)])
        return found

    def _measure(
        self, source: ModelSource, machine: MachineDescription, digests: list[str]
    ) -> Outcome:
        from tvm_npu.accuracy.measuring import measure

        assert source.images is not None
        if self._partitioned is None or self._partitioned[0] != source.digest:
            self._partitioned = source.digest, *source.partitioned()
        _, imported, partitioned = self._partitioned
        model = partitioned.on(machine)
        if [graph_digest(model.fixed_graph(one)) for one in model.symbols] != digests:
            raise SweepError(
                f"accuracy of model {source.name!r}: the store's model was prepared for another "
                "machine; give another folder, or remove its .model files"
            )
        engine = self._engine if partitioned.door.modules_pickle else None
        found = measure(
            model, source.images.labelled(imported.inputs), layer_samples=0,
            simulated=source.images.said.simulated, engine=engine, limits=self._limits,
            progress=lambda images: self._progress(source.name, images),
        )  # fmt: skip
        labelled = found.labelled
        return Outcome(
            top1=found.top1_npu / labelled if labelled else None,
            top5=found.top5_npu / labelled if labelled else None,
            agreement=found.agreement / found.images,
            sqnr_db=min(found.sqnr_db, LARGEST_SQNR_DB),
        )
