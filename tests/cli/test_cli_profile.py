"""`tvm-npu profile`: the figures are the simulator's, the table and the JSON say the same."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tvm.relay", exc_type=ImportError)

from tests.report.pages import Visible  # noqa: E402
from tvm_npu.cli import profile_command  # noqa: E402
from tvm_npu.runtime.session import Session  # noqa: E402

pytestmark = pytest.mark.relay

LENET_MACS = 16 * 9 * 64 + 32 * 16 * 9 * 16 + 128 * 64 + 64 * 10


def profiled(run, tmp_path: Path, *arguments: object):  # type: ignore[no-untyped-def]
    """(stdout, stderr, JSON) of a profile that must succeed."""
    target = tmp_path / "profile.json"
    code, out, err = run("profile", *arguments, "--json", target)
    assert code == 0, err
    return out, err, json.loads(target.read_text())


def test_figures_are_those_of_the_simulator(run, tmp_path, lenet, digits_npz, lenet_program):
    _, _, found = profiled(run, tmp_path, lenet, "--calibration", digits_npz)
    session = Session.from_file(lenet_program)
    with np.load(digits_npz) as arrays:
        session.run([arrays["image"][:1]])
    wanted = session.statistics
    assert [layer["name"] for layer in found["layers"]] == [of.name for of in wanted.layers]
    for layer, measured, entry in zip(
        found["layers"], wanted.layers, session.program.layers, strict=True
    ):
        assert layer["cycles"] == measured.cycles > 0
        assert layer["time_us"] == measured.cycles / found["frequency_mhz"]
        assert layer["macs"] == measured.macs
        assert layer["mac_utilization"] == measured.mac_utilization
        assert layer["loaded_bytes"] == measured.loaded_bytes
        assert layer["stored_bytes"] == measured.stored_bytes
        assert layer["ring_bytes"] == measured.bytes_over("ring")
        assert layer["forwarded_bytes"] == measured.bytes_over("forwarded")
        assert layer["predicted_cycles"] == entry.predicted_cycles
        assert layer["code_bytes"] == measured.code_bytes
    totals = found["totals"]
    assert totals["cycles"] == wanted.cycles
    assert totals["macs"] == LENET_MACS == sum(layer["macs"] for layer in found["layers"])
    assert totals["loaded_bytes"] == wanted.loaded_bytes
    assert totals["code_bytes"] == wanted.code_bytes
    assert found["calibration"] == str(digits_npz)


def test_the_time_of_the_sqnr_is_told_where_there_is_one(run, tmp_path, lenet, digits_npz):
    out, _, _ = profiled(run, tmp_path, lenet, "--no-timing")
    assert " simulate " in out and "sqnr" not in out.lower()
    out, _, found = profiled(run, tmp_path, lenet, "--no-timing", "--calibration", digits_npz)
    assert f", sqnr {found['host_seconds']['sqnr']:.2f} s, " in out
    assert found["host_seconds"]["sqnr"] > 0


def test_table_and_json_say_the_same(run, tmp_path, lenet, digits_npz):
    out, _, found = profiled(run, tmp_path, lenet, "--calibration", digits_npz)
    for layer in found["layers"]:
        (line,) = [text for text in out.splitlines() if text.startswith(layer["name"] + " ")]
        numbers = re.findall(r"(?<= )[\d,.]+(?= |$)", line)
        wanted = [f"{layer['macs']:,}", f"{layer['cycles']:,.0f}", f"{layer['time_us']:,.1f}"]
        assert numbers[:3] == wanted
        assert numbers[-1] == f"{layer['code_bytes']:,}"
        assert f"{layer['loaded_bytes']['in']:,}" in numbers
        assert ", ".join(layer["source"]) in line
    assert f"one inference: {found['totals']['cycles']:,.0f} cycles" in out
    assert f"NPU: 100.0 % of the MACs ({LENET_MACS:,})" in out


def test_ring_traffic_is_shown_where_there_is_some(run, tmp_path, lenet):
    """The exact planner's plans share tiles of several TLEs over the Global Ringbus."""
    out, _, found = profiled(run, tmp_path, lenet, "--planner", "exact", "--no-timing")
    totals = found["totals"]["ring_bytes"]
    assert totals and all(
        total == sum(layer["ring_bytes"].get(stream, 0) for layer in found["layers"])
        for stream, total in totals.items()
    )
    assert f"{sum(totals.values()):,} bytes over the Global Ringbus" in out
    assert re.search(r"^.* ring.*$", out, re.M)
    without, _, plain = profiled(run, tmp_path, lenet, "--planner", "tso", "--no-timing")
    assert not plain["totals"]["ring_bytes"] and "Ringbus" not in without


