"""Facts of the machine in, what is wrong below and beside the driver out: kernel, memory, disks, clocks."""

from collections.abc import Iterator

from lpxdoctor.check import Finding, NotApplicable, Seen, Severity, check
from lpxdoctor.facts.host import SHM, Host, log_matches
from lpxdoctor.policy import Policy

_SHOWN = 3
_SLOW_CLOCKS = ("hpet", "acpi_pm", "jiffies", "refined-jiffies", "pit")
_OWN_GOVERNORS = ("intel_pstate", "amd-pstate", "amd-pstate-epp")  # their "powersave" follows the load
_OOM = r"[Oo]ut of memory: Killed process"
_STALL = r"soft lockup|hard LOCKUP|rcu\S*: INFO: .*detected (?:expedited )?stalls|blocked for more than \d+ seconds"
_WHERE = "dmesg"
_LONG_S = 3600
_BEFORE_DRIVERS_S = 1  # what comes first is of the kernel alone, and a small buffer may have lost it at once


@check("host.process-stuck-in-driver", Severity.FAIL, layer="driver", after=["host.no-gpu"])
def process_stuck_in_driver(host: Host) -> Iterator[Finding]:
    """A process is stuck inside the NVIDIA driver and cannot be ended.

    Why: it waits in the kernel for something that does not come, mostly an answer of a GPU or of its firmware (GSP).
        No signal reaches it, the driver's locks that it holds stop every other program in turn, and unloading the
        module is impossible.
    Fix: look for Xid 119, 79 or 62 in the kernel log, keep it for the report, and reboot; where the reboot itself
        hangs, power cycle. If it comes again, update the driver, then suspect the card.
    Source: https://github.com/NVIDIA/open-gpu-kernel-modules/issues/446
        https://github.com/Azure/azurehpc/pull/714
    """
    for process in host.stuck:
        if process.in_driver:
            yield Finding(
                f"process {process.pid} ({process.name}) sleeps uninterruptibly since it was last seen to run",
                subject=f"process {process.pid}",
                seen=(
                    Seen("state", "D, twice a second apart, without having run", f"/proc/{process.pid}/stat"),
                    Seen("waits in", process.function or "not known", f"/proc/{process.pid}/wchan"),
                    Seen("started", f"{process.age_s} s ago"),
                ),
                do=("sudo dmesg | grep -e NVRM -e Xid", "sudo reboot"),
            )


@check("host.kernel-log-cut", Severity.INFO, layer="driver")
def kernel_log_cut(host: Host) -> Iterator[Finding]:
    """The kernel log no longer reaches back to the boot.

    Why: the kernel's buffer is a ring, and was filled or cleared. What is judged by it, an Xid, a killed process, a
        refused module, was looked for in what is left: that nothing is found there does not mean that nothing was.
    Fix: the journal keeps more: journalctl -k -b | grep -e NVRM -e Xid. See what fills the log; log_buf_len=16M on the
        kernel's command line gives it room.
    Source: https://docs.kernel.org/admin-guide/kernel-parameters.html (log_buf_len)
    """
    begins_s = host.kernel_log_begins_s
    if begins_s is None and host.kernel_log:
        raise NotApplicable("its lines carry no times")
    if begins_s is not None and begins_s < _BEFORE_DRIVERS_S:
        return
    left = "it is empty" if begins_s is None else f"its first line is of {_told(begins_s)} after the boot"
    seen = (Seen("kernel log", (host.kernel_log or ("no line",))[0][:120], _WHERE),)
    yield Finding(left, seen=seen, do=("sudo journalctl -k -b | grep -e NVRM -e Xid",))


def _told(seconds: float) -> str:
    return f"{seconds / 3600:.1f} hours" if seconds >= _LONG_S else f"{seconds:.0f} seconds"


