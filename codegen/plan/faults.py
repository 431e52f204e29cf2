"""What a check of a plan says when the plan is not sound, whatever the kind of plan."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PlanFault:
    """What is wrong with a plan: the thing, its value, and the limit that it breaks."""

    what: str
    value: object
    limit: object

    def __str__(self) -> str:
        return f"{self.what} is {self.value}; it must be {self.limit}"