def test_without_timing_only_cycles_are_missing(run, tmp_path, lenet):
    with_out, _, with_timing = profiled(run, tmp_path, lenet)
    without_out, err, without = profiled(run, tmp_path, lenet, "--no-timing")
    assert "random input" in err
    for one, other in zip(with_timing["layers"], without["layers"], strict=True):
        assert other["cycles"] is other["time_us"] is other["mac_utilization"] is None
        for key in ("macs", "loaded_bytes", "stored_bytes", "code_bytes", "predicted_cycles"):
            assert one[key] == other[key]
    assert without["totals"]["cycles"] is None
    assert " us " in with_out and " us " not in without_out


def test_profiles_are_compared_on_a_page_only(run, tmp_path, lenet):  # type: ignore[no-untyped-def]
    code, _, err = run("profile", lenet, "--compare", tmp_path / "other.json")
    assert code == 2 and "argument --compare: only with --html" in err


def test_profiles_stand_beside_each_other_on_the_page(run, tmp_path, lenet):
    profiled(run, tmp_path, lenet, "--planner", "tso", "--no-timing")
    page = tmp_path / "page.html"
    code, _, err = run(
        "profile", lenet, "--planner", "exact", "--no-timing", "--html", page,
        "--compare", tmp_path / "profile.json",
    )  # fmt: skip
    assert code == 0, err
    shown = Visible(page.read_text()).text["comparison"]
    assert ", tso" in shown and ", exact" in shown


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("absent.json", "No such file or directory"),
        ("folder", "Is a directory"),
        ("pipe", "a named pipe, which may have no end"),
        ("/dev/zero", "a device, which may have no end"),
        ("no.json", "Expecting value"),
        ("other.json", "is no profile: its schema is not"),
    ],
)
def test_what_is_compared_is_read_before_the_work(  # type: ignore[no-untyped-def]
    run, tmp_path, lenet, monkeypatch, name, told
):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "no.json").write_text("profile")
    (tmp_path / "other.json").write_text("{}")
    monkeypatch.setattr(profile_command, "load_and_partition", None)  # not called
    page = tmp_path / "page.html"
    code, out, err = run("profile", lenet, "--html", page, "--compare", tmp_path / name)
    assert (code, out) == (1, "") and f"{str(tmp_path / name)!r}" in err and told in err
    assert not page.exists()


def test_runs_are_counted_and_averaged(run, tmp_path, lenet, digits_npz):
    out, _, found = profiled(run, tmp_path, lenet, "--calibration", digits_npz, "--runs", 5)
    _, _, single = profiled(run, tmp_path, lenet, "--calibration", digits_npz)
    per_run = found["totals"]["cycles_per_run"]
    assert len(per_run) == 5 and "5 inferences" in out
    assert found["totals"]["cycles"] == pytest.approx(sum(per_run) / 5)
    assert found["totals"]["macs"] == single["totals"]["macs"]


def test_seed_and_precision_reach_the_compiler(run, tmp_path, lenet):
    _, err, found = profiled(run, tmp_path, lenet, "--seed", 3, "--precision", "int8")
    assert "seed 3" in err
    assert (found["precision"], found["seed"], found["calibration"]) == ("int8", 3, None)
    _, _, wide = profiled(run, tmp_path, lenet)
    narrow_in, wide_in = (of["layers"][-1]["stored_bytes"]["out"] for of in (found, wide))
    assert 2 * narrow_in == wide_in


