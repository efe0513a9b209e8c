"""The wire between the orchestrator and the nodes: what each side writes and the other reads.

Standard library only, and imported by both worlds. `VERSION` changes when an old reader would misread a new writer.
"""

VERSION = 1
