"""Which CPUs a rank runs on: those near its GPU, or its share of the NUMA nodes.

Memory follows, since Linux allocates it where a thread first touches it. Never imports torch: a process is bound
before its threads start, which inherit the binding.
"""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass
from pathlib import Path

_MASK_WORDS, _WORD_BITS = 64, 64

Cpus = frozenset[int]


@dataclass(frozen=True)
class Binding:
    """The CPUs that the process may run on from now on, and a short phrase that says why these."""

    cpus: list[int]
    reason: str


@dataclass(frozen=True)
class Topology:
    """`nodes` are the NUMA nodes that have CPUs, by number, `cores` the SMT siblings of each core."""

    nodes: dict[int, Cpus]
    cores: list[Cpus]
    sockets: list[Cpus]


@dataclass(frozen=True)
class Gpu:
    """A rank's GPU: its number in NVML and nvidia-smi, and the CPUs that NVML says are near."""

    index: int
    cpus: Cpus


class Unbound(Exception):
    """Why a process is left as it is."""


def bind(local_rank: int, local_world_size: int, cuda: bool, enabled: bool, sys: Path = Path("/sys")) -> Binding:
    """Binds this process, never to a CPU that it may not use already. To be called before any thread is started.

    A process that its launcher has bound on its own (numactl, mpirun, srun), and one whose machine does not tell its
    topology, is left as it is.
    """
    allowed = frozenset(os.sched_getaffinity(0))
    if not enabled:
        return Binding(sorted(allowed), "off: --no-binding")
    try:
        if local_rank >= local_world_size:
            raise Unbound(f"local rank {local_rank} of {local_world_size}")
        if allowed != os.sched_getaffinity(os.getppid()):
            raise Unbound("bound by its launcher")
        topology = read_topology(sys)
        gpus = gpus_of_ranks(local_world_size) if cuda else None
        cpus, reason = (
            near_gpu(local_rank, gpus, topology, allowed)
            if gpus
            else share_of_nodes(local_rank, local_world_size, topology, allowed)
        )
        os.sched_setaffinity(0, cpus)
    except Unbound as why:
        return Binding(sorted(allowed), f"{why}: left as it is")
    except OSError as error:
        return Binding(sorted(allowed), f"the kernel refuses ({error.strerror}): left as it is")
    return Binding(sorted(os.sched_getaffinity(0)), reason)


def local_world_size() -> int:
    """Ranks on this node, as the launcher says."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", os.environ.get("WORLD_SIZE", "1")))


def near_gpu(local_rank: int, gpus: list[Gpu], topology: Topology, allowed: Cpus) -> tuple[Cpus, str]:
    """The rank's share of the CPUs near its GPU; `gpus` are those of the local ranks. Raises Unbound.

    Ranks whose GPUs are near the same CPUs divide them. NUMA nodes that are near none of the GPUs are taken in by those
    of their socket: on a DGX A100 half of the cores would idle else, and they decode images.
    """
    gpu = gpus[local_rank]
    near = _near_with_spare_nodes([gpu.cpus for gpu in gpus], topology)
    mine = near[local_rank] & allowed
    if not mine:
        raise Unbound(f"no CPU that it may use is near GPU {gpu.index}")
    sharers = [rank for rank, cpus in enumerate(near) if cpus & allowed == mine]
    cpus = _slice(_cores(topology, mine), sharers.index(local_rank), len(sharers))
    return cpus, f"{len(cpus)} CPUs near GPU {gpu.index} ({_node_names(topology, cpus)})"


def share_of_nodes(local_rank: int, local_world_size: int, topology: Topology, allowed: Cpus) -> tuple[Cpus, str]:
    """The rank's even share of the cores, node by node. Raises Unbound."""
    nodes = [cpus & allowed for cpus in topology.nodes.values() if cpus & allowed]
    if len(nodes) < 2:
        raise Unbound("one NUMA node" if nodes else "the machine does not tell its NUMA nodes")
    if local_world_size == 1:
        raise Unbound("one rank on all NUMA nodes")
    cpus = _slice(_cores(topology, frozenset().union(*nodes)), local_rank, local_world_size)
    return cpus, f"{len(cpus)} CPUs of {_node_names(topology, cpus)}"


