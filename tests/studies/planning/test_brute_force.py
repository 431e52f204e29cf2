"""The C program is the paper's search: the same costs as the project's, the same answers."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from studies.planning.brute_force import BruteForce, BruteForceError, load_brute_force
from tests.codegen.nmp.plan import plan_reference as reference
from tests.examples import examples
from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
from tvm_npu.codegen.nmp.plan.cost import predict
from tvm_npu.codegen.nmp.plan.tso import closed_form_cycles
from tvm_npu.codegen.plan import planner
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.sim.nmp.machine import NmpMachine, load_nmp_machine

NMP = load_nmp_machine("nmp-4x8")


def compiled(folder: Path) -> BruteForce:
    """Skips the test where there is no compiler; one that fails is a failure."""
    try:
        return load_brute_force(folder)
    except BruteForceError as error:
        if "not found" not in str(error):
            raise
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def brute_force(tmp_path_factory: pytest.TempPathFactory) -> BruteForce:
    return compiled(tmp_path_factory.mktemp("compiled"))


def check(problem: ConvProblem, machine: NmpMachine, brute_force: BruteForce) -> None:
    """Both costs are the project's own; the estimate's winner is planner tso's, and counting
    edges can only find better plans than it, and no better ones than exact."""
    chosen = planner("tso").plan(problem, machine)
    closed = brute_force.plan(problem, machine, exact_edges=False)
    edges = brute_force.plan(problem, machine, exact_edges=True)
    if not isinstance(chosen, ConvPlan):
        assert closed.plan is None and edges.plan is None and closed.cycles == math.inf
        return
    assert closed.plan is not None and edges.plan is not None
    assert chosen.prediction is not None
    assert closed.cycles == pytest.approx(closed_form_cycles(problem, chosen, machine), rel=1e-12)
    assert closed.cycles == pytest.approx(
        closed_form_cycles(problem, closed.plan, machine), rel=1e-12
    )
    assert edges.cycles == pytest.approx(predict(problem, edges.plan, machine).cycles, rel=1e-12)
    assert edges.cycles <= chosen.prediction.cycles * (1 + 1e-12)
    assert edges.candidates == closed.candidates > 0
    best = planner("exact").plan(problem, machine)
    assert isinstance(best, ConvPlan) and best.prediction is not None
    assert best.prediction.cycles <= edges.cycles * (1 + 1e-9)


@settings(max_examples=examples(150), deadline=None)
@given(reference.convs(), reference.machines())
def test_random_layers(brute_force: BruteForce, problem: ConvProblem, machine: NmpMachine) -> None:
    check(problem, machine, brute_force)


@settings(max_examples=examples(50), deadline=None)
@given(reference.tight_layers())
def test_tight_layers(brute_force: BruteForce, layer: tuple[ConvProblem, NmpMachine]) -> None:
    check(*layer, brute_force)


@pytest.mark.parametrize("index", range(0, len(reference.INCEPTION_V3), 3))
def test_layers_of_inception_v3(brute_force: BruteForce, index: int) -> None:
    problem = list(dict.fromkeys(reference.inception_v3()))[index]
    check(problem, NMP, brute_force)


@settings(max_examples=examples(60), deadline=None)
@given(reference.convs(largest=4), reference.machines(), st.data())
def test_nothing_of_the_space_is_left_out(
    brute_force: BruteForce, problem: ConvProblem, machine: NmpMachine, data: st.DataObject
) -> None:
    """Against a walk in Python over every split, mode, schedule and tile of the space."""
    best, candidates = math.inf, 0
    for split in dict.fromkeys(reference.SPLITS if machine.cores.tles > 1 else ("KS",)):
        cut = reference.slices(split, machine.cores.tles)
        if cut is None:
            continue
        for mode in ("multicast", "grouped") if problem.groups > 1 else ("multicast",):
            for schedule in ("OS", "WS") if mode == "grouped" else reference.SCHEDULES:
                for _, tile in reference._tilings(
                    problem, machine, reference.NO_LIMITS, False, cut, mode, schedule
                ):
                    plan = ConvPlan(mode, split, *cut, schedule, *tile)
                    best = min(best, predict(problem, plan, machine).cycles)
                    candidates += 1
    found = brute_force.plan(problem, machine, exact_edges=True)
    assert found.cycles == (best if best == math.inf else pytest.approx(best, rel=1e-12))
    if machine.cores.tles > 1:  # one TLE: the three splits are the same one
        assert found.candidates == candidates


def test_more_kinds_of_tiles_than_it_has_room_for(brute_force: BruteForce) -> None:
    tall = reference.conv(1, 1, (100, 1), (100, 1), padding=(99, 0, 99, 0))
    with pytest.raises(BruteForceError, match="more than 64 kinds of tiles along an axis"):
        brute_force.plan(tall, NMP, exact_edges=True)
    assert brute_force.plan(tall, NMP, exact_edges=False).plan is not None


def test_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled(tmp_path / "new" / "folder")
    (library,) = (tmp_path / "new" / "folder").iterdir()
    made = library.stat().st_mtime_ns
    load_brute_force(tmp_path / "new" / "folder")
    assert library.stat().st_mtime_ns == made
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    load_brute_force()
    assert [path.suffix for path in (tmp_path / "cache" / "tvm-npu").iterdir()] == [".so"]


def test_without_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(BruteForceError, match="needs a C compiler; not found: cc, gcc, clang"):
        load_brute_force(tmp_path)
    monkeypatch.setenv("CC", "no-such-compiler -m64")
    with pytest.raises(BruteForceError, match="not found: CC = 'no-such-compiler -m64'"):
        load_brute_force(tmp_path)


def test_compiler_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "broken"
    script.write_text("#!/bin/sh\necho 'no space for headers' >&2\nexit 3\n")
    script.chmod(0o755)
    monkeypatch.setenv("CC", str(script))
    with pytest.raises(BruteForceError, match=r"broken failed: no space for headers"):
        load_brute_force(tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_cache_that_cannot_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(BruteForceError, match="cannot use"):
        load_brute_force(tmp_path / "cache")


def test_cache_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("")
    with pytest.raises(BruteForceError, match="cannot use|needs a C compiler"):
        load_brute_force(tmp_path / "cache")
