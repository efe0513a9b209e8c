"""Files of the local hosts, which others may be reading or running."""

from __future__ import annotations

import os
from pathlib import Path


def keep_file(path: Path, text: str, mode: int = 0o644) -> None:
    """Makes `path` hold `text` with the permissions `mode`: whole at any moment, and untouched where it does already.

    To write into a program while it is started is refused by the kernel (ETXTBSY).
    """
    if path.exists() and path.read_text(encoding="utf-8") == text and path.stat().st_mode & 0o777 == mode:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    partial.unlink(missing_ok=True)
    with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="utf-8") as out:
        os.fchmod(out.fileno(), mode)
        out.write(text)
    partial.replace(path)
