"""Knows what a job can be made of: the flavors and runtimes this installation offers."""

import fnmatch
from collections.abc import Callable, Sequence

from trackside.domain.errors import EngineNotFound, FlavorNotFound
from trackside.domain.job import RuntimeChoice
from trackside.domain.resources import Flavor, find_flavor
from trackside.domain.runtime import Runtime

NAMES_SHOWN = 12


class Catalog:
    """Find flavors and runtimes, or say which there are."""

    def __init__(
        self, flavors: Callable[[], Sequence[Flavor]], runtimes: Sequence[Runtime], *, strict_images: bool
    ) -> None:
        self._flavors = flavors
        self._runtimes = tuple(runtimes)
        self._strict_images = strict_images

    def flavors(self) -> Sequence[Flavor]:
        """Return the flavors on offer."""
        return self._flavors()

    def runtimes(self) -> Sequence[Runtime]:
        """Return the runtimes on offer."""
        return self._runtimes

    def flavor(self, flavor_id: str) -> Flavor:
        """Return the flavor of that id, or say which there are."""
        flavors = self.flavors()
        found = find_flavor(flavors, flavor_id)
        if found is None:
            names = ", ".join(flavor.id for flavor in flavors[:NAMES_SHOWN]) or "none"
            raise FlavorNotFound(f"no flavor is called {flavor_id!r}; there are: {names}")
        return found

    def resolve(self, choice: RuntimeChoice) -> Runtime | None:
        """Return the runtime a job asked for; None: it runs in the host's own environment.

        An engine that is asked for by id must exist. An image without a mapping is not used, unless the
        installation is strict about images.
        """
        if choice.engine_id:
            return self._named(lambda runtime: runtime.id == choice.engine_id, choice.engine_id)
        if choice.engine_name:
            wanted = (choice.engine_name, choice.engine_version)
            return self._named(
                lambda runtime: runtime.name == wanted[0] and wanted[1] in (None, "", runtime.version),
                " ".join(filter(None, wanted)),
            )
        if choice.image:
            return self._for_image(choice.image)
        return None

    def _named(self, matches: Callable[[Runtime], bool], wanted: str) -> Runtime:
        found = next((runtime for runtime in self._runtimes if matches(runtime)), None)
        if found is None:
            names = ", ".join(runtime.id for runtime in self._runtimes[:NAMES_SHOWN]) or "none"
            raise EngineNotFound(
                f"no engine is called {wanted!r}; there are: {names}. A job may also name no engine at all."
            )
        return found

    def _for_image(self, image: str) -> Runtime | None:
        for runtime in self._runtimes:
            if any(fnmatch.fnmatchcase(image, pattern) for pattern in runtime.images):
                return runtime
        if self._strict_images:
            raise EngineNotFound(
                f"no engine stands for the image {image!r}, and this installation is strict about images"
            )
        return None
