"""``tvm-npu platform``: the built-in platforms, one platform's places, this machine's clusters."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tvm_npu.cli.files import check_outputs, write_json, write_text
from tvm_npu.cli.tables import Column, make_table, print_tables
from tvm_npu.cli.terminal import Terminal

if TYPE_CHECKING:
    from tvm_npu.pipelines.platform import Platform

DESCRIPTION = """\
A platform is a list of places (clusters of cores) over which 'tvm-npu pipeline' lays a model:
'list' those that come with the package, 'show' one or a platform file, 'detect' the clusters of
this machine, which makes a platform file to start from.
"""
EXAMPLES = """\
examples:
  tvm-npu platform list
  tvm-npu platform show tx2-4core-setting2
  tvm-npu platform detect --out here.toml
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    plain: dict[str, Any] = {"formatter_class": argparse.RawDescriptionHelpFormatter}
    listed = actions.add_parser("list", help="the platforms that come with the package", **plain)
    listed.add_argument("--json", type=Path, metavar="FILE", help="write the same as JSON")
    shown = actions.add_parser("show", help="the places of one platform", **plain)
    shown.add_argument("name", metavar="NAME|FILE")
    shown.add_argument("--json", type=Path, metavar="FILE", help="write the same as JSON")
    detected = actions.add_parser(
        "detect",
        help="the clusters of this machine",
        description="Reads the cores that this process may use from /sys: clusters, capacities, "
        "hardware threads. Without --out the platform file goes to stdout.",
        **plain,
    )
    detected.add_argument(
        "--by", choices=("auto", "cluster", "core"), default="auto",
        help="a place a cluster, or a place a core; auto: clusters, but cores if there is only "
        "one cluster (default: auto)",
    )  # fmt: skip
    detected.add_argument("--out", type=Path, metavar="FILE", help="platform file to write")


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    if args.action == "detect":
        return _detect(args, terminal)
    from tvm_npu.pipelines.platform_file import load_platform, platform_names

    check_outputs(args, "json")
    content: Any
    if args.action == "list":
        platforms = [load_platform(name) for name in platform_names()]
        _print_list(platforms, terminal)
        content = {"platforms": [platform.model_dump(mode="json") for platform in platforms]}
    else:
        platform = load_platform(args.name)
        _print_places(platform, terminal)
        content = platform.model_dump(mode="json")
    if args.json is not None:
        write_json(args.json, content)
    return 0


def _detect(args: argparse.Namespace, terminal: Terminal) -> int:
    from tvm_npu.pipelines.detect import detect_platform
    from tvm_npu.pipelines.platform_file import platform_to_toml

    check_outputs(args, "out")
    platform = detect_platform(by=args.by)
    text = platform_to_toml(platform)
    if args.out is None:
        terminal.out.print(text, end="", soft_wrap=True)
    else:
        write_text(args.out, text)
        _print_places(platform, terminal)
    return 0


def _print_list(platforms: list[Platform], terminal: Terminal) -> None:
    columns = [
        Column("name", tuple(one.name for one in platforms), key=True),
        Column("places", tuple(str(len(one)) for one in platforms)),
        Column("kind", tuple(_kinds(one) for one in platforms), key=True),
        Column("description", tuple(one.description for one in platforms), prose=True),
    ]
    print_tables(columns, terminal.out)


def _kinds(platform: Platform) -> str:
    return ", ".join(dict.fromkeys(place.kind for place in platform.places))


def _print_places(platform: Platform, terminal: Terminal) -> None:
    if platform.description:
        terminal.out.print(platform.description, soft_wrap=True)
    rows = [_place(place) for place in platform.places]
    headings = dict.fromkeys(key for row in rows for key in row)
    columns = [
        Column(heading, tuple(row.get(heading, "") for row in rows), name=heading in _TEXTS)
        for heading in headings
    ]
    terminal.out.print(make_table(columns, terminal.out.width))
    if platform.arrangements:
        terminal.out.print(
            "arrangements: " + "; ".join(" + ".join(names) for names in platform.arrangements),
            soft_wrap=True,
        )


_TEXTS = ("place", "kind", "core ids", "mcpu")


def _place(place: Any) -> dict[str, str]:
    from tvm_npu.runtime.pipeline.place import ranges

    row = {"place": place.name, "kind": place.kind}
    if place.core_ids:
        row["core ids"] = ranges(place.core_ids)
    if place.kind == "simulated":
        return {
            **row,
            "cores": str(place.cores),
            "GMAC/s\na core": f"{place.macs_per_s / 1e9:g}",
            "GB/s": f"{place.bytes_per_s / 1e9:g}",
            "parallel\n%": f"{100 * place.parallel_share:g}",
            "us a\nlayer": f"{place.layer_s * 1e6:g}",
        }
    return {
        **row,
        "mcpu": place.mcpu or "this machine's",
        "threads": str(place.thread_count),
        "capacity": f"{place.capacity:g}",
        **({"duty": f"{place.duty:g}"} if place.kind == "throttled" else {}),
    }