@check("host.out-of-memory", Severity.WARN, layer="deployment")
def out_of_memory(host: Host) -> Iterator[Finding]:
    """The kernel killed processes because memory ran out.

    Why: it is the host's memory, not the GPU's. An engine that is killed while it loads weights looks as if it had
        crashed by itself; loading needs host memory of about the size of the weights for a while.
    Fix: see who was killed and what held the memory (`sudo dmesg | grep -B 40 'Killed process'`), raise the container's
        limit if that was hit, add memory or swap, or load fewer models at once.
    Source: https://docs.kernel.org/admin-guide/mm/concepts.html#oom-killer
    """
    lines = log_matches(host.kernel_log, _OOM)
    if lines:
        yield Finding(
            f"seen {len(lines)} times in the kernel log, the last: {lines[-1].partition('] ')[2] or lines[-1]}",
            seen=tuple(Seen("kernel log", line, _WHERE) for line in lines[-_SHOWN:]),
        )


@check("host.kernel-stalls", Severity.WARN, layer="hardware")
def kernel_stalls(host: Host) -> Iterator[Finding]:
    """The kernel reports that a processor or a task did not get on.

    Why: soft lockups, stalled RCU and tasks that are blocked for minutes come from hanging hardware, drivers or
        storage. Requests take seconds at random, and measurements of such a host mean nothing.
    Fix: read the stack below the line (`sudo dmesg`): it names the driver. In a virtual machine an overcommitted host
        is the usual reason.
    Source: https://docs.kernel.org/admin-guide/lockup-watchdogs.html
    """
    lines = log_matches(host.kernel_log, _STALL)
    if lines:
        yield Finding(
            f"seen {len(lines)} times in the kernel log, the last: {lines[-1].partition('] ')[2] or lines[-1]}",
            seen=tuple(Seen("kernel log", line, _WHERE) for line in lines[-_SHOWN:]),
        )


@check("host.disk-read-only", Severity.FAIL, layer="hardware")
def disk_read_only(host: Host) -> Iterator[Finding]:
    """The system's disk cannot be written.

    Why: a kernel that meets errors on a disk takes its file system read-only. Docker cannot start a container, logs
        end, and no package can be installed or removed.
    Fix: look for I/O errors in the kernel log and at the disk's own health (`sudo smartctl -a`, `sudo nvme
        smart-log`), copy what matters, replace the disk, or reboot and let fsck repair it.
    Source: https://docs.kernel.org/admin-guide/ext4.html (errors=remount-ro)
    """
    if host.in_container:
        raise NotApplicable("a container may be read-only by intention")
    for mount in host.read_only:
        lines = log_matches(host.kernel_log, "Remounting filesystem read-only|I/O error|Shutting down filesystem")
        yield Finding(
            f"{mount} is mounted read-only",
            subject=mount,
            seen=(
                Seen("mount", f"{mount} ro", "/proc/self/mounts"),
                *(Seen("kernel log", line, _WHERE) for line in lines[-_SHOWN:]),
            ),
            do=(f"sudo mount -o remount,rw {mount}", "sudo dmesg --level=err"),
        )


@check("host.disk-full", Severity.WARN, layer="deployment")
def disk_full(host: Host, policy: Policy) -> Iterator[Finding]:
    """The system's disk is nearly full.

    Why: without space the kernel module is not built, the initramfs is written incompletely or not at all, and the
        next boot comes up without a driver; containers and their logs stop too.
    Fix: remove old kernels (`sudo apt-get autoremove --purge`, `sudo dnf remove --oldinstallonly`), unused images
        (`docker image prune`), and see what grew: `sudo du -xh --max-depth=2 / | sort -h | tail`.
    Source: https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/ (DKMS builds into /lib/modules and /var)
    """
    for disk in host.disks:
        free_mib = disk.free_kib // 1024
        needed_mib = policy.limits.boot_disk_mib if disk.mount == "/boot" else policy.limits.system_disk_gib * 1024
        if disk.mount != SHM and free_mib < needed_mib:
            yield Finding(
                f"{free_mib} MiB of {disk.size_kib // 1024} MiB are free, {needed_mib:.0f} MiB are needed",
                subject=disk.mount,
                seen=(Seen("free", f"{free_mib} MiB", f"df {disk.mount}"),),
            )


