"""A platform: the execution places of a pipeline, and what lies between them.

Validated, immutable, units in the names. A place is `real` (cores of this machine),
`throttled` (the same with a duty cycle, to stand for a slower cluster) or `simulated` (a roofline:
see `times`). Places that name a core in common cannot serve two stages of one configuration.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from tvm_npu.pipelines.configuration import Configuration
from tvm_npu.pipelines.errors import ConfigurationError, PlatformError
from tvm_npu.sim.lazy import cached_property
from tvm_npu.sim.texts import shown

MAXIMUM_PLACES = 256
MOST_STEPS = 20_000
"""Of the search for the most places without a common core."""
MOST_PROBLEMS = 20
"""That a message names."""
Name = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9._-]+$")]
CoreIds = Annotated[tuple[Annotated[int, Field(ge=0, lt=4096)], ...], Field(max_length=256)]
Share = Annotated[float, Field(gt=0, le=1)]
Rate = Annotated[float, Field(gt=0, le=1e18, allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=0, le=1e4, allow_inf_nan=False)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Cores(_Part):
    """Cores of this machine. ``capacity``: one core's speed beside the others' (Linux cpu_capacity,
    1024 for the fastest); ``threads``: 0 stands for one a core; ``mcpu``: LLVM's name of the core,
    empty for the compiler's choice."""

    name: Name
    core_ids: Annotated[CoreIds, Field(min_length=1)]
    mcpu: Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z0-9._+-]*$")] = ""
    threads: Annotated[int, Field(ge=0, le=256)] = 0
    capacity: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] = 1024.0

    @model_validator(mode="after")
    def _threads_have_cores(self) -> _Cores:
        _check_distinct("core_ids", self.core_ids)
        if self.threads > len(self.core_ids):
            raise ValueError(
                f"threads = {self.threads} is more than the {len(self.core_ids)} cores of place "
                f"{self.name}"
            )
        return self

    @property
    def thread_count(self) -> int:
        return self.threads or len(self.core_ids)

    @property
    def speed(self) -> float:
        """A hint, good for ranking only: capacity of all threads, in cores of capacity 1024."""
        return self.thread_count * self.capacity / 1024


class RealPlace(_Cores):
    kind: Literal["real"]


class ThrottledPlace(_Cores):
    """``duty``: the share of the time in which the cores may work."""

    kind: Literal["throttled"]
    duty: Share

    @property
    def speed(self) -> float:
        return super().speed * self.duty


class SimulatedPlace(_Part):
    """``macs_per_s`` of one core, ``parallel_share`` of a layer's work that its ``cores`` divide
    among them (Amdahl), ``bytes_per_s`` of the memory behind all of them, ``layer_s`` to start a
    layer. ``core_ids`` only say which places share cores."""

    kind: Literal["simulated"]
    name: Name
    cores: Annotated[int, Field(ge=1, le=4096)]
    macs_per_s: Rate
    bytes_per_s: Rate
    parallel_share: Annotated[float, Field(ge=0, le=1)] = 1.0
    layer_s: Seconds = 0.0
    core_ids: CoreIds = ()

    @model_validator(mode="after")
    def _named_cores_are_all(self) -> SimulatedPlace:
        _check_distinct("core_ids", self.core_ids)
        if self.core_ids and len(self.core_ids) != self.cores:
            raise ValueError(
                f"core_ids names {len(self.core_ids)} cores, cores = {self.cores} in place "
                f"{self.name}"
            )
        return self

    @property
    def thread_speedup(self) -> float:
        """All cores over one: Amdahl's law."""
        return 1.0 / (1.0 - self.parallel_share + self.parallel_share / self.cores)

    @property
    def speed(self) -> float:
        """A hint, good for ranking only: MACs a second where memory does not matter."""
        return self.macs_per_s * self.thread_speedup


Place = Annotated[RealPlace | ThrottledPlace | SimulatedPlace, Field(discriminator="kind")]


class Link(_Part):
    """Between two places: a tensor takes ``latency_s`` + bytes / ``bytes_per_s``."""

    latency_s: Seconds = 0.0
    bytes_per_s: Rate = 1e18


