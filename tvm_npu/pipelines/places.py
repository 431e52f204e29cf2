"""From a platform file to places that a pipeline runs on."""

from __future__ import annotations

from tvm_npu.pipelines.errors import PlatformError
from tvm_npu.pipelines.platform import Platform
from tvm_npu.runtime.pipeline.place import Place, usable_cores


def running_places(platform: Platform) -> tuple[Place, ...]:
    """The places of a platform, in its order; throttled ones with their duty cycle.

    Raises PlatformError for simulated places and for cores that do not exist here.
    """
    platform.require_cores(usable_cores())
    places = []
    for place in platform.places:
        if place.kind == "simulated":
            raise PlatformError(
                f"platform {platform.name}: place {place.name} is simulated: no frame can run there"
            )
        duty = place.duty if place.kind == "throttled" else 1.0
        places.append(Place(place.name, place.core_ids, duty))
    return tuple(places)