@check("host.shm-small", Severity.WARN, layer="deployment", after=["host.no-gpu"])
def shm_small(host: Host, policy: Policy) -> Iterator[Finding]:
    """Shared memory is too small for an engine with several GPUs.

    Why: the processes of a tensor-parallel engine, and NCCL below them, exchange data through /dev/shm. When it is full
        they end with "No space left on device" or a bus error, mostly only under load.
    Fix: on the host, sudo mount -o remount,size=50% /dev/shm, and for good in /etc/fstab. A container has a /dev/shm of
        its own, 64 MiB by default, unless it is started with --ipc=host or --shm-size.
    Source: https://docs.vllm.ai/en/stable/deployment/docker/
        https://github.com/vllm-project/vllm/issues/1710
    """
    if len(host.gpus) < 2:
        raise NotApplicable("an engine on one GPU needs little of it")
    shm = next((disk for disk in host.disks if disk.mount == SHM), None)
    size_mib = shm.size_kib // 1024 if shm else 0
    if size_mib < policy.limits.shm_mib:
        yield Finding(
            f"{SHM} is {size_mib} MiB large, {policy.limits.shm_mib} MiB are needed"
            if shm
            else f"{SHM} is not mounted",
            subject=SHM,
            seen=(Seen("size", f"{size_mib} MiB", f"df {SHM}"),),
            do=(f"sudo mount -o remount,size=50% {SHM}",),
        )


@check("host.reboot-pending", Severity.INFO, layer="driver")
def reboot_pending(host: Host) -> Iterator[Finding]:
    """An update waits for a reboot.

    Why: what runs is not what is installed, so the next start, planned or not, changes the system. What it will do to
        the driver is judged by the checks whose names begin with boot.next.
    Fix: plan the reboot: drain the engine, sudo reboot, then run lpxdoctor check again.
    Source: https://www.debian.org/doc/debian-policy/ch-opersys.html#signaling-that-a-reboot-is-required
    """
    if host.reboot_required:
        yield Finding(
            f"asked for by {', '.join(host.reboot_packages) or 'a package that left no name'}",
            seen=(Seen("marker", "present", "/run/reboot-required"),),
        )


@check("host.cpu-clock-held-low", Severity.WARN, layer="hardware")
def cpu_clock_held_low(host: Host) -> Iterator[Finding]:
    """The processor is held at its lowest clock.

    Why: one CPU thread launches the kernels of every decode step. At the lowest clock the GPU waits for it between
        steps: tokens per second fall while GPU utilization looks fine.
    Fix: sudo cpupower frequency-set -g performance, and for good through tuned (`sudo tuned-adm profile
        throughput-performance`) or cpufrequtils.
    Source: https://docs.kernel.org/admin-guide/pm/cpufreq.html (powersave governor)
    """
    if not host.governor:
        raise NotApplicable("the clock of this processor is not the kernel's to set")
    if host.governor == "powersave" and host.governor_driver not in _OWN_GOVERNORS:
        yield Finding(
            f"the governor is powersave, and {host.governor_driver or 'its driver'} then keeps the lowest clock",
            seen=(Seen("scaling_governor", host.governor, "/sys/devices/system/cpu/cpu0/cpufreq"),),
            do=("sudo cpupower frequency-set -g performance",),
        )


@check("host.clocksource-slow", Severity.INFO, layer="hardware")
def clocksource_slow(host: Host) -> Iterator[Finding]:
    """Reading the time is slow on this host.

    Why: the kernel distrusts the processor's own counter and asks a device on the board for the time, which costs about
        a microsecond each and serves one processor at a time. Engines read the time for every token.
    Fix: find out why (`sudo dmesg | grep -i clocksource`): unsynchronised counters point to firmware that needs an
        update. In a virtual machine choose the hypervisor's own clock.
    Source: https://docs.kernel.org/timers/timekeeping.html
    """
    if host.clocksource in _SLOW_CLOCKS:
        yield Finding(
            f"the clock source is {host.clocksource}",
            seen=(Seen("clock source", host.clocksource, "/sys/devices/system/clocksource/clocksource0"),),
        )
