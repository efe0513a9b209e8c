"""Writes `.env`, once: the secrets and choices that `docker-compose.yaml` asks for.

Standard library only: a machine that runs the containers needs no environment of ours.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(CHECKOUT / "include"))

from scaleout.local.airflow_home import USER, new_password, new_secrets, write_private  # noqa: E402

PORT = 8080
CONFIG_FOLDER = "include"
SSH_FOLDER = ".scaleout/ssh"
IMAGE_USER = 50000  # of the Dockerfile: containers do not run as root, so root's files are given to this one
HEAD = f"""\
# Written by `make compose-env` and read by `docker compose`. It holds every secret of the stack: keep it to yourself.
# What you change counts after `docker compose up -d`; but PostgreSQL keeps the password that it was first started with.
#
# PRODUCTION_CLUSTER     the cluster's file in PRODUCTION_CONFIG_DIR/clusters, without `.yaml`
# PRODUCTION_SSH_DIR     becomes the containers' ~/.ssh, read-only: connections.json (Airflow's connections, by name) and the
#                        keys that it names (as ~/.ssh/…)
# PRODUCTION_UID         the user id of the containers, which must be able to read that folder
# PRODUCTION_UI_ADDRESS  where the UI is published, without TLS: put a proxy before it where others shall reach it
# PRODUCTION_UI_URL      what a browser calls the UI: the proxy's address where there is one
# PRODUCTION_ADMIN_PASSWORD  what `{USER}` logs in with

"""


def say(text: str) -> None:
    print(f"compose-env: {text}", flush=True)


def values(cluster: str, user: int) -> dict[str, str]:
    """What stands in the file, by name without the prefix."""
    return {
        "CLUSTER": cluster,
        "CONFIG_DIR": f"./{CONFIG_FOLDER}",
        "SSH_DIR": f"./{SSH_FOLDER}",
        "UID": str(user),
        "UI_ADDRESS": "127.0.0.1",
        "UI_PORT": str(PORT),
        "UI_URL": "http://localhost:${PRODUCTION_UI_PORT}",
        "ADMIN_PASSWORD": new_password(),
        **{name.upper(): value for name, value in new_secrets().items()},
    }


def make_ssh_folder(folder: Path, user: int) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    connections = folder / "connections.json"
    if not connections.exists():
        write_private(connections, "{}\n")
    if user != os.getuid():
        for path in (folder, connections):
            os.chown(path, user, 0)


def refusal(folder: Path, cluster: str, user: int) -> str | None:
    """Why the containers could not work with this cluster, or None."""
    clusters = folder / CONFIG_FOLDER / "clusters"
    file = clusters / f"{cluster}.yaml"
    for path in (
        clusters.parent,
        clusters,
        file,
    ):  # in this order: of a folder that is closed to us nothing more is known
        if not path.exists():
            there = ", ".join(sorted(path.stem for path in clusters.glob("[!.]*.yaml")))
            return f"there is no {file}: write it after local.yaml, or name another (there are: {there or 'none'})"
        if not may_read(path, user):
            return f"{path} cannot be read by the containers' user id {user}: chmod -R go+rX {clusters.parent}"
    return None


def may_read(path: Path, user: int) -> bool:
    """Whether a user of group 0 may, by the path's own permissions."""
    found = path.stat()
    bits = 0o500 if path.is_dir() else 0o400
    who = 0 if found.st_uid == user else 3 if found.st_gid == 0 else 6
    return found.st_mode & bits >> who == bits >> who


def cluster_in(env_file: Path) -> str:
    """The PRODUCTION_CLUSTER that is written there."""
    name = "PRODUCTION_CLUSTER="
    lines = env_file.read_text(encoding="utf-8").splitlines()
    return next((line.removeprefix(name) for line in lines if line.startswith(name)), "")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cluster", default="", help="the cluster's file in clusters/, without .yaml")
    parser.add_argument("--folder", type=Path, default=CHECKOUT, help="where docker-compose.yaml lies")
    options = parser.parse_args()
    env_file = options.folder / ".env"
    user = os.getuid() or IMAGE_USER
    problem = refusal(options.folder, options.cluster, user) if options.cluster else None
    if problem:
        print(f"compose-env: {problem}", file=sys.stderr)
        return 2
    if env_file.exists():
        say(f"{env_file} is there and stays as it is; for new secrets remove it and the volume of the database")
        if options.cluster not in ("", cluster_in(env_file)):
            print(
                f"compose-env: its PRODUCTION_CLUSTER is {cluster_in(env_file)!r}: write {options.cluster} there instead",
                file=sys.stderr,
            )
            return 2
        return 0
    make_ssh_folder(options.folder / SSH_FOLDER, user)
    lines = [f"PRODUCTION_{name}={value}\n" for name, value in values(options.cluster, user).items()]
    write_private(env_file, HEAD + "".join(lines))
    say(f"wrote {env_file}; {USER}'s password is in it")
    if not options.cluster:
        say("name your cluster in it (PRODUCTION_CLUSTER)")
    say(f"put the nodes' keys and connections.json into {options.folder / SSH_FOLDER} (readable by user id {user})")
    say("then `docker compose up -d`")
    return 0


if __name__ == "__main__":
    sys.exit(main())
