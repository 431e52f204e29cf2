"""What this environment can do and what is wrong with it: imports neither TVM nor a compiler."""

from tvm_npu.doctor.examination import Examination, examine

__all__ = ["Examination", "examine"]