class LinkBetween(Link):
    """A link that differs from the platform's ``link``; the same in both directions."""

    between: tuple[Name, Name]


class Platform(_Part):
    """Execution places in the order of the file. ``arrangements`` are lists of places for searches
    that choose no places themselves (Pipe-Search): the one of length n serves n stages."""

    name: Name
    description: str = ""
    places: Annotated[tuple[Place, ...], Field(min_length=1, max_length=MAXIMUM_PLACES)]
    link: Link = Link()
    links: tuple[LinkBetween, ...] = ()
    arrangements: tuple[tuple[Name, ...], ...] = ()

    @model_validator(mode="after")
    def _names_are_known(self) -> Platform:
        names = [place.name for place in self.places]
        _check_distinct("places: name", names)
        kinds = {place.kind == "simulated" for place in self.places}
        if len(kinds) > 1:
            raise ValueError("places: simulated and real places in one platform; one sort only")
        for link in self.links:
            _check_known("links: between", link.between, names)
            if link.between[0] == link.between[1]:
                raise ValueError(f"links: between: place {link.between[0]} twice")
        _check_distinct("links: between", [frozenset(link.between) for link in self.links])
        for arrangement in self.arrangements:
            _check_known("arrangements", arrangement, names)
            stages = range(len(arrangement))
            places = tuple(names.index(name) for name in arrangement)
            try:
                self.check_places(Configuration(tuple(1 for _ in stages), places))
            except ConfigurationError as error:
                raise ValueError(f"arrangements: {', '.join(arrangement)}: {error}") from error
        _check_distinct("arrangements: length", [len(one) for one in self.arrangements])
        return self

    def __len__(self) -> int:
        return len(self.places)

    @property
    def simulated(self) -> bool:
        return self.places[0].kind == "simulated"

    @cached_property
    def core_sets(self) -> tuple[frozenset[int], ...]:
        """Cores of each place; a place that names none has one of its own, below 0."""
        return tuple(
            frozenset(place.core_ids) or frozenset({-1 - index})
            for index, place in enumerate(self.places)
        )

    @cached_property
    def conflicts(self) -> tuple[int, ...]:
        """For each place the bit mask of all places that share a core with it, itself included."""
        return tuple(
            sum(1 << other for other, cores in enumerate(self.core_sets) if cores & own)
            for own in self.core_sets
        )

    @cached_property
    def speed_order(self) -> tuple[int, ...]:
        """Places from the fastest to the slowest by ``speed``; equal ones in the file's order."""
        return tuple(sorted(range(len(self)), key=lambda index: -self.places[index].speed))

    @cached_property
    def most_stages(self) -> int:
        """The most places that can be used at once."""

        steps = 0

        def most(free: int) -> int:
            nonlocal steps
            chosen = 0
            while free:
                steps += 1
                if steps > MOST_STEPS:
                    raise PlatformError(
                        f"platform {self.name}: its {len(self)} places share cores in too many "
                        "ways to tell how many can be used at once; leave some of them out"
                    )
                beside = {place: self.conflicts[place] & free for place in _bits(free)}
                # A place whose rivals are rivals of each other too can always be used.
                simple = (
                    place
                    for place, rivals in beside.items()
                    if all(not rivals & ~self.conflicts[rival] for rival in _bits(rivals))
                )
                place = next(simple, None)
                if place is None:
                    widest = max(beside, key=lambda index: beside[index].bit_count())
                    without = most(free & ~(1 << widest))
                    return chosen + max(1 + most(free & ~beside[widest]), without)
                chosen += 1
                free &= ~beside[place]
            return chosen

        return most((1 << len(self)) - 1)

    def link_between(self, one: int, other: int) -> Link:
        if not self.links:
            return self.link
        names = {self.places[one].name, self.places[other].name}
        return next((link for link in self.links if set(link.between) == names), self.link)

    def arrangement(self, stages: int) -> tuple[int, ...] | None:
        """Places for ``stages`` stages by the file; without ``arrangements`` the first ones of the
        file that share no core. None when there are none."""
        names = [place.name for place in self.places]
        for arrangement in self.arrangements:
            if len(arrangement) == stages:
                return tuple(names.index(name) for name in arrangement)
        if self.arrangements:
            return None
        chosen: list[int] = []
        taken = 0
        for place, conflicts in enumerate(self.conflicts):
            if len(chosen) < stages and not taken & (1 << place):
                chosen.append(place)
                taken |= conflicts
        return tuple(chosen) if len(chosen) == stages else None

    def check_places(self, configuration: Configuration) -> None:
        """Raise ConfigurationError for a place that does not exist, or two that share a core."""
        configuration.validate(configuration.layer_count, len(self))
        used: dict[int, int] = {}
        for place in configuration.places:
            for core in self.core_sets[place]:
                if core in used:
                    one, other = self.places[used[core]].name, self.places[place].name
                    raise ConfigurationError(
                        f"places {one} and {other} share core {core}; one stage can use it"
                    )
                used[core] = place

    def check(self, configuration: Configuration, layer_count: int) -> None:
        """Raise ConfigurationError unless ``configuration`` can run ``layer_count`` layers here."""
        configuration.validate(layer_count, len(self))
        self.check_places(configuration)

    def require_cores(self, available: Collection[int]) -> None:
        """Raise PlatformError when a real place names a core that is not ``available``."""
        for place in self.places:
            if place.kind == "simulated":
                continue
            missing = sorted(set(place.core_ids) - set(available))
            if missing:
                raise PlatformError(
                    f"platform {self.name}: place {place.name} names core "
                    f"{', '.join(map(str, missing))}; this process may use "
                    f"{', '.join(map(str, sorted(available))) or 'none'}"
                )

    def replace_places(self, places: Sequence[Any]) -> Platform:
        """This platform with other places of the same names (a changed speed, for example)."""
        values = self.model_dump()
        return platform_from_dict(
            {**values, "places": [place.model_dump() for place in places]}, self.name
        )


