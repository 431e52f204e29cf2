"""Command trees as text, one command a line."""

from __future__ import annotations

from tvm_npu.codegen.nmp.emit.commands import (
    Assign,
    Compute,
    If,
    Loop,
    Minimum,
    Node,
    Nodes,
    Product,
    Semaphore,
)


def listing(nodes: Nodes, indent: str = "") -> str:
    """The tree as text, one command a line."""
    return "".join(_lines(node, indent) for node in nodes)


def _lines(node: Node, indent: str) -> str:
    deeper = indent + "  "
    if isinstance(node, Loop):
        extent = f" ({node.extent.name} = min({node.step}, rest))" if node.extent else ""
        head = f"{indent}for {node.index.name} in 0 .. {node.end} step {node.step}{extent}:\n"
        return head + listing(node.body, deeper)
    if isinstance(node, If):
        text = f"{indent}if {node.condition} {node.relation} 0:\n" + listing(node.then, deeper)
        if node.otherwise:
            text += f"{indent}else:\n" + listing(node.otherwise, deeper)
        return text
    if isinstance(node, Assign):
        return f"{indent}{node.variable.name} = {node.value}\n"
    if isinstance(node, Minimum):
        floor = "max(0, " if node.value.low < 0 else ""
        end = ")" if floor else ""
        return f"{indent}{node.variable.name} = {floor}min({node.limit}, {node.value}){end}\n"
    if isinstance(node, Product):
        return f"{indent}{node.variable.name} = ({node.left}) * ({node.right})\n"
    if isinstance(node, Semaphore):
        return f"{indent}{node.action} {node.level.name} {node.number} by {node.count}\n"
    operands = ", ".join(f"{r.name.lower()}={v}" for r, v in node.registers)
    done = f" -> {node.semaphore}" if node.semaphore else ""
    if isinstance(node, Compute):
        sub = "" if node.sub is None else f".{node.sub}"
        return f"{indent}{node.mnemonic}{sub} {operands}{done}\n"
    where = f"[{node.address}] {node.memory.name}+{node.offset}"
    return f"{indent}{node.mnemonic} {node.stream.name} {where} {operands}{done}\n"
