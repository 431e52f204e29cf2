"""A program against the reference: where it first computes something else.

`reference` says what the tensors of a program should be, `tracker` watches a run and finds the
first store that makes one of them wrong, `run` takes programs and models.
"""

from tvm_npu.verification.finding import Divergence
from tvm_npu.verification.run import Verification, verify, verify_program, verify_regions

__all__ = ["Divergence", "Verification", "verify", "verify_program", "verify_regions"]
