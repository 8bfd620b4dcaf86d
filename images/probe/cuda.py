"""Try CUDA for real: load libcuda, initialise it, make a context and run a kernel on each GPU; print one JSON object.

    {"library": path, "cuda": "13.0", "environment": {}, "skipped": reason or "",
     "error": null or {"call", "code", "name"}, "devices": [{"name", "uuid", "compute_capability", "memory_mib",
     "error": null or {"call", "code", "name"}}]}

A device without an error has computed. Codes are CUDA's; -1 is a call that hung, -2 one that crashed, -3 no library.
Runs on a host and in a container alike: Python 3.9 syntax and the standard library alone.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import sys
import time
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_void_p
from pathlib import Path
from typing import Any

DEADLINE_S = 24.0  # without persistence mode every GPU is brought up first, which takes seconds each
HUNG, CRASHED, NO_LIBRARY = -1, -2, -3
NOT_FOUND = 500  # CUDA's own code for a missing symbol
# What limits or redirects CUDA in this login and says nothing of the host: reported, and not obeyed.
LIMITING = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_LAUNCH_BLOCKING", "CUDA_MPS_PIPE_DIRECTORY")
THREADS = 256
# Written for the oldest architecture that a living driver knows, so that the driver's own compiler must translate it.
PTX = b"""
.version 6.0
.target sm_50
.address_size 64
.visible .entry probe(.param .u64 values)
{
    .reg .b32 %r<3>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [values];
    cvta.to.global.u64 %rd1, %rd1;
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2;
    ld.global.u32 %r2, [%rd3];
    mad.lo.u32 %r2, %r2, 3, %r1;
    st.global.u32 [%rd3], %r2;
    ret;
}
"""


def main() -> None:
    """Work in a child and print what it said: a driver that hangs or crashes takes only the child."""
    ours, its = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(ours)
        os.dup2(2, 1)  # nothing that a library prints mixes with the answer
        give_up_loading()
        work(Report(its))
        os._exit(0)
    os.close(its)
    until = time.monotonic() + (float(sys.argv[1]) if sys.argv[1:] else DEADLINE_S)
    call, answer = listen(ours, until)
    code = ended(pid, until)
    if code:
        answer["error"] = {"call": call, "code": code, "name": "hung" if code == HUNG else "crashed"}
    print(json.dumps(answer))


def listen(pipe: int, until: float) -> tuple[str, dict[str, Any]]:
    """Return the call that the child was last in, and the last answer that it gave, once it ends or time is up."""
    call, rest = "the start", b""
    answer: dict[str, Any] = {"devices": []}
    while select.select([pipe], [], [], max(0.0, until - time.monotonic()))[0]:
        data = os.read(pipe, 1 << 16)
        if not data:
            break
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            if line.startswith(b"{"):
                answer = json.loads(line)
            else:
                call = line.decode()
    return call, answer


def ended(pid: int, until: float) -> int:
    """Return 0 for a child that ended well, else HUNG or CRASHED; one that cannot be killed is left behind."""
    while time.monotonic() < until:  # its pipe closes a moment before it has ended
        done, status = os.waitpid(pid, os.WNOHANG)
        if done and os.WIFSIGNALED(status):
            return CRASHED
        if done:
            return sys.exit(1) if status else 0  # a defect of this program; the child has printed which
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    return HUNG


def give_up_loading() -> None:
    """Give up what loads modules and makes device nodes: CUDA does both itself, or lets nvidia-modprobe do it.

    With no_new_privs a child, setuid or root's, gets no capability back that is given up here.
    """
    libc = ctypes.CDLL(None)
    libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, this process
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted and inheritable, of the capabilities 0-31 and then 32-63
    if libc.capget(header, sets) == 0:
        for number in range(3):
            sets[number] &= ~(1 << 16 | 1 << 27)  # CAP_SYS_MODULE, CAP_MKNOD
        libc.capset(header, sets)


def must_not_try() -> str:
    """Return why trying CUDA would change this host, "" where it would not.

    CUDA needs nvidia_uvm and loads it when it is not; and opening a device node makes the kernel load its module.
    """
    modules = Path("/sys/module")
    if not modules.is_dir() or Path("/dev/dxg").exists():  # gVisor, WSL: no modules
        return ""
    if (modules / "nvidia").is_dir() and not (modules / "nvidia_uvm").is_dir():
        return "nvidia_uvm is not loaded, and trying CUDA would load it"
    if not (modules / "nvidia").is_dir() and Path("/dev/nvidiactl").exists():
        return "the nvidia module is not loaded, and trying CUDA would load it"
    return ""


class Report:
    """The child's end of the pipe: which call comes next, and all that is known so far."""

    def __init__(self, pipe: int) -> None:
        self.pipe = os.fdopen(pipe, "w", encoding="utf-8")
        self.known: dict[str, Any] = {"library": "", "skipped": "", "error": None, "devices": []}

    def at(self, call: str) -> None:
        """Say which call comes next."""
        self.pipe.write(call + "\n")
        self.pipe.flush()

    def tell(self, **more: Any) -> None:
        """Say all that is known."""
        self.known.update(more)
        self.pipe.write(json.dumps(self.known) + "\n")
        self.pipe.flush()