def _bits(mask: int) -> Iterator[int]:
    while mask:
        yield (mask & -mask).bit_length() - 1
        mask &= mask - 1


def _check_distinct(key: str, values: Sequence[Any]) -> None:
    seen = set()
    for value in values:
        if value in seen:
            shown = " and ".join(sorted(value)) if isinstance(value, frozenset) else value
            raise ValueError(f"{key}: {shown} twice")
        seen.add(value)


def _check_known(key: str, names: Sequence[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            raise ValueError(f"{key}: no place is called {name}; there are {', '.join(known)}")


def platform_from_dict(values: dict[str, Any], origin: str = "platform") -> Platform:
    """Validates plain values. Raises PlatformError."""
    try:
        return Platform.model_validate(values)
    except ValidationError as error:
        problems = []
        found = error.errors()
        places = [item["loc"] for item in found]
        for item in found[:MOST_PROBLEMS]:
            place = item["loc"]
            if item["type"] == "too_short" and any(
                len(loc) > len(place) == _shared(loc, place) for loc in places
            ):  # entries with mistakes were not counted
                continue
            kinds = ("real", "throttled", "simulated")
            key = ".".join(str(part) for part in item["loc"] if part not in kinds) or "file"
            if item["type"] == "value_error":  # of several keys; the text names them
                problems.append(f"{key}: {item['ctx']['error']}")
                continue
            given = "" if item["type"] == "missing" else f" (value: {shown(item['input'])})"
            problems.append(f"{key}: {item['msg']}{given}")
        if len(found) > MOST_PROBLEMS:
            problems.append(f"and {len(found) - MOST_PROBLEMS} more")
        raise PlatformError(f"platform file {origin}: " + "; ".join(problems)) from error


def _shared(one: Sequence[Any], other: Sequence[Any]) -> int:
    """Length of the longest common beginning."""
    equal = [a == b for a, b in zip(one, other, strict=False)]
    return equal.index(False) if False in equal else len(equal)