def test_regions_around_operators_of_the_cpu(run, tmp_path, make_onnx: Callable[..., Path]) -> None:
    model = make_onnx(["LRN", "Conv", "LRN", "Conv", "Relu"])
    out, _, found = profiled(run, tmp_path, model)
    assert [layer["name"] for layer in found["layers"]] == ["conv1", "conv3"]
    assert len({layer["region"] for layer in found["layers"]}) == 2
    split = found["split"]
    assert [item["operator"] for item in split["cpu_operators"]] == ["nn.lrn", "nn.lrn"]
    assert split["npu_macs"] == 4 * 3 * 9 * 36 + 4 * 4 * 9 * 16
    assert split["npu_mac_share"] == 1.0
    assert re.search(r"^ *region +layer", out, re.M) and "nn.lrn: lrn0, lrn2" in out
    assert "2 operators" in out.split("CPU:")[1].splitlines()[0]


def test_open_and_given_shapes(run, tmp_path, make_onnx: Callable[..., Path]) -> None:
    model = make_onnx(["Conv"], ("N", 3, "H", "W"))
    _, _, found = profiled(run, tmp_path, model, "--shape", "x=2,3,9,10")
    assert found["images_per_run"] == 2
    assert found["layers"][0]["macs"] == 2 * 4 * 3 * 9 * 7 * 8
    _, err, found = profiled(run, tmp_path, make_onnx(["Conv"], ("N", 3, 8, 8)))
    assert "batch extent of input 'x' is open: taken as 1" in err
    assert found["images_per_run"] == 1