class Failed(Exception):  # noqa: N818 - a call's answer
    """A call of CUDA that did not succeed."""

    def __init__(self, call: str, code: int, name: str) -> None:
        super().__init__(call)
        self.described = {"call": call, "code": code, "name": name}


class Cuda:
    """The driver interface, each call checked and announced."""

    def __init__(self, report: Report) -> None:
        self.report = report
        report.at("dlopen libcuda.so.1")
        try:
            self.library = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise Failed("dlopen", NO_LIBRARY, str(error)) from None
        maps = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
        report.tell(library=next((line.split(maxsplit=5)[-1] for line in maps if "libcuda.so" in line), ""))

    def __call__(self, function: str, *args: Any) -> None:
        """Call a function; raise Failed where it does not answer CUDA_SUCCESS."""
        self.report.at(function)
        try:
            code = getattr(self.library, function)(*args)
        except AttributeError:
            raise Failed(function, NOT_FOUND, "this libcuda has no such function") from None
        if code:
            name = c_char_p()
            self.library.cuGetErrorName(code, byref(name))
            raise Failed(function, code, (name.value or b"").decode())


def work(report: Report) -> None:
    """Try everything, telling what is known after each GPU."""
    report.tell(environment={name: os.environ.pop(name) for name in LIMITING if name in os.environ})
    os.environ["CUDA_CACHE_DISABLE"] = "1"  # leave nothing in ~/.nv
    reason = must_not_try()
    if reason:
        return report.tell(skipped=reason)
    number, count = c_int(), c_int()
    try:
        cuda = Cuda(report)
        cuda("cuDriverGetVersion", byref(number))
        report.tell(cuda=f"{number.value // 1000}.{number.value % 1000 // 10}")
        cuda("cuInit", 0)
        cuda("cuDeviceGetCount", byref(count))
    except Failed as failed:
        return report.tell(error=failed.described)
    for index in range(count.value):
        report.known["devices"].append(tried(cuda, index))
        report.tell()
    return None


def tried(cuda: Cuda, index: int) -> dict[str, Any]:
    """Return what a GPU is, and the error that it ended with, null for one that has computed."""
    known: dict[str, Any] = {"index": index, "error": None}
    try:
        device = c_int()
        cuda("cuDeviceGet", byref(device), index)
        describe(cuda, device, known)
        context = c_void_p()
        cuda("cuDevicePrimaryCtxRetain", byref(context), device)
        try:
            cuda("cuCtxSetCurrent", context)
            compute(cuda)
        finally:
            cuda.library.cuDevicePrimaryCtxRelease_v2(device)
    except Failed as failed:
        known["error"] = failed.described
    return known


def describe(cuda: Cuda, device: c_int, known: dict[str, Any]) -> None:
    """Fill in what a GPU is."""
    name, uuid, memory = ctypes.create_string_buffer(256), (ctypes.c_ubyte * 16)(), c_size_t()
    major, minor = c_int(), c_int()
    cuda("cuDeviceGetName", name, len(name), device)
    cuda("cuDeviceGetUuid", byref(uuid), device)
    cuda("cuDeviceTotalMem_v2", byref(memory), device)
    cuda("cuDeviceGetAttribute", byref(major), 75, device)
    cuda("cuDeviceGetAttribute", byref(minor), 76, device)
    text = bytes(uuid).hex()
    known["name"] = name.value.decode("utf-8", "replace")
    known["uuid"] = "GPU-" + "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
    known["compute_capability"] = f"{major.value}.{minor.value}"
    known["memory_mib"] = memory.value >> 20


def compute(cuda: Cuda) -> None:
    """Send numbers to the current GPU, let a kernel change them, and compare what comes back."""
    module, function, values = c_void_p(), c_void_p(), c_void_p()
    sent = (c_uint * THREADS)(*range(1, THREADS + 1))
    back = (c_uint * THREADS)()
    size = c_size_t(ctypes.sizeof(sent))
    cuda("cuMemAlloc_v2", byref(values), size)
    try:
        cuda("cuMemcpyHtoD_v2", values, sent, size)
        cuda("cuModuleLoadData", byref(module), c_char_p(PTX))
        cuda("cuModuleGetFunction", byref(function), module, c_char_p(b"probe"))
        arguments = (c_void_p * 1)(ctypes.addressof(values))
        cuda("cuLaunchKernel", function, 1, 1, 1, THREADS, 1, 1, 0, None, arguments, None)
        cuda("cuCtxSynchronize")
        cuda("cuMemcpyDtoH_v2", back, values, size)
    finally:
        cuda.library.cuMemFree_v2(values)
    if list(back) != [3 * value + thread for thread, value in enumerate(sent)]:
        raise Failed("compare", 0, "the kernel's numbers are wrong")


if __name__ == "__main__":
    main()
