"""Golden files: `golden(name, text)` compares with golden/<name> beside the test.

Properties are tested without limits of time: the machine may be busy. A failing one prints how to
run it again.
"""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings

from tests.examples import examples

settings.register_profile(
    "any-machine",
    max_examples=examples(),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.load_profile("any-machine")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background: tests that interrupt their processes would wait for ever.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write golden files instead of comparing"
    )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """A missing golden file fails, too: it only comes from ``--update-golden``."""

    def compare(name: str, text: str) -> None:
        path = request.path.parent / "golden" / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        if not path.exists():
            pytest.fail(f"{path} does not exist; --update-golden writes it")
        assert text == path.read_text(encoding="utf-8"), f"differs from {path.name}"

    return compare
