"""How the NMP's inner loops become machine code: nothing is counted, see `sim.compiled.views`."""

from __future__ import annotations

from functools import partial

from tvm_npu.sim import compiled

device = partial(compiled.device, references=False)
entry = partial(compiled.entry, references=False)
