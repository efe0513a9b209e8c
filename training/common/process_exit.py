"""The end of a process that was a rank: with its own exit status, whatever threads of libraries are still about.

A thread of gloo's that lets go of a tensor or a callback wants Python's global lock. Where the interpreter is already
being taken down, Python up to 3.13 ends such a thread from within, which C++ answers with SIGABRT: a training that
went well would end as one that was killed. So a rank leaves before that, when all that was registered has been called.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable

_INTERRUPTED = 130


def run(main: Callable[[], None]) -> None:
    """Calls `main`; then this process ends with the status that Python would have given it, and its output is out.

    To be called by a script before anything registers with `atexit`, because what was registered before is not called.
    """
    pid, status = os.getpid(), 1

    def leave() -> None:
        if os.getpid() == pid:  # not a forked worker, which ends as its parent's libraries want it
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    atexit.register(leave)
    try:
        main()
    except SystemExit as end:
        status = _status(end.code)
        raise
    except KeyboardInterrupt:
        status = _INTERRUPTED
        raise
    status = 0


def _status(code: object) -> int:
    if code is None:
        return 0
    return code if isinstance(code, int) else 1
