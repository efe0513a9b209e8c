"""This host: its release of `training/`, what it is, and one sweep at a time."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scaleout import settings
from scaleout.errors import LockHeldError, ScaleoutError
from scaleout.exclusive import alone_in
from training.wire.release import content_hash, release_files

ANSWER_LIMIT_S = 60.0


@dataclass(frozen=True)
class Host:
    """`root` has releases, run folders and generated data; `python` is the training environment's."""

    root: Path
    python: str

    @contextmanager
    def held(self) -> Iterator[None]:
        """Raises LockHeldError while another sweep runs here."""
        self.root.mkdir(parents=True, exist_ok=True)
        refusal = LockHeldError(f"{self.root}: another sweep runs on this host: wait for its end, or stop it")
        with alone_in(self.root, refusal):
            yield

    def deploy(self) -> str:
        """Copies `training/` to a folder of its content's name, and gives that name."""
        training = settings.training_dir()
        name = content_hash(training)
        if not self.release(name).exists():
            partial = self.root / "releases" / f".{name}.partial"
            shutil.rmtree(partial, ignore_errors=True)
            for relative in release_files(training):
                (partial / relative).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(training.parent / relative, partial / relative)
            partial.rename(self.release(name))
        if content_hash(self.release(name) / "training") != name:
            raise ScaleoutError(f"{self.release(name)} was altered: remove that folder")
        return name

    def release(self, name: str) -> Path:
        return self.root / "releases" / name

    def ask(self, release: str, program: str, *arguments: str) -> dict[str, Any]:
        """What a program of `training/node` answers. Raises ScaleoutError."""
        path = self.release(release) / "training" / "node" / f"{program}.py"
        try:
            done = subprocess.run(
                [self.python, str(path), *arguments], capture_output=True, text=True, timeout=ANSWER_LIMIT_S
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ScaleoutError(f"{self.python}: {error}; name the training environment's with --python") from None
        if done.returncode != 0:
            raise ScaleoutError(f"{program}: {(done.stderr.strip().splitlines() or ['it said nothing'])[-1]}")
        try:
            answer = json.loads(done.stdout)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise ScaleoutError(
                f"{self.python}: ran {path.name} and gave no answer: name the training environment's with --python"
            )
        return answer
