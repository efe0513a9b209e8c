"""Binding of ranks to CPUs: what each rank gets on machines of several kinds, and that the kernel does it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from training.common.binding import (
    Gpu,
    Unbound,
    gpus_of_ranks,
    near_gpu,
    read_topology,
    share_of_nodes,
    visible,
)

ROOT = Path(__file__).resolve().parents[2]
UUIDS = ["GPU-11aa", "GPU-22bb", "GPU-22cc"]
DGX_GPU_NODES = [3, 3, 1, 1, 7, 7, 5, 5]


def write_tree(root, nodes, siblings, sockets):
    """A /sys with the given CPUs of each NUMA node, SMT siblings and socket of each CPU."""
    for number, cpus in nodes.items():
        folder = root / "devices/system/node" / f"node{number}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(cpus + "\n")
    for cpu, text in siblings.items():
        folder = root / "devices/system/cpu" / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(text + "\n")
        (folder / "physical_package_id").write_text(f"{sockets[cpu]}\n")
    return root


@pytest.fixture
def dgx(tmp_path):
    """A DGX A100: 2 sockets of 64 cores, 4 NUMA nodes each, siblings 128 apart; 2 GPUs near every second node."""
    nodes = {node: f"{16 * node}-{16 * node + 15},{16 * node + 128}-{16 * node + 143}" for node in range(8)}
    siblings = {cpu: f"{cpu % 128},{cpu % 128 + 128}" for cpu in range(256)}
    return read_topology(write_tree(tmp_path, nodes, siblings, {cpu: cpu % 128 // 64 for cpu in range(256)}))


@pytest.fixture
def two_sockets(tmp_path):
    """8 cores, even CPUs on one socket and odd ones on the other, siblings 8 apart; one node has memory only."""
    nodes = {0: "0,2,4,6,8,10,12,14", 1: "1,3,5,7,9,11,13,15", 2: ""}
    siblings = {cpu: f"{cpu % 8},{cpu % 8 + 8}" for cpu in range(16)}
    return read_topology(write_tree(tmp_path / "two", nodes, siblings, {cpu: cpu % 2 for cpu in range(16)}))


@pytest.fixture
def one_node(tmp_path):
    return read_topology(write_tree(tmp_path, {0: "0-3"}, {c: str(c) for c in range(4)}, dict.fromkeys(range(4), 0)))


def all_cpus(topology):
    return frozenset().union(*topology.cores)


def gpus_near(topology, nodes):
    return [Gpu(index, topology.nodes[node]) for index, node in enumerate(nodes)]


def of_gpus(topology, gpus, allowed=None):
    allowed = all_cpus(topology) if allowed is None else frozenset(allowed)
    return [near_gpu(rank, gpus, topology, allowed) for rank in range(len(gpus))]


def of_nodes(topology, ranks, allowed=None):
    allowed = all_cpus(topology) if allowed is None else frozenset(allowed)
    return [share_of_nodes(rank, ranks, topology, allowed) for rank in range(ranks)]


def assert_whole_cores_of_one_rank_each(shares, topology):
    owner = {cpu: rank for rank, (cpus, _) in enumerate(shares) for cpu in cpus}
    assert len(owner) == sum(len(cpus) for cpus, _ in shares)
    assert all(len({owner.get(cpu) for cpu in core}) == 1 for core in topology.cores)


def test_eight_gpus_of_a_dgx_share_all_its_cores_near_them(dgx):
    shares = of_gpus(dgx, gpus_near(dgx, DGX_GPU_NODES))
    assert_whole_cores_of_one_rank_each(shares, dgx)
    assert [len(cpus) for cpus, _ in shares] == [32] * 8
    for rank, (cpus, reason) in enumerate(shares):
        socket = 0 if rank < 4 else 1
        assert {cpu % 128 // 64 for cpu in cpus} == {socket}
        assert reason.startswith(f"32 CPUs near GPU {rank} (NUMA node")
    assert shares[2][0] | shares[3][0] >= dgx.nodes[1] and shares[0][0] | shares[1][0] >= dgx.nodes[3]


def test_gpus_of_a_dgx_in_another_order_get_the_same_cpus(dgx):
    gpus = gpus_near(dgx, DGX_GPU_NODES)
    (cpus, reason), *_ = of_gpus(dgx, [*gpus[4:], *gpus[:4]])
    assert cpus <= frozenset().union(*(dgx.nodes[node] for node in range(4, 8)))
    assert reason.startswith("32 CPUs near GPU 4 ")


def test_a_gpu_per_socket(two_sockets):
    shares = of_gpus(two_sockets, gpus_near(two_sockets, [0, 1]))
    assert shares == [
        (two_sockets.nodes[0], "8 CPUs near GPU 0 (NUMA node 0)"),
        (two_sockets.nodes[1], "8 CPUs near GPU 1 (NUMA node 1)"),
    ]


def test_gpus_of_one_socket_leave_the_other_alone(two_sockets):
    shares = of_gpus(two_sockets, gpus_near(two_sockets, [1, 1]))
    assert [cpus for cpus, _ in shares] == [{1, 3, 9, 11}, {5, 7, 13, 15}]


def test_gpus_near_the_same_cpus_divide_them(one_node):
    everything = gpus_near(one_node, [0, 0, 0])
    shares = of_gpus(one_node, everything)
    assert_whole_cores_of_one_rank_each(shares, one_node)
    assert [len(cpus) for cpus, _ in shares] == [1, 1, 2]


def test_no_cpu_is_added_to_those_that_the_process_may_use(two_sockets):
    gpus = gpus_near(two_sockets, [0, 0])
    assert [cpus for cpus, _ in of_gpus(two_sockets, gpus, allowed=[0, 1, 2, 4, 6, 8])] == [{0, 8, 2}, {4, 6}]
    assert [cpus for cpus, _ in of_nodes(two_sockets, 2, allowed=[0, 2, 1, 3])] == [{0, 2}, {1, 3}]
    with pytest.raises(Unbound, match="no CPU that it may use is near GPU 0"):
        near_gpu(0, gpus, two_sockets, frozenset({1, 3}))


def test_no_rank_is_left_without_a_cpu(two_sockets, one_node):
    with pytest.raises(Unbound, match="5 ranks on 4 cores"):
        near_gpu(4, gpus_near(one_node, [0] * 5), one_node, all_cpus(one_node))
    with pytest.raises(Unbound, match="9 ranks on 8 cores"):
        share_of_nodes(0, 9, two_sockets, all_cpus(two_sockets))


@pytest.mark.parametrize(("ranks", "each"), [(2, [8, 8]), (3, [4, 6, 6]), (4, [4] * 4), (8, [2] * 8)])
def test_ranks_without_gpus_share_the_numa_nodes(two_sockets, ranks, each):
    shares = of_nodes(two_sockets, ranks)
    assert_whole_cores_of_one_rank_each(shares, two_sockets)
    assert [len(cpus) for cpus, _ in shares] == each
    if ranks % 2 == 0:
        assert all(len({cpu % 2 for cpu in cpus}) == 1 for cpus, _ in shares)
    assert shares[0][1] == f"{each[0]} CPUs of NUMA node 0"


def test_four_ranks_of_a_dgx_without_its_gpus_get_two_nodes_each(dgx):
    shares = of_nodes(dgx, 4)
    assert shares[3] == (dgx.nodes[6] | dgx.nodes[7], "64 CPUs of NUMA nodes 6, 7")


def test_one_numa_node_or_one_rank_is_left_as_it_is(one_node, two_sockets):
    with pytest.raises(Unbound, match="one NUMA node"):
        share_of_nodes(0, 2, one_node, all_cpus(one_node))
    with pytest.raises(Unbound, match="one NUMA node"):
        share_of_nodes(0, 2, two_sockets, two_sockets.nodes[1])
    with pytest.raises(Unbound, match="one rank on all NUMA nodes"):
        share_of_nodes(0, 1, two_sockets, all_cpus(two_sockets))


def test_a_machine_that_does_not_tell_its_topology(tmp_path):
    with pytest.raises(Unbound, match="does not tell its cores"):
        read_topology(tmp_path)
    write_tree(tmp_path / "no nodes", {}, {0: "0"}, {0: 0})
    with pytest.raises(Unbound, match="does not tell its NUMA nodes"):
        share_of_nodes(0, 2, read_topology(tmp_path / "no nodes"), frozenset({0}))
    write_tree(tmp_path / "odd", {0: "zero"}, {0: "0"}, {0: 0})
    with pytest.raises(Unbound, match="cannot be read"):
        read_topology(tmp_path / "odd")


@pytest.mark.parametrize(
    ("variable", "found"),
    [
        (None, [0, 1, 2]),
        ("2,0", [2, 0]),
        ("GPU-22cc, GPU-11", [2, 0]),
        ("1,7,0", [1]),
        ("GPU-22", []),
        ("-1", []),
        ("", []),
    ],
)
def test_the_gpus_that_cuda_shows(variable, found):
    assert visible(UUIDS, variable) == found


def test_a_part_of_a_gpu_is_nowhere():
    with pytest.raises(Unbound, match="MIG"):
        visible(UUIDS, "MIG-11aa")


def test_this_machine_without_a_gpu_has_none(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert gpus_of_ranks(2) is None


CHILD = """
import json, os, sys
from pathlib import Path
from training.common.binding import bind
own, rank, ranks, enabled, tree = json.loads(sys.argv[1])
if own:
    os.sched_setaffinity(0, own)
