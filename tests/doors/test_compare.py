"""A comparison through the door of the installed TVM: real processes, judged answers, tables."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import tvm_npu
from tests.patience import PATIENCE_S, eventually
from tvm_npu.cli import main
from tvm_npu.cli.compare_tables import print_comparison
from tvm_npu.cli.files import write_csv
from tvm_npu.codegen.passes.layer_errors import LEAST_DB
from tvm_npu.comparison import Comparison, compare
from tvm_npu.comparison.inputs import read_samples, write_samples
from tvm_npu.comparison.judge import judge
from tvm_npu.comparison.process import _reason, _run
from tvm_npu.comparison.runners import stock_tuned
from tvm_npu.comparison.task import Measured, Task
from tvm_npu.comparison.worker import measure
from tvm_npu.door.find import door_name
from tvm_npu.door.models import build_onnx
from tvm_npu.errors import ComparisonError, TargetError
from tvm_npu.models import build_recurrent
from tvm_npu.models.data import load_digits, load_digits_lenet
from tvm_npu.sim import machine_file
from tvm_npu.sim.limits import LimitError, Limits
from tvm_npu.sim.traps import Trap

pytest.importorskip("tvm", reason="neither the relay nor the relax extra is installed")
pytest.importorskip("onnxruntime")

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "tvm_npu" / "models" / "data" / "digits_lenet.onnx"
IMAGES = 3


@pytest.fixture(scope="module")
def found() -> Comparison:
    images, labels = load_digits()
    return compare(
        MODEL, images[:IMAGES], [int(label) for label in labels[:IMAGES]],
        threads=1, repeats=2,
    )  # fmt: skip


def test_every_runner_has_a_row_and_tuning_says_why_not(found: Comparison) -> None:
    assert [(row.runner, row.machine) for row in found.rows] == [
        ("stock", None), ("onnxruntime", None), ("npu", "nmp-4x8"),
    ]  # fmt: skip
    assert all(row.error is None for row in found.rows)
    assert [row.door for row in found.rows] == [door_name(), "", door_name()]
    assert found.left_out == ("stock-tuned: needs trials",)


def test_simulated_times_are_those_of_the_program_and_told_from_measured_ones(
    found: Comparison,
) -> None:
    import tvm_npu.runtime as npu_runtime

    stock, floats, npu = found.rows
    assert (stock.simulated, floats.simulated) == (False, False)
    images, _ = load_digits()
    built = build_onnx(load_digits_lenet(), "nmp-4x8", {"image": images[:IMAGES]})
    npu_runtime.clear_sessions()
    built.run({"image": images[:1]})
    (session,) = npu_runtime.sessions().values()
    assert npu.simulated and npu.latency_us == pytest.approx(session.statistics.time_us)
    assert npu.images_per_s == pytest.approx(1e6 / session.statistics.time_us)
    assert npu.rest_us is not None and npu.rest_us > 0
    program = hashlib.sha256(session.program.to_bytes()).digest()
    assert npu.program_sha256 == hashlib.sha256(program).hexdigest()


def test_energy_is_of_one_inference_as_profile_tells_it(found: Comparison, tmp_path: Path) -> None:
    images, _ = load_digits()
    machine = tmp_path / "own.toml"
    machine.write_text(
        'extends = "nmp-4x8"\nname = "own"\n[energy]\nint16_mac_pj = 2.0\ninstruction_pj = 0.5\n'
        "[energy.memory_byte_pj]\ndram = 100.0\n"
    )
    limits = Limits(work=1 << 30, host_bytes=1 << 32)
    (own,) = compare(
        MODEL, images[:2], runners=["npu"], machines=[str(machine)], limits=limits
    ).rows
    profiled = tvm_npu.profile(MODEL, str(machine), {"image": images[:2]})
    assert found.rows[2].energy_uj is None and own.error is None
    assert own.energy_uj == pytest.approx(profiled.profile.totals.energy_uj, rel=1e-6)


def test_what_an_npu_may_take(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the process is asked, measured in this one."""

    def measured_here(task: Task, python: str) -> Measured:
        try:
            return measure(Task.from_json(json.dumps(task.to_dict())))
        except Trap as trap:
            raise ComparisonError(f"Trap: {trap}") from trap

    monkeypatch.setitem(compare.__globals__, "measured", measured_here)
    assert main(["compare", str(MODEL), "--runner", "npu", "--limits", "work=9k"]) == 1
    printed = capsys.readouterr()
    assert re.search("failed: nmp-4x8 .*: Trap: .* more than 9216 products", printed.out)
    assert "error: no runner has run the model" in printed.err
    with pytest.raises(LimitError, match="limit host_bytes allows 9;"):
        tvm_npu.profile(MODEL, limits=Limits(host_bytes=9))


