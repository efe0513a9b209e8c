"""Reads the YAML files of the configuration folder; an error names the file and the line."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.reader import ReaderError

from scaleout import settings
from scaleout.config.cluster import Cluster
from scaleout.config.form import Preset
from scaleout.config.model import validated
from scaleout.config.workload import Workload
from scaleout.errors import ConfigError

M = TypeVar("M", bound=BaseModel)


def load_cluster(name: str) -> Cluster:
    """`clusters/<name>.yaml`. Raises ConfigError."""
    return _load(Cluster, "clusters", name)


def load_workload(name: str) -> Workload:
    """`workloads/<name>.yaml`. Raises ConfigError."""
    return _load(Workload, "workloads", name)


def load_preset(name: str) -> Preset:
    """`presets/<name>.yaml`. Raises ConfigError."""
    return _load(Preset, "presets", name)


def names(kind: str) -> list[str]:
    """The names of the files of a kind (`clusters`, `workloads`, `presets`), sorted."""
    return sorted(path.stem for path in (settings.config_dir() / kind).glob("[!.]*.yaml"))


def _load(model: type[M], kind: str, name: str) -> M:
    path = settings.config_dir() / kind / f"{name}.yaml"
    if name not in names(kind):
        near = difflib.get_close_matches(name, names(kind), n=1, cutoff=0.5)
        known = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(names(kind)) or 'none'}"
        raise ConfigError(f"no {kind.removesuffix('s')} named {name!r} in {settings.config_dir() / kind}; {known}")
    document = _read(path)
    loaded = validated(model, document, lambda keys: f"{path}:{_line(document, keys)}")
    declared = getattr(loaded, "name", name)
    if declared != name:
        raise ConfigError(f"{path}:{_line(document, ('name',))}: name is {declared!r} and must be the file's, {name!r}")
    return loaded


def _read(path: Path) -> Any:
    try:
        content = path.read_bytes()
        document = YAML(typ="rt").load(content.decode())
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else "?"
        raise ConfigError(f"{path}:{line}: not YAML: {error.problem or error.context}") from None
    except ReaderError as error:
        line = content.decode()[: error.position].count("\n") + 1
        raise ConfigError(
            f"{path}:{line}: not YAML: the character #x{error.character:04x} may not stand there"
        ) from None
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ConfigError(f"{path}:{line}: not YAML: not UTF-8 text: {error.reason}") from None
    except RecursionError:
        raise ConfigError(f"{path}: is nested too deep") from None
    except ValueError as error:  # a date that is none, say
        raise ConfigError(f"{path}:1: not YAML: {error}") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    if not isinstance(document, dict):
        raise ConfigError(f"{path}:1: {'is empty' if document is None else 'must be a mapping of keys'}")
    return document


def _line(document: Any, keys: tuple[str | int, ...]) -> int:
    """The line (from 1) of the deepest key of the path that stands in the document."""
    line, here = 0, document
    for key in keys:
        position = getattr(here, "lc", None)
        inside = (isinstance(here, dict) and key in here) or (
            isinstance(here, list) and isinstance(key, int) and key < len(here)
        )
        if position is None or not inside:
            continue
        if key in (position.data or {}):  # a key that was merged in (`<<`) stands elsewhere
            line = position.data[key][0]
        here = here[key]
    return line + 1
