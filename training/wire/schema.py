"""Dataclasses to and from JSON, strictly: unknown, missing and mistyped keys are refused by name."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import types
import typing
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


class WireError(Exception):
    """A document that does not follow the wire's schema; the message names the place and the key."""


def to_dict(record: Any) -> dict[str, Any]:
    """The JSON object of a record. Raises WireError for NaN and infinities: what was not measured is null."""
    document = dataclasses.asdict(record)
    _refuse_non_finite(document, type(record).__name__)
    return document


def from_dict(cls: type[T], document: Any, where: str) -> T:
    """Builds a `cls` from a JSON object. `where` (a path, a line) goes into the message of WireError."""
    if not isinstance(document, dict):
        raise WireError(f"{where}: expected an object for {cls.__name__}, found {type(document).__name__}")
    fields = {f.name: f for f in dataclasses.fields(cls) if f.init}  # type: ignore[arg-type]
    hints = typing.get_type_hints(cls)
    for key in document:
        if key not in fields:
            raise WireError(f"{where}: {cls.__name__} has no key {key!r}")
    values = {}
    for name, field in fields.items():
        if name in document:
            values[name] = _checked(hints[name], document[name], f"{where}: {name}")
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise WireError(f"{where}: {cls.__name__} lacks the key {name!r}")
    return cls(**values)


def write_json(path: Path, record: Any) -> None:
    """Writes a record so that a reader sees the old file or the whole new one."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("w", encoding="utf-8") as out:
            json.dump(to_dict(record), out, indent=1, allow_nan=False)
            out.write("\n")
            out.flush()
            os.fsync(out.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def read_json(cls: type[T], path: Path) -> T:
    """Reads what `write_json` wrote. Raises WireError (not JSON, wrong keys) and OSError."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise WireError(f"{path}: not JSON: {error}") from error
    return from_dict(cls, document, str(path))


def _checked(hint: Any, value: Any, where: str) -> Any:
    """`value` as the type that `hint` asks for; an integer will do for a float. Raises WireError."""
    origin = typing.get_origin(hint)
    if hint is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        return _one_of(typing.get_args(hint), value, where)
    if origin is typing.Literal:
        return _literal(typing.get_args(hint), value, where)
    if origin is list:
        items = _expected(list, value, where)
        return [_checked(typing.get_args(hint)[0], item, f"{where}[{i}]") for i, item in enumerate(items)]
    if origin is dict:
        items = _expected(dict, value, where)
        return {key: _checked(typing.get_args(hint)[1], item, f"{where}.{key}") for key, item in items.items()}
    if dataclasses.is_dataclass(hint):
        return from_dict(typing.cast(type, hint), value, where)
    if hint is float:
        number = float(value) if type(value) is int else _expected(float, value, where)
        _refuse_non_finite(number, where)
        return number
    return _expected(hint, value, where)


def _expected(kind: type[T], value: Any, where: str) -> T:
    if type(value) is not kind:
        raise WireError(f"{where}: expected {kind.__name__}, found {type(value).__name__} {value!r}")
    return value


def _one_of(options: tuple[Any, ...], value: Any, where: str) -> Any:
    problems = []
    for option in options:
        try:
            return _checked(option, value, where)
        except WireError as error:
            problems.append(error)
    raise problems[0]


def _literal(options: tuple[Any, ...], value: Any, where: str) -> Any:
    if value not in options:
        raise WireError(f"{where}: {value!r} is none of {', '.join(map(repr, options))}")
    return value


def _refuse_non_finite(value: Any, where: str) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise WireError(f"{where}: {value} is not a measurement; write null and its reason")
    if isinstance(value, dict):
        for key, item in value.items():
            _refuse_non_finite(item, f"{where}.{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _refuse_non_finite(item, f"{where}[{index}]")
