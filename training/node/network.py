"""Addresses and ports of this node.

Usage: network.py free-port            prints {"port": a TCP port that nobody listens on now}
       network.py interface ADDRESS    prints {"interface": the one that leads to ADDRESS, "address": our side's}
"""

import fcntl
import json
import socket
import struct
import sys

SIOCGIFADDR = 0x8915


def free_port():
    with socket.socket() as probe:
        probe.bind(("", 0))
        return {"port": probe.getsockname()[1]}


def interface_to(address):
    """The interface whose IPv4 address the kernel would use as source towards `address`; no packet is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((address, 9))
        source = probe.getsockname()[0]
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                answer = fcntl.ioctl(probe.fileno(), SIOCGIFADDR, request)
            except OSError:  # an interface without an IPv4 address
                continue
            if socket.inet_ntoa(answer[20:24]) == source:
                return {"interface": name, "address": source}
    return {"interface": None, "address": source}


if __name__ == "__main__":
    try:
        print(json.dumps(free_port() if sys.argv[1] == "free-port" else interface_to(sys.argv[2])))
    except OSError as error:
        sys.exit(f"network: {' '.join(sys.argv[1:])}: {error}")
