"""The test bed itself: links that can be cut, reboots, and nothing left of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import bed as beds
import pytest
from bed import Bed
from machines import processes_in, wait_until

MAKE_AND_WAIT = """
import sys, time
from pathlib import Path
import bed
with bed.made(Path(sys.argv[1]), 2) as made:
    print(*[host.machine.pid_namespace for host in made.hosts], made.switch.pid, flush=True)
    time.sleep(600)
"""


@pytest.mark.quick
def test_a_host_has_its_own_address_name_processes_boot_id_and_interfaces(bed: Bed) -> None:
    host = bed.hosts[1]
    script = "hostname; cat /proc/sys/kernel/random/boot_id; ls /sys/class/net; cut -d' ' -f1 /proc/1/stat; ls -d /proc/[0-9]*"
    said = beds.ssh(bed, host, script).stdout.splitlines()
    assert said[0] == "node2"
    assert said[1] != Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert {"docker0", "eth0", "lo"} <= set(
        beds.ssh(bed, host, "ip -brief link | cut -d' ' -f1 | cut -d@ -f1").stdout.split()
    )
    assert len([line for line in said if line.startswith("/proc/")]) < 12


@pytest.mark.quick
def test_a_cut_link_is_silent_and_comes_back(bed: Bed) -> None:
    host = bed.hosts[0]
    host.cut()
    try:
        assert beds.ssh(bed, host, "true").returncode == 255
        assert beds.ssh(bed, bed.hosts[1], "true").returncode == 0
    finally:
        host.restore()
    assert beds.ssh(bed, host, "true").returncode == 0


@pytest.mark.quick
def test_a_reboot_ends_all_processes_and_keeps_the_disk(bed: Bed) -> None:
    host = bed.hosts[0]
    boot_id = beds.ssh(
        bed, host, "touch kept; setsid sleep 300 >/dev/null 2>&1 & cat /proc/sys/kernel/random/boot_id"
    ).stdout
    wait_until(lambda: [process.command[0] for process in bed.left()] == ["sleep"], "the program to run")
    host.lose_power()
    host.boot()
    assert bed.left() == []
    said = beds.ssh(bed, host, "ls kept; cat /proc/sys/kernel/random/boot_id").stdout.split()
    assert said[0] == "kept" and said[1] != boot_id.strip()


@pytest.mark.quick
def test_a_bed_is_mended_whatever_was_done_to_it(bed: Bed) -> None:
    bed.hosts[0].cut()
    bed.hosts[1].stop_sshd()
    bed.hosts[2].lose_power()
    bed.mend()
    assert [beds.ssh(bed, host, "hostname").stdout.strip() for host in bed.hosts] == [host.name for host in bed.hosts]
    assert bed.left() == []


@pytest.mark.quick
def test_a_small_disk_can_be_filled(bed: Bed) -> None:
    host = bed.hosts[0]
    with host.with_small_runs() as runs:
        host.fill_runs()
        assert beds.ssh(bed, host, f"echo x > '{runs}/more'").returncode != 0
    assert not (runs / "ballast").exists()


@pytest.mark.quick
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_of_a_bed_whose_maker_is_killed(tmp_path: Path, number: int) -> None:
    maker = subprocess.Popen(
        ["env", "--default-signal=INT", sys.executable, "-c", MAKE_AND_WAIT, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert maker.stdout is not None
        *machines, switch = maker.stdout.readline().split()
        assert len(machines) == 2 and list(processes_in(machines))
    finally:
        maker.send_signal(number)
        maker.wait(timeout=20)
        maker.stdout.close()
    wait_until(
        lambda: not list(processes_in(machines)) and not Path(f"/proc/{switch}/ns/net").exists(), "the bed to go"
    )