@pytest.mark.skipif(door_name() != "relay", reason="Relax reads no LSTMs")
def test_a_sequence_is_one_image_for_profile_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        compare.__globals__, "measured", lambda task, python: measure(task)
    )
    model = build_recurrent("lstm", hidden=8, layers=1, steps=6)
    found = compare(model, runners=["npu"], machines=["snowflake-1cc"])
    (row,) = found.rows
    profiled = tvm_npu.profile(model, "snowflake-1cc").profile
    assert row.error is None and found.images == profiled.images_per_run == 1
    assert row.images_per_s == pytest.approx(profiled.totals.frames_per_s)
    assert row.images_per_s == pytest.approx(1e6 / row.latency_us)


def test_answers_are_judged_by_reference_and_labels(found: Comparison) -> None:
    stock, floats, npu = found.rows
    assert found.reference == "onnxruntime" and floats.sqnr_db is None
    assert stock.sqnr_db is None or stock.sqnr_db > 100
    assert 40 < npu.sqnr_db < 100
    assert {row.top1 for row in found.rows} == {1.0}


def test_memory_and_compile_time_belong_to_the_process(found: Comparison) -> None:
    for row in found.rows:
        assert 0 < row.imports_rss_bytes <= row.compile_rss_bytes <= row.peak_rss_bytes
        assert sum(row.phases_s.values()) <= row.compile_s + 0.01
        assert 0 < row.compile_cpu_s < len(os.sched_getaffinity(0)) * row.compile_s + 0.1
    assert found.rows[2].compile_cpu_s > 0.05
    npu = found.rows[2]
    assert {"read", "partition", "calibrate", "plan", "emit", "TVM"} <= set(npu.phases_s)
    assert npu.library_bytes > npu.weight_bytes / 2


def test_the_table_fits_80_columns_and_csv_and_json_hold_all(
    found: Comparison, tmp_path: Path
) -> None:
    console = Console(width=80, file=io.StringIO(), markup=False, highlight=False)
    print_comparison(found, console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    table = text.split("─\n")[1].splitlines()[: len(found.rows)]
    assert max(map(len, table)) <= 80
    assert [line.split()[-1] for line in table] and "  sim  " in table[2] and "  cpu  " in table[0]
    write_csv(tmp_path / "rows.csv", found.flat_rows())
    lines = list(csv.DictReader((tmp_path / "rows.csv").read_text().splitlines()))
    assert [line["output_sha256"] for line in lines] == [row.output_sha256 for row in found.rows]
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["rows"][2]["regions"] == 1


def test_the_page_tells_simulated_times_from_measured_ones(found: Comparison) -> None:
    pytest.importorskip("jinja2")
    from tvm_npu.report.page.compared import make_comparison_page

    broken = replace(found.rows[0], error="a <b> went wrong", latency_us=None)
    page = make_comparison_page(replace(found, rows=(*found.rows, broken)))
    simulated, measured = page.split("<h2>Latency, ")[1:3]
    measured = measured.split("</section>")[0]
    for row in found.rows:
        assert row.latency_us is not None
        cells = f'<th scope="row">{row.name}</th><td class="n">{row.latency_us:,.1f}</td>'
        assert (cells in simulated) == bool(row.simulated), row.name
        assert (cells in measured) == (not row.simulated), row.name
    assert 'style="width:100.0%"' in simulated and 'style="width:100.0%"' in measured
    assert "a &lt;b&gt; went wrong" in page and "left out: stock-tuned: needs trials" in page
    assert not re.search(r"(src|href)=", page)


def test_failures_are_rows(found: Comparison, tmp_path: Path) -> None:
    import onnx
    from onnx import TensorProto, helper

    value = helper.make_tensor_value_info
    node = helper.make_node("Foo", ["x"], ["y"], domain="nobody")
    ends = [value(name, TensorProto.FLOAT, (1, 2)) for name in "xy"]
    graph = helper.make_graph([node], "foo", ends[:1], ends[1:])
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid("nobody", 1)]
    path = tmp_path / "foo.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    rows = tmp_path / "rows.json"
    assert main(["compare", str(path), "--runner", "onnxruntime", "--json", str(rows)]) == 1
    (row,) = json.loads(rows.read_text())["rows"]
    assert "nobody" in row["error"] and row["latency_us"] is None
    failed = replace(found, rows=(replace(found.rows[0], error="it broke"), *found.rows[1:]))
    console = Console(width=80, file=io.StringIO())
    print_comparison(failed, console)
    assert "failed: stock" in console.file.getvalue()  # type: ignore[attr-defined]