binding = bind(rank, ranks, cuda=False, enabled=enabled, sys=Path(tree))
print(json.dumps([binding.cpus, binding.reason, sorted(os.sched_getaffinity(0)), "torch" in sys.modules]))
"""


def bound(tree, rank=0, ranks=2, enabled=True, own=()):
    """What a process was bound to, the reason, and what the kernel then says."""
    command = [sys.executable, "-c", CHILD, json.dumps([list(own), rank, ranks, enabled, str(tree)])]
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    cpus, reason, kernel, torch_imported = json.loads(done.stdout)
    assert cpus == kernel and not torch_imported
    return cpus, reason


@pytest.fixture
def cpus():
    found = sorted(os.sched_getaffinity(0))
    if len(found) < 2:
        pytest.skip("one CPU cannot be shared out")
    return found


@pytest.fixture
def halves(tmp_path, cpus):
    """A tree in which each half of the CPUs that the tests may use is a NUMA node."""
    half = len(cpus) // 2
    nodes = {0: ",".join(map(str, cpus[:half])), 1: ",".join(map(str, cpus[half:]))}
    return write_tree(tmp_path, nodes, {cpu: str(cpu) for cpu in cpus}, dict.fromkeys(cpus, 0))


def test_the_kernel_binds_the_process(halves, cpus):
    half = len(cpus) // 2
    first, second = bound(halves, rank=0), bound(halves, rank=1)
    assert first == (cpus[:half], f"{half} CPUs of NUMA node 0")
    assert sorted(first[0] + second[0]) == cpus


def test_the_user_may_forbid_it(halves, cpus):
    assert bound(halves, enabled=False) == (cpus, "off: --no-binding")


def test_what_the_launcher_has_bound_is_left_as_it_is(halves, cpus):
    assert bound(halves, own=cpus[1:]) == (cpus[1:], "bound by its launcher: left as it is")


def test_a_process_whose_place_is_not_known_is_left_as_it_is(tmp_path, cpus):
    assert bound(tmp_path) == (cpus, "the machine does not tell its cores: left as it is")
    assert bound(tmp_path, rank=2) == (cpus, "local rank 2 of 2: left as it is")


def test_under_taskset_only_its_cpus_are_shared_out(halves, cpus):
    os.sched_setaffinity(0, cpus[:1])
    try:
        assert bound(halves) == (cpus[:1], "one NUMA node: left as it is")
    finally:
        os.sched_setaffinity(0, cpus)
