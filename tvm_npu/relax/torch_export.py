"""Reading models of `torch.export` through TVM's own frontend, with names of operators.

Torch is the user's: who gives no such model needs none, and nobody else imports this module.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax
from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

from tvm_npu.relax.frontend import NamingBuilder, span_of


def read_program(program: Any) -> Any:
    """See `tvm_npu.relax.frontend.from_exported_program`."""
    return _Importer().from_exported_program(
        program.run_decompositions(),
        keep_params_as_input=False,
        unwrap_unit_return_tuple=True,
        no_bind_return_tuple=False,
        custom_convert_map=None,
    )


class _Importer(ExportedProgramImporter):  # type: ignore[misc]
    """Names the calls that a node of torch's graph becomes."""

    convert_map: dict[Any, Callable[..., Any]]

    def __init__(self) -> None:
        self._builder: Any = None
        super().__init__()
        self.convert_map = {key: self._naming(make) for key, make in self.convert_map.items()}

    @property
    def block_builder(self) -> Any:
        return self._builder

    @block_builder.setter
    def block_builder(self, builder: Any) -> None:
        """TVM's importer makes a builder of its own for every program."""
        self._builder = NamingBuilder() if isinstance(builder, relax.BlockBuilder) else builder

    def _naming(self, make: Callable[..., Any]) -> Callable[..., Any]:
        def convert(node: Any, *others: Any) -> Any:
            outer, self._builder.span = self._builder.span, span_of(_name(node))
            try:
                return make(node, *others)
            finally:
                self._builder.span = outer

        return convert


def _name(node: Any) -> str:
    """The path of the innermost module around a node, then the node's own name."""
    paths = [path for path, _ in (node.meta.get("nn_module_stack") or {}).values()]
    return f"{paths[-1]}.{node.name}" if paths and paths[-1] else str(node.name)
