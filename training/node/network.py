"""Ports and interfaces of this node.

Usage: network.py free-port               prints {"port": a TCP port that nobody listens on and no connection is given}
       network.py interface HOST [NAMES]  prints {"interface", "address": ours on it, "to": HOST's address as seen from here,
                                          "loopback": bool, "boot_id"}

The interface is the one that leads to HOST, which may be this node itself; or NAMES, with commas between them, if they all
exist. Bridges and ends of container networks are refused where the node has an interface of its own.
"""

import errno
import ipaddress
import json
import os
import random
import re
import socket
import struct
import sys
from pathlib import Path

import psutil

LEAST_PORT = 15000
NETLINK_HEADER, ROUTE_HEADER = struct.Struct("=IHHII"), struct.Struct("=BBBBBBBBI")
NLMSG_ERROR, RTM_GETROUTE, NLM_F_REQUEST = 2, 26, 1
RTN_LOCAL, RTA_DST, RTA_OIF = 2, 1, 4
OF_CONTAINERS = re.compile(r"(docker|podman|cni|virbr|lxcbr|lxdbr|veth)|br-[0-9a-f]{12}$")


def free_port():
    """Not one of the range that outgoing connections get theirs from: such a port may be taken before it is used."""
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    below = range(LEAST_PORT, first)
    for port in [*random.sample(below, min(50, len(below))), 0]:
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return {"port": probe.getsockname()[1]}
    raise OSError(errno.EADDRINUSE, "no port is free")


def addresses():
    """{interface: its addresses}."""
    families = (socket.AF_INET, socket.AF_INET6)
    return {
        name: [a.address.partition("%")[0] for a in found if a.family in families]
        for name, found in psutil.net_if_addrs().items()
    }


def usable():
    """Those of the interfaces that are up and have an address that others could know."""
    up = {name for name, state in psutil.net_if_stats().items() if state.isup}
    known = {
        name: [a for a in listed if not ipaddress.ip_address(a).is_link_local] for name, listed in addresses().items()
    }
    return {name: listed for name, listed in known.items() if name in up and listed}


def is_loopback(name):
    return name == "lo"


def is_own_network(name):
    return not is_loopback(name) and not OF_CONTAINERS.match(name)


def described(found):
    return ", ".join(f"{name} ({' '.join(listed)})" for name, listed in sorted(found.items())) or "none"


def resolved(host):
    """The addresses of a host name or address, those of the loopback last."""
    found = {a[4][0] for a in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    return sorted(found, key=lambda a: (ipaddress.ip_address(a).is_loopback, ":" in a, a))


def route_to(address):
    """(the interface that the kernel sends by, whether the address is this node's own). Raises OSError. Sends no packet."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    packed = socket.inet_pton(family, address)
    body = ROUTE_HEADER.pack(family, len(packed) * 8, 0, 0, 0, 0, 0, 0, 0)
    body += struct.pack("=HH", 4 + len(packed), RTA_DST) + packed
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
        kernel.send(NETLINK_HEADER.pack(NETLINK_HEADER.size + len(body), RTM_GETROUTE, NLM_F_REQUEST, 1, 0) + body)
        answer = kernel.recv(65536)
    _, kind, *_ = NETLINK_HEADER.unpack_from(answer)
    if kind == NLMSG_ERROR:
        number = -struct.unpack_from("=i", answer, NETLINK_HEADER.size)[0]
        raise OSError(number, os.strerror(number))
    is_own = ROUTE_HEADER.unpack_from(answer, NETLINK_HEADER.size)[7] == RTN_LOCAL
    return socket.if_indextoname(interface_index(answer)), is_own


def interface_index(answer):
    position = NETLINK_HEADER.size + ROUTE_HEADER.size
    while position < len(answer):
        length, kind = struct.unpack_from("=HH", answer, position)
        if kind == RTA_OIF:
            return struct.unpack_from("=i", answer, position + 4)[0]
        position += (length + 3) & ~3
    raise OSError(errno.ENETUNREACH, "its route names no interface")


def towards(host):
    """(interface, HOST's address). Raises OSError where no address of HOST has a route."""
    problem = None
    for address in resolved(host):
        try:
            name, is_own = route_to(address)
        except OSError as error:
            problem = error
            continue
        return (carrying(address) or name) if is_own else name, address
    raise problem


def carrying(address):
    """The interface that has one of this node's own addresses; a route to them only says `lo`."""
    names = [name for name, listed in addresses().items() if address in listed]
    return min(names, key=lambda n: (is_loopback(n), bool(OF_CONTAINERS.match(n)), n), default=None)


def chosen(host):
    name, address = towards(host)
    others = {n: listed for n, listed in usable().items() if is_own_network(n)}
    if OF_CONTAINERS.match(name) and others:
        sys.exit(
            f"{host} leads to {name}, which is of containers: name one of {described(others)} as network_interface in the "
            "cluster's file, or give the first node another address"
        )
    return answer(name, address)


def named(names, host):
    found = usable()
    for name in names.split(","):
        if name not in found:
            lack = "has no interface" if name not in psutil.net_if_stats() else "cannot use its interface"
            sys.exit(f"it {lack} {name!r}, the network_interface of the cluster's file; it can use {described(found)}")
    return {**answer(names, resolved(host)[0]), "loopback": all(map(is_loopback, names.split(",")))}


def answer(name, to):
    version = ipaddress.ip_address(to).version
    listed = addresses()[name.split(",")[0]]
    alike = [a for a in listed if ipaddress.ip_address(a).version == version]
    return {
        "interface": name,
        "address": to if to in listed else next(iter(alike or listed), None),
        "to": to,
        "loopback": is_loopback(name),
        "boot_id": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
    }


def main():
    action, *rest = sys.argv[1:]
    try:
        if action == "free-port":
            return free_port()
        host, names = rest[0], rest[1] if len(rest) > 1 else ""
        return named(names, host) if names else chosen(host)
    except OSError as error:
        sys.exit(f"network: {' '.join(sys.argv[1:])}: {error}")


if __name__ == "__main__":
    print(json.dumps(main()))
