"""What specifications say, and what is wrong with those that do not work."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tvm_npu.cli.check_command import checked
from tvm_npu.sim.limits import DEFAULT
from tvm_npu.sweep.designs import DesignSpace
from tvm_npu.sweep.formulas import evaluate, number
from tvm_npu.sweep.models import model_bytes
from tvm_npu.sweep.spec import MOST_VALUES, Range, SweepError, read_spec, spec_from_dict


def spec(**changes: Any) -> dict[str, Any]:
    machine = {"base": "nmp-4x8", "keys": {"cores.tles": [1, 2, 4], "mac.setup_cycles": [4, 8]}}
    return {"models": ["lenet"], "machine": machine, **changes}


def test_messages_and_lists_of_values_are_bounded() -> None:
    with pytest.raises(SweepError, match="a19: Extra inputs .*; and 5 more$") as said:
        spec_from_dict(spec(**{f"a{number}": 1 for number in range(25)}))
    assert "a20" not in str(said.value)
    keys = {"cores.tles": [1] * (MOST_VALUES + 1)}
    with pytest.raises(SweepError, match=f"at most {MOST_VALUES} items"):
        spec_from_dict(spec(machine={"base": "nmp-4x8", "keys": keys}))


def test_ranges() -> None:
    assert Range.model_validate({"from": 2, "to": 16, "factor": 2}).values() == (2, 4, 8, 16)
    assert Range.model_validate({"from": 0.1, "to": 0.4, "step": 0.1}).values() == pytest.approx(
        (0.1, 0.2, 0.3, 0.4)
    )
    whole = Range.model_validate({"from": 1, "to": 4, "step": 1}).values()
    assert whole == (1, 2, 3, 4) and all(type(value) is int for value in whole)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"models": []}, "models"),
        ({"models": ["lenet"], "machine": {}}, "give files, or a base machine"),
        (spec(planners=["best"]), "planner 'best': must be one of"),
        (spec(fidelity=["checked", "predicted"]), "must be in the order"),
        (spec(search={"objectives": ["area"]}), "objective 'area': must be one of cycles"),
        (spec(search={"promote": 1.5}), "no share above 0 up to 1"),
        (spec(outcome={"cycles": {"formula": "1", "source": "x"}}), "that of a measured outcome"),
        (spec(color="red"), "color"),
        (spec(machine={"base": "setup-a", "keys": {"a": {"from": 1, "to": 2}}}), "step or factor"),
        (spec(models=["lenet", "lenet"]), "models: 'lenet' is given twice"),
        (spec(planners=["exact"] * 1001), "planners: List should have at most 1000 items"),
        (spec(precisions=["int8"] * 1001), "precisions: List should have at most 1000 items"),
        (spec(planners=["exact"] * 1000), "planners: 'exact' is given twice"),
        (spec(precisions=["int8"] * 1000), "precisions: 'int8' is given twice"),
        (spec(models=[f"m{n}" for n in range(30_000)]), "models: .*at most 1000 items"),
        (spec(machine={"base": "nmp-4x8", "constraints": ["memories"] * 20_000}), "at most 1000"),
        (spec(search={"designs": 1 << 62}), "less than or equal to 10000000"),
        (spec(batches=[1, 2, 1]), "batches: 1 is given twice"),
        (spec(batches=[0]), "batches.0: .*greater than or equal to 1"),
        (spec(outcome={"top1": {"formula": "1", "source": "x"}}), "that of a measured outcome"),
        (spec(accuracy={"lenet": {"images": "i", "preset": "nobodys"}}), "must be one of imagenet"),
        (spec(accuracy={"lenet": {"images": "i", "preset": "caffe", "bgr": True}}), "not with bgr"),
        ({"models": ["m"], "machine": {"files": ["f"], "keys": {"a": [1]}}}, "give base"),
    ],
)
def test_what_is_wrong_is_said(values: dict[str, Any], said: str) -> None:
    with pytest.raises(SweepError, match=said):
        spec_from_dict(values)


@pytest.mark.parametrize(
    "machine", [{"base": "nmp-4x8"}, {"files": ["snowflake-1cc", "setup-a", "nmp-4x8"]}]
)
def test_planners_plan_all_machines(machine: dict[str, Any]) -> None:
    values = spec(machine=machine, planners=["exact", "snowflake"])
    first = "nmp-4x8" if "base" in machine else "setup-a"
    said = f"planners: planner 'snowflake' does not plan machine '{first}' of .*, exact, .* do"
    with pytest.raises(SweepError, match=said):
        DesignSpace(spec_from_dict(values))
    DesignSpace(spec_from_dict({**values, "planners": ["exact"]}))


DIVISOR = r"is not a number above 0 \(from 1.2e-38 to 3.4e\+38\)$"
FINITE = r"is not a number from -3.4e\+38 to 3.4e\+38$"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("std = [1, 0]", f"std.1: 0.0 {DIVISOR}"),
        ("std = [nan]", f"std.0: nan {DIVISOR}"),
        ("std = [inf]", f"std.0: inf {DIVISOR}"),
        ("std = [-1]", f"std.0: -1.0 {DIVISOR}"),
        ("std = [1e-40]", f"std.0: 1e-40 {DIVISOR}"),
        ("mean = [0, nan]", f"mean.1: nan {FINITE}"),
        ("mean = [-inf]", f"mean.0: -inf {FINITE}"),
        ("mean = [1e39]", rf"mean.0: 1e\+39 {FINITE}"),
        ("scale = nan", f"scale: nan {FINITE}"),
        ("scale = 1e39", rf"scale: 1e\+39 {FINITE}"),
    ],
)
def test_images_are_prepared_with_numbers_of_float32(
    tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "study.toml"
    path.write_text(
        'models = ["lenet"]\n[machine]\nbase = "nmp-4x8"\n'
        f'[accuracy.lenet]\nimages = "photos"\n{text}\n'
    )
    with pytest.raises(SweepError, match=f"^sweep .*: accuracy.lenet.{said}"):
        read_spec(path)


def test_a_grid_without_end_is_refused() -> None:
    keys = {key: {"from": 1, "to": 90_000, "step": 1} for key in ("cores.tles", "mac.lanes")}
    space = DesignSpace(spec_from_dict(spec(machine={"base": "nmp-4x8", "keys": {
        "cores.tles": keys["cores.tles"], "mac.setup_cycles": keys["mac.lanes"],
    }})))  # fmt: skip
    with pytest.raises(SweepError, match="8100000000 combinations; 10000000 are possible"):
        next(space.grid())
    assert len(list(space.random(1, 0))) == 1


def test_files_lie_beside_the_specification(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('extends = "nmp-4x8"\nname = "mine"\n')
    (tmp_path / "mine.onnx").touch()
    (tmp_path / "photos").mkdir()
    (tmp_path / "s.toml").write_text(
        'models = ["mine.onnx"]\n[machine]\nfiles = ["mine.toml"]\n'
        '[accuracy."mine.onnx"]\nimages = "photos"\nlabels = "/elsewhere.csv"\n'
    )
    read = read_spec(tmp_path / "s.toml")
    (said,) = read.accuracy.items()
    assert said[0] == read.models[0] == str(tmp_path / "mine.onnx")
    assert (said[1].images, said[1].labels) == (str(tmp_path / "photos"), "/elsewhere.csv")
    assert read.machine.files == [str(tmp_path / "mine.toml")]
    assert [design.name for design in DesignSpace(read).of_files()] == ["mine"]


def test_what_is_no_specification_is_told_by_what_one_is(tmp_path: Path) -> None:
    told = "; a sweep is a TOML file that names .*; 'tvm-npu sweep --help' shows one$"
    (tmp_path / "model.onnx").write_bytes(b"\x08\x90")
    (tmp_path / "study.toml").write_text("models: lenet")
    (tmp_path / "bare.toml").write_text("")
    (tmp_path / "empty").mkdir()
    for name, why in (
        ("nothing", r"'\S*/nothing': No such file or directory"),
        ("studi.toml", r"No such file or directory; did you mean 'study.toml'\?"),
        ("no/such", "No such file or directory"),
        (".", r"Is a directory \(it has bare.toml, study.toml\)"),
        ("empty", "Is a directory"),
        ("model.onnx", r"not text \(byte 1: invalid start byte\)"),
        ("study.toml", "not TOML: .*line 1.*"),
        ("bare.toml", "models: Field required; machine: Field required"),
    ):
        with pytest.raises(SweepError, match=f"sweep .*{why}{told}"):
            read_spec(tmp_path / name)
    with pytest.raises(SweepError, match="color: Extra inputs are not permitted$"):
        spec_from_dict(spec(color="red"))


def test_grid_has_every_combination_that_constraints_allow() -> None:
    values = spec()
    values["machine"]["constraints"] = ["cores.tles * mac.setup_cycles <= 16"]
    designs = list(DesignSpace(spec_from_dict(values)).grid())
    found = {tuple(value for _, value in design.changes) for design in designs}
    assert found == {(1, 4), (1, 8), (2, 4), (2, 8), (4, 4)}
    for design in designs:
        assert design.machine is not None
        changed = design.machine.model_dump()
        assert changed["cores"]["tles"] == dict(design.changes)["cores.tles"]
        assert changed["mac"]["setup_cycles"] == dict(design.changes)["mac.setup_cycles"]


def test_random_designs_are_different_and_repeatable() -> None:
    space = DesignSpace(spec_from_dict(spec()))
    first = [design.changes for design in space.random(4, 3)]
    assert len(set(first)) == 4 and first == [design.changes for design in space.random(4, 3)]
    assert first != [design.changes for design in space.random(4, 4)]
    assert len(list(space.random(100, 0))) == 6


def test_a_key_that_does_not_exist_names_those_that_do() -> None:
    values = spec(machine={"base": "nmp-4x8", "keys": {"cores.tle": [1]}})
    with pytest.raises(SweepError, match="no key 'cores.tle'; it has .*cores.tles"):
        DesignSpace(spec_from_dict(values))
    with pytest.raises(SweepError, match="unknown machine 'nmp'"):
        DesignSpace(spec_from_dict(spec(machine={"base": "nmp"})))


@pytest.mark.parametrize(
    "expression",
    [
        "'a' * 10**8", "'%99999999d' % 5", "f'{1:>9999}'", "'{:>9999}'.format(1)", "[0] * 10**9",
        "9**9**9", "2**200000", "1 << 10**9", "2**500 * 2**501", "max([0] * 9999)", "a.real",
        "[x for x in range(9)]", "().__class__", "a[0:2]", "(" * 5000 + ")" * 5000, "1" * 5000,
        "+".join(["1"] * 6000), "list(a)", "rand()", "names",
        "9" * 400,
    ],
)  # fmt: skip
def test_formulas_take_no_time_and_no_memory(expression: str) -> None:
    with pytest.raises(SweepError, match="^area: "):
        number(expression, {"a": 3}, "area")


def test_formulas_compute() -> None:
    names = {"a": 3, "mac": {"kind": "x", "bits": 16.0}}
    for expression, value in {
        "a**2 % 5 - (1 << 3) // 3": 2, "mac.bits / 2 if mac.kind == 'x' else 0": 8,
        "max(a, mac.bits, 7)": 16, "ceil(sqrt(a)) + abs(-a)": 5, "2**499 / 2**490": 512,
    }.items():  # fmt: skip
        assert number(expression, names, "area") == value
    assert evaluate("a in [1, 3] and mac.kind in ('x', 'y')", names, "constraint") is True


def test_a_constraint_without_a_value_is_an_error() -> None:
    values = spec()
    values["machine"]["constraints"] = ["cores.tiles > 1"]
    with pytest.raises(SweepError, match="constraint: 'cores.tiles > 1' has no value"):
        list(DesignSpace(spec_from_dict(values)).grid())


def test_a_machine_that_its_kind_refuses_is_a_design_with_a_fault() -> None:
    values = spec(machine={"base": "nmp-4x8", "keys": {"cores.tles": [4, 0]}})
    good, bad = DesignSpace(spec_from_dict(values)).grid()
    assert good.fault is None and bad.machine is None
    assert bad.fault is not None and "cores.tles" in bad.fault


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"from": 1, "to": float("inf"), "factor": 2}, "finite"),
        ({"from": float("nan"), "to": 4, "step": 1}, "finite"),
        ({"from": 1, "to": 2, "factor": 1 + 1e-12}, "more than 100000 values"),
        ({"from": 1, "to": 1e9, "step": 1e-9}, "more than 100000 values"),
        ({"from": 0, "to": 4, "factor": 2}, "from must be above 0"),
        ({"from": 4, "to": 1, "step": 1}, "lies below from"),
    ],
)
def test_ranges_without_an_end(values: dict[str, float], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Range.model_validate(values)


def test_the_largest_numbers_end_a_range() -> None:
    values = {"from": 1e308, "to": 1.7976931348623157e308, "factor": 1.7}
    assert Range.model_validate(values).values() == (1e308, 1.7e308)


@pytest.mark.parametrize(
    ("values", "count", "last"),
    [
        ({"from": -4, "to": -1, "step": 1}, 4, -1),
        ({"from": 1e12, "to": 1e12, "step": 1e-6}, 1, 10**12),  # rounding is no part of the range
        ({"from": 1e15, "to": 1e15 + 1, "step": 0.01}, 9, 10**15 + 1),  # as float64 tells apart
        ({"from": 1, "to": 1, "factor": 1 + 1e-12}, 1, 1),
        ({"from": 0, "to": 0, "step": 1e-300}, 1, 0),
    ],
)
def test_a_range_ends_at_its_end(values: dict[str, float], count: int, last: float) -> None:
    found = Range.model_validate(values).values()
    assert (len(found), found[-1]) == (count, last)


@pytest.mark.parametrize("name", ["m" * 5000, "m" * 5000 + ".toml", "a\0b", "a\0b.toml"])
def test_names_that_no_file_can_have(name: str, tmp_path: Path) -> None:
    with pytest.raises(SweepError, match="machine"):
        DesignSpace(spec_from_dict(spec(machine={"files": [name]})))
    path = tmp_path / "spec.toml"
    path.write_text(f'models = ["{"m" * 5000}"]\nmachine.files = ["{"n" * 5000}"]\n')
    with pytest.raises(SweepError, match="neither a file nor one of"):
        model_bytes(read_spec(path).models[0])


def test_a_specification_is_checked_without_a_run(tmp_path: Path) -> None:
    path = tmp_path / "spec.toml"
    text = 'models = ["lenet"]\n[machine]\nbase = "nmp-4x8"\nkeys."cores.tles" = [1, 2]\n'
    path.write_text(text)
    assert checked(path, DEFAULT) == "sweep of 1 models, 2 machines before constraints"
    path.write_text(text.replace("cores.tles", "cores.tiles"))
    with pytest.raises(SweepError, match="no key 'cores.tiles'"):
        checked(path, DEFAULT)


@pytest.mark.parametrize(
    ("part", "text", "message"),
    [
        ("constraint", "1 +", r"'1 \+' has no value: invalid syntax"),
        ("constraint", "nosuch == 3", "'nosuch' is not defined"),
        ("constraint", "cores.nosuch == 3", "'cores.nosuch' is not defined"),
        ("constraint", "cycles > 1", "'cycles' is not defined"),  # not known by then
        ("formula", "))((", "unmatched"),
        ("formula", "cores.tles if batch else nosuch", "'nosuch' is not defined"),
        ("formula", "area + 1", "'area' is not defined"),
        ("formula", "open('x')", "there is no function 'open'"),
        ("formula", "'x'.join(batch)", r"there is no function '\(...\).join'"),
        ("formula", "[one for one in batch]", "ListComp is not possible"),
        ("formula", "(" * 5000, "has no value"),
        ("formula", "batch" + ".x" * 100, "is not defined"),
        ("require", "area <=", "invalid syntax"),
        ("require", "volume <= 3", "'volume' is not defined"),
    ],
)
def test_expressions_that_cannot_have_a_value(part: str, text: str, message: str) -> None:
    """Are refused before the work, by what they are in."""
    given = {"constraint": "cores.tles > 1", "formula": "batch", "require": "area <= 3", part: text}
    machine = {"base": "nmp-4x8", "constraints": [given["constraint"]]}
    values = {
        "models": ["lenet"], "machine": machine, "search": {"require": [given["require"]]},
        "outcome": {"area": {"formula": given["formula"], "source": "this"}},
    }  # fmt: skip
    where = {"formula": "outcome 'area'", "require": "search.require"}.get(part, part)
    with pytest.raises(SweepError, match=f"^{where}: .*{message}") as caught:
        DesignSpace(spec_from_dict(values))
    assert len(str(caught.value)) < 500


def test_expressions_may_ask_which_machine_it_is() -> None:
    """What one of the machines has is no mistake, nor are functions and lists."""
    formula = "max(cores.tles, 2) if isa == 'nmp' else 1"
    values = {
        "models": ["lenet"], "machine": {"files": ["nmp-4x8", "snowflake-1cc"]},
        "outcome": {"area": {"formula": formula, "source": "this"}},
        "search": {"require": ["batch in [1, 2] and element_bytes != area and not frequency_mhz"]},
    }  # fmt: skip
    assert len(DesignSpace(spec_from_dict(values)).files) == 2


def test_many_long_expressions() -> None:
    constraint = "0 in [" + "0," * 4990 + "]"

    def space(count: int) -> DesignSpace:
        machine = {"base": "nmp-4x8", "constraints": [constraint] * count}
        return DesignSpace(spec_from_dict({"models": ["lenet"], "machine": machine}))

    calls = 0

    def count(_frame: object, _event: str, _argument: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(count)
    try:
        space(10)
    finally:
        sys.setprofile(None)
    assert calls < 40 * 10 * len(constraint)  # calls and returns: 22 for each character
    space(100)
    with pytest.raises(SweepError, match="requirements have 1008687 characters; 1000000 are poss"):
        space(101)
