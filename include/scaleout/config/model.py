"""The base of all configuration models, and the sentence that a wrong value gets."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from typing import Annotated, Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from scaleout.errors import ConfigError

M = TypeVar("M", bound=BaseModel)
LARGEST = 2**63
Path = tuple[str | int, ...]
Locate = Callable[[Path], str]
RemotePath = Annotated[str, Field(pattern=r"^(/|~/).+", description="absolute on the node, or under its login's home")]
Program = Annotated[str, Field(pattern=r"^[a-z_]+/[a-z_]+\.py$", description="relative to `training/`")]


class Model(BaseModel):
    """Unknown keys are refused, and numbers that are none; values do not change after they were read."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def placed(sentence: str, *path: str | int) -> PydanticCustomError:
    """What a validator of a whole model raises to blame the value at `path` in it."""
    return PydanticCustomError("placed", "{sentence}", {"sentence": sentence, "path": path})


def validated(model: type[M], document: Any, locate: Locate) -> M:
    """Builds the model, or raises ConfigError with one line per problem, each placed by `locate(path of keys)`."""
    for path, fault in _unfit(document):
        raise ConfigError(f"{locate(path)}: {'.'.join(map(str, path))}: {fault}")
    try:
        return model.model_validate(document)
    except ValidationError as error:
        problems = [_sentence(model, problem, locate) for problem in error.errors()]
        raise ConfigError("\n".join(problems)) from None


def _unfit(value: Any, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Where something stands in a document that no command and no path can hold, and what it is."""
    if isinstance(value, str) and "\0" in value:
        yield path, "holds a NUL character, which no command and no path can hold"
    if isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value):
        yield path, "is not UTF-8 text"
    if isinstance(value, int) and abs(value) >= LARGEST:
        yield path, "is too large a number"
    if isinstance(value, (dict, list)):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _unfit(inner, (*path, key))


def _sentence(model: type[BaseModel], problem: Any, locate: Locate) -> str:
    path: Path = problem["loc"] + problem.get("ctx", {}).get("path", ())
    where = locate(path)
    key = ".".join(str(part) for part in path)
    kind, given = problem["type"], problem.get("input")
    if kind == "extra_forbidden":
        known = _known_keys(model, path[:-1])
        near = difflib.get_close_matches(str(path[-1]), known, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"known here: {', '.join(known)}"
        return f"{where}: unknown key {key!r}; {hint}"
    if kind == "missing":
        return f"{where}: the key {key!r} is missing"
    message = problem["msg"].removeprefix("Value error, ")
    shown = "" if isinstance(given, (dict, BaseModel)) or kind in ("value_error", "placed") else f" (found {given!r})"
    return f"{where}: {key + ': ' if key else ''}{message[0].lower()}{message[1:]}{shown}"


def _known_keys(model: type[BaseModel], path: Path) -> list[str]:
    """The field names of the model that a path of keys leads to; every alternative of a union counts."""
    models = [model]
    for part in path:
        hints = [m.model_fields[part].annotation for m in models if isinstance(part, str) and part in m.model_fields]
        models = [found for hint in hints for found in _models_in(hint)] or models
    return sorted({name for m in models for name in m.model_fields})


def _models_in(hint: Any) -> list[type[BaseModel]]:
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        return [hint]
    return [found for argument in get_args(hint) for found in _models_in(argument)]
