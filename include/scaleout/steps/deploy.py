"""deploy: the release goes to every node of the sweep."""

from __future__ import annotations

from scaleout.remote import release
from scaleout.remote.fleet import each
from scaleout.steps.session import Session


async def deploy(session: Session) -> None:
    """Raises FleetError."""
    name, archive = release.current_release(), release.pack()
    root = session.sweep.cluster.remote_root
    async with session.holding(session.node_names) as nodes:
        await each("deploying", nodes, lambda node: release.deploy(node, root, name, archive))
    session.store.update(release=name)
    session.say(f"release {name} ({len(archive) / 1000:.0f} kB) is on {', '.join(session.node_names)}")
