"""The variants of a frame's picture, from its file to theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from training.data.inflation.augment import Change  # imports torch, and copies need none


class Pictures(Protocol):
    """All variants of one frame."""

    def variant(self, number: int) -> tuple[bytes, Change | None]:
        """The file of a variant, and the change that makes it of the frame: none for the frame itself."""
        ...


class Copies:
    """Variants that all are the frame itself."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def variant(self, number: int) -> tuple[bytes, Change | None]:
        del number
        return self._content, None
