"""The trigger form on the command line."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from scaleout.errors import ConfigError

Conf = Annotated[str, typer.Option("--conf", "-c", help="the trigger form, as JSON")]


def form_of(text: str) -> dict[str, Any]:
    """Raises ConfigError."""
    try:
        form = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"--conf is not JSON: {error}") from None
    if not isinstance(form, dict):
        raise ConfigError('--conf must be a JSON object, such as {"nodes": [1, 2]}')
    return form
