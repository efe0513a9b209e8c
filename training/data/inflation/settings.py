"""What the bytes of an inflated set depend on, apart from its base set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

METHODS = ("augment", "copy")
FORMATS = ("png", "jpeg")
NOISE = "noise"


@dataclass(frozen=True)
class Settings:
    """`mean_mb` is the mean size of the images in MB (10^6 bytes) that noise brings PNGs to; None for copies and JPEG."""

    factor: int
    method: str
    format: str
    mean_mb: float | None
    seed: int

    @property
    def suffix(self) -> str:
        return ".jpg" if self.format == "jpeg" else ".png"

    def as_text(self) -> dict[str, str]:
        """The options that are set and their values: `{"factor": "327", "mean-mb": "2.88", …}`."""
        values = {
            "factor": self.factor, "method": self.method, "format": self.format, "mean-mb": self.mean_mb,
            "seed": self.seed,
        }  # fmt: skip
        return {name: f"{value}" for name, value in values.items() if value is not None}


def from_text(text: Mapping[str, str]) -> Settings:
    """What `as_text` gave."""
    mean = text.get("mean-mb")
    return Settings(
        int(text["factor"]), text["method"], text["format"], float(mean) if mean else None, int(text["seed"])
    )


def difference(found: Mapping[str, str], wanted: Mapping[str, str]) -> str | None:
    """`--factor 42, not 327`: in which options two settings differ, None where in none. What was settled does not count."""
    names = [name for name in {**found, **wanted} if name != NOISE and found.get(name) != wanted.get(name)]
    return ", ".join(f"--{name} {found.get(name, 'unset')}, not {wanted.get(name, 'unset')}" for name in names) or None