def test_what_cannot_be_asked_is_told_before_any_work() -> None:
    with pytest.raises(ComparisonError, match="unknown runner 'gpu'; known: stock"):
        compare(MODEL, runners=["gpu"])
    with pytest.raises(ComparisonError, match="at least 1, not 0"):
        compare(MODEL, runners=["stock-tuned"])
    with pytest.raises(ComparisonError, match="cannot run '/no/python'"):
        compare(MODEL, runners=["npu"], pythons=["/no/python"])
    begun: list[str] = []
    with pytest.raises(TargetError, match="unknown machine 'nosuch'"):
        compare(MODEL, machines=["nosuch"], progress=begun.append)
    with pytest.raises(TargetError, match="'snowflake' does not plan machine 'nmp-4x8' of .* do$"):
        compare(
            "no-such.onnx", machines=["snowflake-1cc", "nmp-4x8"], planners=["exact", "snowflake"],
            progress=begun.append,
        )  # fmt: skip
    with pytest.raises(ComparisonError, match="1 labels for 2 images"):
        compare(MODEL, load_digits()[0][:2], [1], progress=begun.append)
    assert not begun


def test_the_command_checks_planners_and_interpreters_before_it_reads_images(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = ["compare", "no-such.onnx", "--images", "no-such", "--machine", "snowflake-1cc"]
    assert main([*asked, "nmp-4x8", "--planner", "snowflake"]) == 1
    assert "'snowflake' does not plan machine 'nmp-4x8'" in capsys.readouterr().err
    assert main([*asked, "--python", "/no/python"]) == 1
    assert "cannot run '/no/python'" in capsys.readouterr().err
    assert main([*asked, "--planner", "snowflake"]) == 1
    assert "no-such" in capsys.readouterr().err


def test_trials_need_what_the_tuner_imports(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(stock_tuned, "NEEDED", ("no_such_package",))
        told = r"'stock-tuned', which makes the 3 trials, needs no_such.*: pip install '.\[compare"
        with pytest.raises(ComparisonError, match=told):
            compare("no-such.onnx", trials=3)
        assert main(["compare", "no-such.onnx", "--trials", "3"]) == 1
        assert "needs no_such_package: pip install '.[compare]'" in capsys.readouterr().err
        with pytest.raises(ComparisonError, match="'stock-tuned' needs no_such_package: pip"):
            compare("no-such.onnx", trials=3, runners=["stock-tuned"])
    other = tmp_path / "other"
    hidden = "import sys; sys.modules['psutil'] = None; "
    other.write_text(
        "#!/bin/sh\nfor at do case $at in -c) shift; text=$1; shift; "
        f'exec "{sys.executable}" -W ignore -c "{hidden}$text" "$@";; esac; shift; done\n'
    )
    other.chmod(0o755)
    pytest.importorskip("xgboost")
    with pytest.raises(ComparisonError, match=f"{other}.*'stock-tuned' needs psutil: pip install"):
        compare("no-such.onnx", trials=3, pythons=[str(other)])


def test_planners_of_a_log_of_plans(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """What is asked of the process, measured in this one."""
    log = tmp_path / "log.jsonl"
    tune = ["tune", str(MODEL), "--tuner", "random", "--trials", "2", "--log", str(log)]
    assert main(tune) == 0
    capsys.readouterr()
    begun: list[str] = []
    for given, error, told in (
        ({}, ComparisonError, "'learned' plans by the log of plans .*none is given .*--plan-log"),
        ({"plan_log": tmp_path / "none"}, TargetError, "cannot read tuning log .*none"),
        ({"plan_log": log, "planners": ["tso"]}, ComparisonError, "'learned' and .*planners tso$"),
    ):
        asked = {"planners": ["exact", "learned"], "progress": begun.append, **given}
        with pytest.raises(error, match=told):
            compare("no-such.onnx", **asked)  # type: ignore[arg-type]
    assert main(["compare", "no-such.onnx", "--planner", "exact-tuned"]) == 1
    assert "none is given (plan_log, --plan-log)" in capsys.readouterr().err and not begun
    tasks = []

    def measured_here(task: Task, python: str) -> Measured:
        tasks.append(task)
        return measure(Task.from_json(json.dumps(task.to_dict())))

    monkeypatch.setitem(compare.__globals__, "measured", measured_here)
    exact, learned = compare(
        MODEL, runners=["npu"], planners=["exact", "learned"], plan_log=log, repeats=1
    ).rows
    assert [task.plan_log for task in tasks] == [None, str(log)]
    assert exact.error is learned.error is None
    assert exact.output_sha256 == learned.output_sha256
    assert exact.program_sha256 != learned.program_sha256


def test_a_log_that_cannot_be_kept_is_told_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("xgboost")
    begun: list[str] = []

    def message(log: Path) -> str:
        with pytest.raises(ComparisonError) as told:
            compare("no-such.onnx", trials=1, tuning_log=log, progress=begun.append)
        return str(told.value)

    file = tmp_path / "file"
    file.touch()
    for log in (file, file / "a" / "b"):
        wanted = f"log cannot be kept in {str(log)!r}: {str(file)!r} is no folder; name another"
        assert wanted in message(log)
    asked = ["compare", "no-such.onnx", "--images", "no-such", "--trials", "1", "--tuning-log"]
    assert main([*asked, str(file)]) == 1
    assert f"{str(file)!r} is no folder" in capsys.readouterr().err
    monkeypatch.setattr(os, "access", lambda path, _: Path(path) != tmp_path)
    assert f"permission denied in {str(tmp_path)!r}; name another" in message(tmp_path / "a" / "b")
    assert not begun and sorted(tmp_path.iterdir()) == [file]


def test_what_is_named_twice_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Task, str]] = []

    def measured(task: Task, python: str) -> Measured:
        asked.append((task, python))
        raise ComparisonError("not now")

    monkeypatch.setitem(compare.__globals__, "measured", measured)
    here = os.path.relpath(sys.executable)
    compare(
        MODEL, machines=["nmp-4x8", "nmp-4x8", "setup-a"], precisions=[None, "int16", "int8"],
        runners=["npu"], pythons=[sys.executable, here],
    )  # fmt: skip
    assert [(task.machine["name"], task.precision) for task, _ in asked if task.machine] == [
        ("nmp-4x8", "int16"), ("nmp-4x8", "int8"), ("setup-a", "int8"), ("setup-a", "int16"),
    ]  # fmt: skip
    assert {python for _, python in asked} == {sys.executable}


def test_the_command_reads_a_machine_file_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    machine = tmp_path / "own.toml"
    machine.write_text('extends = "nmp-4x8"\nname = "own"\n')
    asked: list[Task] = []
    reads: list[Path] = []

    def measured(task: Task, python: str) -> Measured:
        asked.append(task)
        raise ComparisonError("not now")

    def read_bounded(path: Path, *options: int) -> str:
        reads.append(path)
        return read(path, *options)

    read = machine_file.read_text_bounded
    monkeypatch.setitem(compare.__globals__, "measured", measured)
    monkeypatch.setattr(machine_file, "read_text_bounded", read_bounded)
    assert main(["compare", str(MODEL), "--runner", "npu", "--machine", str(machine)]) == 1
    assert [task.machine["name"] for task in asked if task.machine] == ["own"]
    assert reads.count(machine) == 1


def test_an_interpreter_without_the_project_is_told_what_helps(tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
    bare.chmod(0o755)
    with pytest.raises(ComparisonError, match=f"No module.*{bare} -m pip install '.\\[relay\\]'"):
        compare(MODEL, runners=["npu"], pythons=[str(bare)])


def test_a_typed_error_is_told_by_its_words_alone() -> None:
    for error, told in (
        ("tvm_npu.codegen.errors.PlanningError: no", "no"),
        ("OSError: no", "OSError: no"),
    ):
        done = subprocess.CompletedProcess([], 1, "", f"Traceback:\n{error}\n")
        assert _reason(done) == told


def test_images_that_fill_no_batch_are_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    import onnx
    from onnx import TensorProto, helper

    value = helper.make_tensor_value_info
    ends = [value(name, TensorProto.FLOAT, (2, 3)) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", ends[:1], ends[1:])
    model = tmp_path / "pairs.onnx"
    opsets = [helper.make_opsetid("", 13)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), model)
    asked: list[int] = []

    def measured(task: Task, python: str) -> Measured:
        asked.append(sum(1 for _ in read_samples(Path(task.samples))))
        raise ComparisonError("not now")

    monkeypatch.setitem(compare.__globals__, "measured", measured)
    images = tmp_path / "images.npz"
    command = ["compare", str(model), "--runner", "onnxruntime", "--images", str(images)]
    for count, said in (
        (5, "note: 1 of the 5 images of "),
        (1, f"{str(images)!r} has no images for a batch; at least one is needed"),
    ):
        np.savez(images, images=np.zeros((count, 3), np.float32))
        assert main(command) == 1
        assert said in capsys.readouterr().err.replace("\n", " ")
    assert asked == [2]


def test_labels_without_images_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(MODEL), "--labels", "labels.csv"]) == 2
    assert "--labels: only with --images" in capsys.readouterr().err
    assert main(["compare", str(MODEL), "--limit", "0"]) == 2
    assert "argument --limit: '0' is not an integer of at least 1" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_processes_of_a_measurement_end_with_whoever_asked(number: int, tmp_path: Path) -> None:
    """Those that tuners start, too."""
    pids = tmp_path / "pids"
    started = (
        "import os, subprocess, sys; from pathlib import Path; "
        "from tvm_npu.comparison.worker import end_with_the_parent as e; e(); "
        "s = subprocess.Popen(['sleep', '9999']); "
        f"p = Path({str(pids)!r}); t = p.with_suffix('.t'); "
        "t.write_text(f'{os.getpid()} {s.pid}'); t.rename(p); s.wait()"
    )
    code = (
        "import sys; from tvm_npu.comparison.process import _run; "
        f"_run(['-c', {started!r}], 1, sys.executable)"
    )
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.PIPE) as asking:
        assert eventually(pids.exists)
        asking.send_signal(number)
    assert eventually(lambda: not any(map(_runs, pids.read_text().split())))


