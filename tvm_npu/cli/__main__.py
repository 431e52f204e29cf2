"""``python -m tvm_npu.cli``."""

from __future__ import annotations

import sys

from tvm_npu.cli import main

sys.exit(main())