@pytest.mark.parametrize("width", [80, 100, 200])
def test_tables_fit_the_terminal(run, tmp_path, lenet, monkeypatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    out, _, found = profiled(run, tmp_path, lenet, "--verbose")
    assert max(map(len, out.splitlines())) <= width
    assert "…" not in out.replace(str(lenet), "")
    assert ("bytes moved" in out) == (width < 200)
    for layer in found["layers"]:
        for figure in (layer["macs"], layer["loaded_bytes"]["in"], layer["stored_bytes"]["out"]):
            assert re.search(rf"^{re.escape(layer['name'])} .*(?<= ){figure:,}( |$)", out, re.M)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_columns_without_room_are_named(run, tmp_path, lenet, monkeypatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    out, _, found = profiled(run, tmp_path, lenet)
    assert max(map(len, out.splitlines())) <= width and "…" not in out.replace(str(lenet), "")
    flat = " ".join(out.split())
    left_out = flat.split(f"left out in {width} columns: ")[1].split(";")[0].split(", ")
    words = out.split("total")[0].split()
    for heading, key in (("wait cycles", "wait_cycles"), ("DMA cycles", "dma_cycles")):
        shown = all(f"{layer['breakdown'][key]:,.0f}" in words for layer in found["layers"])
        assert shown != (heading in left_out)
    assert "source" in left_out and "cycles" not in left_out


def test_what_binds_is_said_in_every_form(run, tmp_path, lenet) -> None:
    sheet = tmp_path / "layers.csv"
    out, _, found = profiled(run, tmp_path, lenet, "--csv", sheet)
    with sheet.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for layer, row in zip(found["layers"], rows, strict=True):
        parts = layer["breakdown"]
        busiest = max(parts[f"{role}_cycles"] for role in ("mac", "dma", "control"))
        assert parts["wait_cycles"] == max(0.0, layer["cycles"] - busiest)
        assert row["layer"] == layer["name"] and row["bound"] == parts["bound"]
        assert float(row["roofline_share"]) == parts["roofline_share"] <= 1.0
        assert int(row["loaded_weight_bytes"]) == layer["loaded_bytes"]["weight"]
        moved = sum(layer["loaded_bytes"].values()) + sum(layer["stored_bytes"].values())
        assert int(row["dram_bytes"]) == moved
        # peaks: 32 cores of 8 MACs, 4 DMA engines of 1.4 bytes a cycle
        assert parts["roofline_cycles"] == max(layer["macs"] / 256, moved / 5.6)
        assert 0 < layer["peak_bytes"]["mb1"] <= found["capacity_bytes"]["mb1"] == 8192
        (line,) = [text for text in out.splitlines() if text.startswith(layer["name"] + " ")]
        assert f" {parts['bound']} " in line and f"{parts['wait_cycles']:,.0f}" in line.split()
    totals = found["totals"]
    assert f"{1e6 / totals['time_us']:,.1f} frames a second" in out
    bound, cycles = totals["bound_cycles"], totals["cycles"]
    assert totals["times_bound"] == cycles / bound
    assert totals["macs"] / 192 <= bound < cycles
    assert f"{bound:,.0f} cycles, however layers are joined; this one takes " in out
    ratio = float(re.search(r"this one takes ([\d.]+) times that\n", out)[1])
    assert ratio == pytest.approx(cycles / bound, abs=0.05)
    assert "what bound, roof and the other figures are: docs/report.md" in out
    assert f"DRAM: {totals['dram_peak_bytes']:,} bytes" in out and totals["energy_uj"] is None
    assert f"mb1 {totals['peak_bytes']['mb1']:,} of 8,192" in out and " uJ " not in out


def test_files_are_said_to_be_there(run, tmp_path, make_onnx: Callable[..., Path]) -> None:
    files = [tmp_path / f"out.{ending}" for ending in ("csv", "trace", "html", "onnx", "json")]
    named = zip(("--csv", "--trace", "--html", "--overlay", "--overlay"), files, strict=True)
    _, err, _ = profiled(
        run, tmp_path, make_onnx(["Conv"]), *[one for both in named for one in both]
    )
    for path in (*files, tmp_path / "profile.json"):
        (said,) = re.findall(rf"^wrote {re.escape(str(path))} \((.*) (bytes|KB|MB)\)$", err, re.M)
        unit = 1000 ** ["bytes", "KB", "MB"].index(said[1])
        assert abs(float(said[0]) * unit - path.stat().st_size) <= 0.051 * unit, path
    _, err, _ = profiled(run, tmp_path, make_onnx(["Conv"]))
    assert err.count("wrote ") == 1


def test_a_trace_of_some_layers(run, tmp_path, lenet) -> None:
    path = tmp_path / "trace.json"
    _, err, found = profiled(
        run, tmp_path, lenet, "--trace", path, "--trace-layers", "2:fc1", "--machine", "setup-a"
    )
    records = json.loads(path.read_text())["traceEvents"]
    names = [layer["name"] for layer in found["layers"]]
    wanted = names[1 : names.index("fc1") + 1]
    assert {item["name"] for item in records if item["ph"] == "b"} == set(wanted)
    assert "left out" not in err
    code, _, err = run("profile", lenet, "--trace", path, "--trace-layers", "fc9")
    assert code == 1 and "no layer 'fc9'" in err and "'logits'" in err
    code, _, err = run("profile", lenet, "--trace", path, "--no-timing")
    assert code == 2 and "--no-timing" in err


def test_energy_where_the_machine_file_has_it(run, tmp_path, lenet) -> None:
    path = tmp_path / "own.toml"
    path.write_text(
        'extends = "nmp-4x8"\nname = "own"\n[energy]\nint16_mac_pj = 2.0\n'
        "instruction_pj = 0.5\n[energy.memory_byte_pj]\ndram = 100.0\n"
        "[energy.link_byte_pj]\nring = 3.0\n"
    )
    out, _, found = profiled(run, tmp_path, lenet, "--machine", path)
    for part in (found["totals"], *found["layers"]):
        moved = sum(part["loaded_bytes"].values()) + sum(part["stored_bytes"].values())
        wanted_pj = 100 * moved + 0.5 * part["instructions"] + 3 * sum(part["ring_bytes"].values())
        # cascades compute some rows twice
        assert part["energy_uj"] * 1e6 >= wanted_pj + 2.0 * part["macs"]
        assert part["energy_uj"] * 1e6 == pytest.approx(wanted_pj + 2.0 * part["macs"], rel=0.05)
    assert f"{found['totals']['energy_uj']:,.1f} uJ an inference" in out
    path.write_text(path.read_text().replace("dram =", "attic ="))
    code, _, err = run("profile", lenet, "--machine", path)
    assert code == 1 and "energy.memory_byte_pj.attic: the machine has only bias, dram, mb0" in err


@pytest.mark.parametrize("base", ["setup-a", "snowflake-1cc"])
def test_energy_of_machines_of_other_kinds(run, tmp_path, lenet, base: str) -> None:
    path = tmp_path / "own.toml"
    path.write_text(f'extends = "{base}"\nname = "own"\n[energy.memory_byte_pj]\ndram = 100.0\n')
    _, _, found = profiled(run, tmp_path, lenet, "--machine", path)
    for part in (found["totals"], *found["layers"]):
        moved = sum(part["loaded_bytes"].values()) + sum(part["stored_bytes"].values())
        assert part["energy_uj"] == pytest.approx(100e-6 * moved) and moved > 0


def test_machine_files_of_the_users_own(run, tmp_path, lenet) -> None:
    from tvm_npu.sim.nmp.machine import load_nmp_machine

    code, text, _ = run("machines", "nmp-4x8")
    assert code == 0
    lines = text.replace("tles = 4", "tles = 1").splitlines()
    path = tmp_path / "one.toml"
    path.write_text("\n".join(lines).replace("nmp-4x8", "one-tle"))
    assert load_nmp_machine(path).cores.tles == 1
    _, err, found = profiled(run, tmp_path, lenet, "--machine", path)
    assert "built-in" not in err
    _, _, built_in = profiled(run, tmp_path, lenet)
    assert found["machine"] == "one-tle"
    assert found["totals"]["macs"] == built_in["totals"]["macs"]
    assert found["totals"]["cycles"] != built_in["totals"]["cycles"]
    path.write_text("\n".join(lines))
    _, err, _ = profiled(run, tmp_path, lenet, "--machine", path)
    assert "has the name of the built-in machine 'nmp-4x8', but differs from it" in err
    path.write_text("\n".join(lines).replace("tles = 1", "tles = 4"))
    _, err, _ = profiled(run, tmp_path, lenet, "--machine", path)
    assert "built-in" not in err


def test_sources_are_never_shortened_beside_the_figures(
    run, tmp_path, make_onnx: Callable[..., Path], monkeypatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out, _, found = profiled(run, tmp_path, make_onnx(["Conv", "Relu"]), "--verbose")
    assert found["layers"][0]["source"] == ["conv0", "relu1"] and "conv0, relu1" in out
    assert "…" not in out.split("\n\n", 1)[1]


def test_reasons_are_indented_in_narrow_terminals(
    run, tmp_path, make_onnx: Callable[..., Path], monkeypatch
) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    out, _, _ = profiled(run, tmp_path, make_onnx(["LRN", "Conv"]))
    reasons = out.split("why not on the NPU:\n")[1].splitlines()
    assert len(reasons) > 2 and all(line.startswith("  ") for line in reasons)
    assert max(map(len, reasons)) <= 50


def test_images_are_said_to_be_fed_as_they_are(run, tmp_path, make_onnx: Callable[..., Path]):
    from PIL import Image

    Image.new("RGB", (8, 8), (10, 200, 30)).save(tmp_path / "a.png")
    model = make_onnx(["Conv"])
    _, err, _ = profiled(run, tmp_path, model, "--calibration", tmp_path)
    assert "note: images are fed as 0..255" in err
    np.save(tmp_path / "b.npy", np.zeros((1, 3, 8, 8), np.float32))
    _, err, _ = profiled(run, tmp_path, model, "--calibration", tmp_path / "b.npy")
    assert "fed as" not in err


def test_calibration_images_are_prepared(run, tmp_path, make_onnx: Callable[..., Path]) -> None:
    """Images with arithmetic are what arrays of the prepared values are."""
    from PIL import Image

    pixels = np.random.default_rng(4).integers(0, 256, (8, 8, 3), np.uint8)
    images, arrays = tmp_path / "images", tmp_path / "arrays"
    for folder in (images, arrays):
        folder.mkdir()
    Image.fromarray(pixels).save(images / "a.png")
    mean, std = np.float32([0.5, 0.25, 0.125]), np.float32(0.5)
    values = (pixels[..., ::-1].astype(np.float32) * np.float32(0.5) - mean) / std
    np.save(arrays / "a.npy", values.transpose(2, 0, 1)[None])
    model, written = make_onnx(["Conv"]), []
    for number, given in enumerate(
        ([arrays], [images, "--bgr", "--scale", 0.5, "--mean", 0.5, 0.25, 0.125, "--std", 0.5])
    ):
        folder = tmp_path / f"out{number}"
        code, _, err = run("compile", model, "-o", folder, "--calibration", *given)
        assert code == 0 and "fed as" not in err
        (program,) = folder.iterdir()
        written.append(program.read_bytes())
    assert written[0] == written[1]
    out, _, _ = profiled(run, tmp_path, model, "--calibration", images, "--scale", 0.5)
    assert "as (x * 0.5 - 0) / 1" in out
    _, _, found = profiled(
        run, tmp_path, model, "--calibration", images, "--preset", "imagenet", "--fit", "stretch"
    )
    assert found["calibration"] == (
        f"{images} as imagenet: (x * 0.00392157 - 0.485 0.456 0.406) / 0.229 0.224 0.225, "
        "stretched to fit"
    )
    code, _, err = run("tune", model, "--log", tmp_path / "log", "--preset", "caffe", "--std", 2)
    assert code == 2 and "--preset: not allowed with --std" in err


def test_a_model_without_weights_costs_the_same(run, tmp_path, lenet) -> None:
    onnx = pytest.importorskip("onnx")
    model = onnx.load(lenet)
    for tensor in model.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            tensor.ClearField("raw_data")
            tensor.ClearField("float_data")
    bare = tmp_path / "bare.onnx"
    bare.write_bytes(model.SerializeToString())
    _, _, wanted = profiled(run, tmp_path, lenet)
    _, _, found = profiled(run, tmp_path, bare, "--random-weights", "--seed", 5)
    assert found["model"] == f"{bare}, random weights"
    for key in ("macs", "loaded_bytes", "stored_bytes", "ring_bytes"):
        assert found["totals"][key] == wanted["totals"][key]
    # Other Q-points may be an instruction more or less, and engines then serve in another order.
    assert found["totals"]["cycles"] == pytest.approx(wanted["totals"]["cycles"], rel=5e-3)
    code, _, err = run("tune", "x.tflite", "--log", tmp_path / "log", "--random-weights")
    assert code == 1 and "is a TensorFlow Lite model" in err
    code, _, err = run("profile", "x.tflite", "--overlay", tmp_path / "nodes.json")
    assert code == 2 and "'x.tflite' is no ONNX model, and overlays are for these" in err


def test_a_long_first_simulation_is_explained(run, tmp_path, lenet, monkeypatch) -> None:
    import time

    from tvm_npu.cli import terminal

    monkeypatch.setattr(terminal, "PATIENCE_S", 600.0)
    _, err, _ = profiled(run, tmp_path, lenet)
    assert terminal.COMPILING not in err
    original = Session.run

    def slow(self: Session, inputs, **options):  # type: ignore[no-untyped-def]
        time.sleep(0.5)
        return original(self, inputs, **options)

    monkeypatch.setattr(terminal, "PATIENCE_S", 0.05)
    monkeypatch.setattr(Session, "run", slow)
    _, err, _ = profiled(run, tmp_path, lenet, "--runs", 3)
    assert err.count(terminal.COMPILING) == 1


def test_a_run_without_end_ends(run, tmp_path, make_onnx, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """In memories of 64 bytes large layers take billions of instructions."""
    from tvm_npu.cli import profile_command

    machine = tmp_path / "tiny.toml"
    memories = "".join(f"{name}_bytes = 64\n" for name in ("mb0", "mb1", "mb2", "bias"))
    machine.write_text(f'extends = "nmp-4x8"\nname = "tiny"\n[memories]\n{memories}')
    monkeypatch.setattr(profile_command, "MOST_INSTRUCTIONS", 2_000)
    monkeypatch.setattr(profile_command, "SLOW_S", 0.0)
    model = make_onnx(["Conv"], (1, 3, 24, 24))
    code, _, err = run("profile", model, "--machine", machine)
    assert code == 1 and "still running after 2000 instructions" in err
    assert "still planning and making code; memories of a few bytes" in err
    assert "after 2,000 instructions, --limits instructions=N says another number" in err
    _, _, found = profiled(run, tmp_path, model, "--machine", machine,
                           "--limits", "instructions=9m")  # fmt: skip
    assert found["totals"]["instructions"] > 2_000