def test_a_group_ends_before_its_number_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the process leaves behind, with its output open, keeps nobody waiting."""
    states: list[str] = []

    def kill(group: int, number: int) -> None:
        states.append(Path(f"/proc/{group}/stat").read_text().rsplit(")", 1)[1].split()[0])
        killpg(group, number)

    killpg = os.killpg
    monkeypatch.setattr(os, "killpg", kill)
    code = "import subprocess, sys; print(subprocess.Popen(['sleep', '9999']).pid); sys.exit('oh')"
    begin = time.monotonic()
    done = _run(["-c", code], 1, sys.executable)
    assert time.monotonic() - begin < PATIENCE_S and states == ["Z"]
    assert (done.returncode, done.stderr) == (1, "oh\n")
    assert eventually(lambda: not _runs(done.stdout.strip()))


def _runs(pid: str) -> bool:
    try:
        return Path("/proc", pid, "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_names_of_any_text_survive_sample_files(tmp_path: Path) -> None:
    samples = [{"a/b:0": np.arange(3.0), "ü": np.ones((1, 2), np.int64) * n} for n in range(2)]
    assert write_samples(tmp_path / "s.npz", iter(samples)) == 2
    for want, got in zip(samples, read_samples(tmp_path / "s.npz"), strict=True):
        assert want.keys() == got.keys()
        assert all(np.array_equal(want[name], got[name]) for name in want)


def test_judgements_are_of_the_worst_output_and_count_classes() -> None:
    second = np.array([[10.0]])
    wanted = [[np.array([[0.0, 1.0]]), second], [np.array([[1.0, 0.0]]), second]]
    found = [[np.array([[0.0, 1.0]]), second - 1], [np.array([[1.0, 2.0]]), second]]
    judged = judge(found, wanted, [1, 1])
    assert judged.sqnr_db == pytest.approx(10 * np.log10(2 / 4))
    assert (judged.agreement, judged.top1) == (0.5, 1.0)
    assert judge(wanted, wanted, None).sqnr_db is None


def test_errors_where_there_should_be_nothing_are_no_perfect_answers() -> None:
    nothing, something = [[np.zeros((1, 2))]], [[np.array([[0.0, 0.5]])]]
    assert judge(something, nothing, None).sqnr_db == LEAST_DB
    assert judge(nothing, nothing, None).sqnr_db is None


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_answers_that_are_no_numbers_are_told(bad: float) -> None:
    wanted, found = [[np.array([[0.0, 1.0]])]], [[np.array([[0.0, bad]])]]
    with pytest.raises(ComparisonError, match="^the answer to sample 1 .*1 of 2 values like"):
        judge(found, wanted, None)
    with pytest.raises(ComparisonError, match="^the reference's answer to sample 1 "):
        judge(wanted, found, None)
    assert judge([[np.float32(1.5)]], [[np.float32(1.0)]], None).sqnr_db is not None


def test_the_peak_is_of_this_process_alone() -> None:
    """`getrusage` would tell the parent's."""
    ballast = np.ones(300_000_000, np.uint8)
    code = "from tvm_npu.comparison.memory import peak_resident_bytes as p; print(p())"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert int(done.stdout) < ballast.nbytes / 2
