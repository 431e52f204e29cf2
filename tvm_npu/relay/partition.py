"""Cutting a normalised main function into regions for the NPU and the rest for the CPU."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relay

from tvm_npu.relay import operands as of
from tvm_npu.relay import rules
from tvm_npu.relay.importer import SOURCES_ATTR
from tvm_npu.relay.macs import call_macs
from tvm_npu.relay.normalize import rebuilt_call
from tvm_npu.relay.regions import execution_order, merge_regions
from tvm_npu.report import Refusal, RegionReport

COMPILER = "npu"

Expr = Any


@dataclass(frozen=True)
class Split:
    """A partitioned module without options or ranges, and what the report says about it."""

    mod: tvm.IRModule
    regions: tuple[RegionReport, ...]
    refusals: tuple[Refusal, ...]
    total_macs: int


@dataclass(frozen=True)
class _Dataflow:
    """The calls (and control flow leaves) of a function as a graph of integers.

    ``operands[n]`` are the nodes whose values node n reads, through tuples; ``raw_tuples`` are
    nodes with several results that somebody reads in one piece, ``statistics_used`` batch norms
    whose running mean or variance somebody reads.
    """

    nodes: tuple[Expr, ...]
    index: dict[Expr, int]
    operands: tuple[tuple[int, ...], ...]
    raw_tuples: frozenset[int]
    statistics_used: frozenset[int]
    sources: tuple[str, ...]


def _values_read(expr: Expr) -> list[Expr]:
    """Calls, leaves and picked results below ``expr`` (itself excluded), tuples seen through."""
    found: list[Expr] = []
    for child in of.children(expr):
        found += _values_read(child) if isinstance(child, relay.Tuple) else [child]
    return found


def _dataflow(function: relay.Function) -> _Dataflow:
    nodes: list[Expr] = []
    index: dict[Expr, int] = {}
    raw_tuples: set[int] = set()
    statistics_used: set[int] = set()
    operands: list[tuple[int, ...]] = []

    def node_of(value: Expr) -> int | None:
        """The node that makes a value; taking a result apart is part of the node."""
        while isinstance(value, relay.TupleGetItem):
            value = value.tuple_value
        return index.get(value)

    def note_raw(value: Expr) -> None:
        if isinstance(value, relay.Call) and not of.is_tensor(value):
            raw_tuples.add(index[value])

    for expr in of.post_order(function.body):
        if isinstance(expr, relay.Tuple):
            for field in expr.fields:
                note_raw(field)
        elif isinstance(expr, relay.TupleGetItem):
            if of.op_name(expr.tuple_value) == "nn.batch_norm" and expr.index > 0:
                statistics_used.add(index[expr.tuple_value])
        elif not isinstance(expr, relay.Var | relay.Constant):
            reads = []
            for value in _values_read(expr):
                note_raw(value)
                producer = node_of(value)
                reads += [] if producer is None else [producer]
            index[expr] = len(nodes)
            nodes.append(expr)
            operands.append(tuple(dict.fromkeys(reads)))
    note_raw(function.body)
    return _Dataflow(
        tuple(nodes),
        index,
        tuple(operands),
        frozenset(raw_tuples),
        frozenset(statistics_used),
        tuple(of.source_of(expr) for expr in nodes),
    )


def _refusals(flow: _Dataflow, context: rules.Context) -> dict[int, Refusal]:
    refused: dict[int, Refusal] = {}
    for number, (expr, source) in enumerate(zip(flow.nodes, flow.sources, strict=True)):
        if not isinstance(expr, relay.Call):
            kind = type(expr).__name__
            refused[number] = Refusal(source, kind, rules.CONTROL_FLOW, kind, "operator calls")
            continue
        refusal = rules.check(expr, context, source)
        if refusal is None and number in flow.raw_tuples:
            name = of.op_name(expr)
            refusal = Refusal(
                source, name, rules.TUPLE_IS_PICKED, "a tuple as it is", "single results"
            )
        if refusal is None and number in flow.statistics_used:
            refusal = Refusal(
                source, "nn.batch_norm", rules.TUPLE_IS_PICKED, "running statistics", "result 0"
            )
        if refusal is not None:
            refused[number] = refusal
    return refused


def split_main(mod: tvm.IRModule, context: rules.Context, mod_name: str = "default") -> Split:
    """Partitions ``main`` of a normalised module.

    before: ``relu(conv2d(x))``          after: ``@tvmgen_default_npu_main_0(x)``
    """
    main = mod["main"]
    flow = _dataflow(main)
    refused = _refusals(flow, context)
    groups = []
    supported = [number not in refused for number in range(len(flow.nodes))]
    for group in merge_regions(flow.operands, supported):
        names = [of.op_name(flow.nodes[number]) for number in group]
        if all(name in rules.LAYOUT_ONLY for name in names):
            for number, name in zip(group, names, strict=True):
                refused[number] = Refusal(
                    flow.sources[number],
                    name,
                    rules.NOTHING_TO_COMPUTE,
                    f"a region of {len(group)} layout or activation operators",
                    "at least one that computes",
                )
        else:
            groups.append(group)
    rewriter = _Rewriter(mod, flow, groups, mod_name)
    new_mod, regions = rewriter.run()
    return Split(
        mod=new_mod,
        regions=tuple(regions),
        refusals=tuple(refused[number] for number in sorted(refused)),
        total_macs=sum(call_macs(n) for n in flow.nodes if isinstance(n, relay.Call)),
    )


class _Rewriter:
    """Builds the new main and one global function for each region."""

    def __init__(
        self, mod: tvm.IRModule, flow: _Dataflow, groups: Sequence[Sequence[int]], mod_name: str
    ) -> None:
        self.mod = tvm.IRModule(dict(mod.functions.items()), mod.type_definitions)
        self.main = mod["main"]
        self.flow = flow
        self.groups = {group[0]: tuple(group) for group in groups}
        self.prefix = f"tvmgen_{mod_name.replace('-', '_')}_npu_main_"
        self.memo: dict[Expr, Expr] = {}
        self.reports: list[RegionReport] = []

    def run(self) -> tuple[tvm.IRModule, list[RegionReport]]:
        for piece in execution_order(self.flow.operands, self.groups.values()):
            if piece[0] in self.groups:
                self._region(piece)
            else:
                expr = self.flow.nodes[piece[0]]
                self.memo[expr] = self._on_cpu(expr)
        body = self._mapped(self.main.body)
        self.mod["main"] = relay.Function(
            self.main.params,
            body,
            self.main.ret_type,
            self.main.type_params,
            self.main.attrs,
            self.main.span,
        )
        return relay.transform.InferType()(self.mod), self.reports

    def _on_cpu(self, expr: Expr) -> Expr:
        if not isinstance(expr, relay.Call):
            return expr
        return rebuilt_call(expr, [self._mapped(arg) for arg in expr.args])

    def _mapped(self, value: Expr) -> Expr:
        """The new expression for a value of the old main."""
        if value in self.memo:
            return self.memo[value]
        new = value
        if isinstance(value, relay.Tuple):
            new = relay.Tuple([self._mapped(field) for field in value.fields], value.span)
        elif isinstance(value, relay.TupleGetItem):
            new = relay.TupleGetItem(self._mapped(value.tuple_value), value.index, value.span)
        self.memo[value] = new
        return new

    def _region(self, group: tuple[int, ...]) -> None:
        symbol = f"{self.prefix}{len(self.reports)}"
        inside = set(group)
        body = _RegionBody(self.flow, inside)
        for number in group:
            body.add(self.flow.nodes[number])
        outputs = self._outputs(inside)
        results = [body.operand(same[0]) for same in outputs]
        result = results[0] if len(results) == 1 else relay.Tuple(results)
        calls = [e for e in of.post_order(result) if isinstance(e, relay.Call)]
        types = [same[0].checked_type for same in outputs]
        result_type = types[0] if len(types) == 1 else relay.TupleType(types)
        function = relay.Function(list(body.params.values()), result, result_type)
        function = function.with_attr("Primitive", tvm.tir.IntImm("int32", 1))
        function = function.with_attr("Inline", tvm.tir.IntImm("int32", 1))
        function = function.with_attr("Compiler", COMPILER)
        function = function.with_attr("global_symbol", symbol)
        function = function.with_attr(SOURCES_ATTR, json.dumps([of.source_of(c) for c in calls]))
        global_var = relay.GlobalVar(symbol)
        self.mod[global_var] = function
        call = relay.Call(global_var, [self._mapped(value) for value in body.params])
        for position, same in enumerate(outputs):
            new = call if len(outputs) == 1 else relay.TupleGetItem(call, position)
            self.memo.update((value, new) for value in same)
        nodes = [self.flow.nodes[number] for number in group]
        self.reports.append(
            RegionReport(
                symbol=symbol,
                operators=tuple(
                    (self.flow.sources[number], of.op_name(self.flow.nodes[number]))
                    for number in group
                ),
                inputs=tuple(of.shape_of(value) for value in body.params),
                outputs=tuple(of.shape_of(same[0]) for same in outputs),
                macs=sum(call_macs(node) for node in nodes),
            )
        )

    def _outputs(self, inside: set[int]) -> list[list[Expr]]:
        """Values made inside that others read or that main returns, in order of first use; each
        with all expressions that stand for it (a result may be picked more than once)."""
        found: dict[tuple[Expr, int], dict[Expr, None]] = {}

        def note(values: list[Expr]) -> None:
            for value in values:
                maker, position = _maker(value)
                if self.flow.index.get(maker) in inside:
                    found.setdefault((maker, position), {})[value] = None

        for number, node in enumerate(self.flow.nodes):
            if number not in inside:
                note(_values_read(node))
        body = self.main.body
        note(_values_read(body) if isinstance(body, relay.Tuple) else [body])
        return [list(same) for same in found.values()]


def _maker(value: Expr) -> tuple[Expr, int]:
    """(call, position): which result of which call a value is; position 0 for a single result."""
    if isinstance(value, relay.TupleGetItem):
        return value.tuple_value, int(value.index)
    return value, 0


class _RegionBody:
    """Copies a region's calls; what comes from outside becomes a parameter."""

    def __init__(self, flow: _Dataflow, inside: set[int]) -> None:
        self.flow = flow
        self.inside = inside
        self.params: dict[Expr, relay.Var] = {}
        self.memo: dict[Expr, Expr] = {}

    def add(self, call: relay.Call) -> None:
        self.memo[call] = rebuilt_call(call, [self.operand(arg) for arg in call.args])

    def operand(self, value: Expr) -> Expr:
        """The region's expression for a value of the old main."""
        if isinstance(value, relay.Constant):
            return value
        if isinstance(value, relay.Tuple):
            return relay.Tuple([self.operand(field) for field in value.fields], value.span)
        if value in self.memo:
            return self.memo[value]
        maker, position = _maker(value)
        if self.flow.index.get(maker) in self.inside:
            new: Expr = relay.TupleGetItem(self.memo[maker], position, value.span)
        else:
            new = relay.Var(f"npu_{len(self.params)}", value.checked_type)
            self.params[value] = new
        self.memo[value] = new
        return new
