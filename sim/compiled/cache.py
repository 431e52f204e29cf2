"""Machine code on disk that is used only for what it was made from.

numba's own cache looks at the file of one function. This one looks at everything that the function
reaches (`sources`). Files of other versions are never read as machine code: whatever goes wrong
with one, a class that moved included, is a miss. Saving removes them.
"""

from __future__ import annotations

import contextlib
import hashlib
import pickle
import re
import warnings
from functools import lru_cache
from pathlib import Path
from typing import Any

from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.runtime import rtsys

from tvm_npu.sim.compiled.sources import digest, signature_digest


class NothingKeptWarning(UserWarning):
    """Machine code is made anew in every process."""


def kept_on_disk(dispatcher: Any) -> Any:
    """The cache of an `entry`; where no folder can be written, none, which is said once."""
    try:
        return DigestCache(dispatcher)
    except RuntimeError:
        _say_that_nothing_is_kept()
        return dispatcher._cache


@lru_cache(maxsize=1)
def _say_that_nothing_is_kept() -> None:
    warnings.warn(
        "no folder for machine code can be written, neither beside the package nor in the home "
        "folder: it is made anew in every process, which takes a minute; set NUMBA_CACHE_DIR to a "
        "folder that can be",
        NothingKeptWarning,
        stacklevel=2,
    )


class _Files(IndexDataCacheFile):  # type: ignore[misc]
    """Names of machine code say what it was made from: an index whose machine code could not be
    saved (a full disk, a process that was stopped) must not name older code of the same number."""

    def __init__(self, cache_path: str, filename_base: str, source_stamp: str) -> None:
        super().__init__(cache_path, filename_base, source_stamp)
        made_from = hashlib.sha256(source_stamp.encode()).hexdigest()[:16]
        self._data_name_pattern = f"{filename_base}.{made_from}.{{number:d}}.nbc"


class DigestCache(FunctionCache):  # type: ignore[misc]
    """The cache of one `entry`."""

    def __init__(self, dispatcher: Any) -> None:
        super().__init__(dispatcher.py_func)
        self._dispatcher = dispatcher
        self._stamped: IndexDataCacheFile | None = None

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compiled code, or None. Never raises on account of what lies on disk.

        numba would load all that it can compile first; machine code needs the allocator alone."""
        self._stamp()
        rtsys.initialize(target_context)
        try:
            return self._load_overload(sig, target_context)
        except Exception:  # a pickle of another version can raise anything
            self._forget()
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        self._stamp()
        try:
            super().save_overload(sig, data)
        except OSError:  # no room, no rights: compiled code works without its cache
            return
        except (AttributeError, ImportError, pickle.UnpicklingError, EOFError):
            self._forget()
            super().save_overload(sig, data)
        self._remove_others()

    def _stamp(self) -> None:
        """What the code is made of is known only now: at the function's definition, names that it
        uses may not exist yet."""
        if self._stamped is None:
            self._stamped = _Files(
                cache_path=self._cache_path,
                filename_base=self._impl.filename_base,
                source_stamp=digest(self._dispatcher),
            )
            self._cache_file = self._stamped

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        arguments = getattr(sig, "args", sig)
        return (*super()._index_key(sig, codegen), signature_digest(arguments))

    def _forget(self) -> None:
        with contextlib.suppress(OSError):
            Path(self._cache_path, f"{self._impl.filename_base}.nbi").unlink()

    def _remove_others(self) -> None:
        """Files of this function that its index does not name: made at another line of the
        module, of more signatures, or under a name with a digest, as was done before."""
        base = self._impl.filename_base
        name, line_and_python = base.rsplit("-", 1)
        python = line_and_python.partition(".")[2]
        mine = re.compile(
            rf"{re.escape(name)}(_[0-9a-f]{{16}})?-\d+\.{re.escape(python)}"
            r"((\.[0-9a-f]{16})?\.\d+\.nbc|\.nbi)"
        )
        kept = {f"{base}.nbi", *self._cache_file._load_index().values()}
        for path in Path(self._cache_path).glob(f"{name}*"):
            if mine.fullmatch(path.name) and path.name not in kept:
                with contextlib.suppress(OSError):
                    path.unlink()