def read_topology(sys: Path) -> Topology:
    """What the kernel tells of NUMA nodes, cores and sockets under /sys/devices/system. Raises Unbound."""
    system = sys / "devices" / "system"
    try:
        nodes = {int(path.parent.name[4:]): _cpus(path) for path in system.glob("node/node[0-9]*/cpulist")}
        topologies = sorted(system.glob("cpu/cpu[0-9]*/topology"))
        cores = {_cpus(path / "thread_siblings_list") for path in topologies}
        sockets: dict[str, set[int]] = {}
        for path in topologies:
            package = (path / "physical_package_id").read_text(encoding="ascii").strip()
            sockets.setdefault(package, set()).add(int(path.parent.name[3:]))
    except (OSError, ValueError) as error:
        raise Unbound("the machine's topology cannot be read") from error
    if not cores:
        raise Unbound("the machine does not tell its cores")
    return Topology(
        nodes={number: nodes[number] for number in sorted(nodes) if nodes[number]},
        cores=sorted(cores, key=min),
        sockets=[frozenset(cpus) for cpus in sockets.values()],
    )


def gpus_of_ranks(local_world_size: int) -> list[Gpu] | None:
    """The GPU of each local rank, None on a machine without GPUs. Raises Unbound where NVML does not tell."""
    try:
        import pynvml
    except ImportError as error:
        raise Unbound("pynvml is not installed") from error
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        seen = visible([pynvml.nvmlDeviceGetUUID(handle) for handle in handles], os.environ.get("CUDA_VISIBLE_DEVICES"))
        if not seen:
            return None
        if len(seen) < local_world_size:
            raise Unbound(f"{local_world_size} ranks on {len(seen)} GPUs")
        return [
            Gpu(index, _unmasked(pynvml.nvmlDeviceGetCpuAffinity(handles[index], _MASK_WORDS)))
            for index in seen[:local_world_size]
        ]
    except pynvml.NVMLError as error:
        raise Unbound(f"NVML does not tell which CPUs are near ({error})") from error
    finally:
        pynvml.nvmlShutdown()


def visible(uuids: list[str], variable: str | None) -> list[int]:
    """The GPUs (indices into `uuids`) that CUDA shows, in its order, given CUDA_VISIBLE_DEVICES. Raises Unbound.

    An entry is an index or how a UUID begins; CUDA ignores what comes after an entry that names no GPU.
    """
    if variable is None:
        return list(range(len(uuids)))
    found: list[int] = []
    for entry in (entry.strip() for entry in variable.split(",")):
        if entry.startswith("MIG-"):
            raise Unbound("a rank on a part of a GPU (MIG)")
        matching = [
            i for i, uuid in enumerate(uuids) if entry == str(i) or (entry[:4] == "GPU-" and uuid.startswith(entry))
        ]
        if len(matching) != 1:
            break
        found += matching
    return found


def _near_with_spare_nodes(near: list[Cpus], topology: Topology) -> list[Cpus]:
    """`near`, where each NUMA node that is in no entry joins one of its socket, the nodes spread evenly."""
    taken = frozenset().union(*near)
    spare = [cpus for cpus in topology.nodes.values() if not cpus & taken]
    extended = {cpus: cpus for cpus in sorted(set(near), key=sorted)}
    for socket in topology.sockets:
        hosts = [cpus for cpus in extended if cpus and cpus <= socket]
        guests = [cpus for cpus in spare if cpus <= socket]
        for host, guest in zip(itertools.cycle(hosts), guests, strict=False):
            extended[host] |= guest
    return [extended[cpus] for cpus in near]


def _cores(topology: Topology, cpus: Cpus) -> list[Cpus]:
    """The cores, cut down to `cpus`, NUMA node by NUMA node."""
    node_of = {cpu: node for node, members in topology.nodes.items() for cpu in members}
    cores = [core & cpus for core in topology.cores if core & cpus]
    return sorted(cores, key=lambda core: (node_of.get(min(core), -1), min(core)))


def _slice(cores: list[Cpus], part: int, parts: int) -> Cpus:
    if len(cores) < parts:
        raise Unbound(f"{parts} ranks on {len(cores)} cores")
    return frozenset().union(*cores[part * len(cores) // parts : (part + 1) * len(cores) // parts])


def _node_names(topology: Topology, cpus: Cpus) -> str:
    names = [str(node) for node, members in topology.nodes.items() if members & cpus]
    if not names:
        return "NUMA node unknown"
    return f"NUMA node{'s' if len(names) > 1 else ''} {', '.join(names)}"


def _cpus(path: Path) -> Cpus:
    """The CPUs of a list as the kernel writes it: `0-3,8`."""
    ranges = [part.partition("-") for part in path.read_text(encoding="ascii").strip().split(",") if part]
    return frozenset(cpu for first, _, last in ranges for cpu in range(int(first), int(last or first) + 1))


def _unmasked(words: list[int]) -> Cpus:
    bits = range(_WORD_BITS)
    return frozenset(word * _WORD_BITS + bit for word, mask in enumerate(words) for bit in bits if mask >> bit & 1)
