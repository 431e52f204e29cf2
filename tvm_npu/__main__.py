"""``python -m tvm_npu``: the command line, as ``python -m tvm_npu.cli`` is."""

from __future__ import annotations

import sys

from tvm_npu.cli import main

sys.exit(main())
