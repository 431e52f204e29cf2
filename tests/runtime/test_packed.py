"""The packed function without TVM: sessions by digest, their names, altered programs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
import pytest

from tests.runtime.networks import compiled, machine, network
from tvm_npu.codegen.errors import ProgramError
from tvm_npu.runtime import packed
from tvm_npu.runtime.session import Session
from tvm_npu.sim.interrupted import taken_back
from tvm_npu.sim.limits import LimitError, Limits
from tvm_npu.sim.traps import Trap


class Tensor:
    """What the function needs of TVM's tensors."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    def numpy(self) -> np.ndarray:
        return self.array.copy()

    def copyfrom(self, values: np.ndarray) -> None:
        assert values.dtype == np.float32 and values.shape == self.shape
        self.array[...] = values


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    packed.clear_sessions()
    yield
    packed.clear_sessions()


def blob_of(precision: str) -> tuple[str, Tensor]:
    data = compiled(machine(), precision)[0].to_bytes()
    return hashlib.sha256(data).hexdigest(), Tensor(np.frombuffer(data, np.int8))


def call(symbol: str, precision: str = "int16") -> list[np.ndarray]:
    digest, blob = blob_of(precision)
    _, samples = network()
    outputs = [Tensor(np.zeros((3, 10), np.float32)), Tensor(np.zeros((3, 8, 12, 12), np.float32))]
    packed.run_packed(symbol, digest, 2, blob, Tensor(samples), Tensor(samples[::-1]), *outputs)
    return [output.array for output in outputs]


def test_same_values_as_a_session() -> None:
    _, samples = network()
    expected = Session(compiled(machine())[0]).run([samples, samples[::-1]])
    for found in (call("npu_0"), call("npu_0")):
        assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))
    assert packed.last_session().statistics.runs == 3
    assert packed.last_session().total_statistics.runs == 6


def test_names_of_sessions() -> None:
    assert packed.last_session() is None and not packed.sessions()
    call("a")
    call("b")  # the same program: one session under two names
    assert list(packed.sessions()) == ["a", "b"]
    assert packed.find_session("a") is packed.find_session("b") is packed.last_session()
    call("a", "int8")
    digests = [blob_of(precision)[0][:8] for precision in ("int16", "int8")]
    assert set(packed.sessions()) == {f"a@{digests[0]}", "b", f"a@{digests[1]}"}
    assert packed.last_session() is packed.find_session(f"a@{digests[1]}")
    assert {s.runs for s in packed.statistics().values()} == {3}
    with pytest.raises(KeyError, match="no session 'c' has run; open: "):
        packed.find_session("c")


def test_regions_take_what_the_block_allows_and_raise_their_own_errors() -> None:
    expected = call("a")
    with packed.limited(Limits(work=1 << 30, host_bytes=1 << 32)):
        assert all(np.array_equal(a, b) for a, b in zip(call("a"), expected, strict=True))
    with pytest.raises(Trap, match="more than 9 products"), packed.limited(Limits(work=9)):
        try:
            call("a")
        except Trap as trap:  # as Relax's machine does
            raise RuntimeError(str(trap)) from None
    with pytest.raises(LimitError), packed.limited(Limits(host_bytes=9)):
        call("a")
    with pytest.raises(KeyError), packed.limited(Limits(work=9)):
        raise KeyError("of another's making")
    assert all(np.array_equal(a, b) for a, b in zip(call("a"), expected, strict=True))


def test_altered_programs_are_refused() -> None:
    digest, blob = blob_of("int16")
    changed = blob.array.copy()
    changed[-1] ^= 1
    with pytest.raises(ProgramError, match="'a' has digest .* was altered"):
        packed.run_packed("a", digest, 0, Tensor(changed))
    assert not packed.sessions()


def test_an_interrupt_is_an_exception_which_tvm_hands_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(packed, "_run_region", run)
    with pytest.raises(KeyboardInterrupt) as caught:
        call("npu_0")
    assert isinstance(caught.value, Exception)
    with pytest.raises(KeyboardInterrupt) as caught, taken_back():
        call("npu_0")
    assert not isinstance(caught.value, Exception)
    monkeypatch.undo()
    call("npu_0")
