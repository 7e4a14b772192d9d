"""Knows how much of a request's body is taken in, alone and together; knows nothing of what is in it."""

from trackside.domain.errors import TooLarge, Unavailable

BODY_BYTES_MAX = 8 * 1024 * 1024
UNFINISHED_BYTES_MAX = 256 * 1024 * 1024  # of all bodies still arriving, whoever sends them


class BodyLimits:
    """Hold bodies to a limit each, and to one for all that are still arriving."""

    def __init__(
        self, bytes_max: int = BODY_BYTES_MAX, *, unfinished_bytes_max: int = UNFINISHED_BYTES_MAX
    ) -> None:
        self._bytes_max = bytes_max
        self._unfinished_bytes_max = unfinished_bytes_max
        self._unfinished_bytes = 0

    def announced(self, size: int) -> None:
        """Raise TooLarge for a body that says it will be."""
        if size > self._bytes_max:
            raise self._too_large()

    def arrived(self, size: int, *, so_far: int) -> None:
        """Count a piece of a body, of which there is now so much; raise TooLarge or Unavailable."""
        self._unfinished_bytes += size
        if so_far > self._bytes_max:
            raise self._too_large()
        if self._unfinished_bytes > self._unfinished_bytes_max:
            raise Unavailable("Too much is being sent to the server at once; try again in a moment.")

    def ended(self, size: int) -> None:
        """Count no longer a body of so many bytes: it is complete, or nobody wants it any more."""
        self._unfinished_bytes -= size

    def _too_large(self) -> TooLarge:
        return TooLarge(f"The body is larger than the limit of {self._bytes_max} bytes.")
