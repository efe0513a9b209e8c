"""Prints the content hash of the release that this file stands in."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
sys.dont_write_bytecode = True

from training.wire.release import content_hash

if __name__ == "__main__":
    print(content_hash(ROOT / "training"))
