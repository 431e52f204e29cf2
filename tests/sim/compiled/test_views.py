from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tvm_npu.sim import compiled
from tvm_npu.sim.compiled.views import view_of

device = partial(compiled.device, references=False)
entry = partial(compiled.entry, references=False)


class Fields(NamedTuple):
    words: Any
    step: Any
    numbers: Any


@device
def fill(s: Any, value: int) -> None:
    for row in range(len(s.words)):
        words = s.words[row]
        for k in range(len(words)):
            words[k] = value + row * s.step
            s.numbers[row] += words[k]


@entry
def filled(fields: Any, value: int) -> int:
    view = view_of(fields)  # type: ignore[call-arg]
    fill(view, value)
    return view.step  # type: ignore[no-any-return]


def test_functions_read_the_fields_and_write_into_arrays() -> None:
    for step in (5, -3):
        fields = Fields(np.zeros((3, 4), np.int16), step, np.zeros(3))
        assert filled(fields, 7) == step
        assert fields.words.tolist() == [[7 + row * step] * 4 for row in range(3)]
        assert fields.numbers.tolist() == [4.0 * (7 + row * step) for row in range(3)]


def test_arrays_of_another_element_type_are_another_view() -> None:
    for number in (np.int8, np.int64):
        fields = Fields(np.zeros((1, 2), number), 1, np.zeros(1))
        assert filled(fields, 300) == 1
        assert fields.words.tolist() == [[int(np.int64(300).astype(number))] * 2]
