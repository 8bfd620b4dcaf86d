"""What people tell of drivers that are not this host's own in: Windows, WSL, virtual GPUs, repositories; advice out."""

from collections.abc import Iterator

from lpxdoctor.check import Finding, Seen, Severity, check
from lpxdoctor.facts.symptoms import Symptoms


def _told(symptoms: Symptoms, check_id: str) -> Iterator[Finding]:
    for symptom in symptoms.of(check_id):
        yield Finding(symptom.meaning, seen=(Seen("told", symptom.words),), confirm=symptom.ask)


@check("driver.wsl-gpu-blocked", Severity.WARN, layer="driver")
def wsl_gpu_blocked(symptoms: Symptoms) -> Iterator[Finding]:
    """WSL is not given the GPU by Windows.

    Why: WSL 2 has no driver of its own: Windows shares the GPU with it through the WDDM driver model. A card in TCC
        mode is not shared, and a Windows build or a driver that is too old does not share at all. nvidia-smi works in
        Windows all the while, and says "GPU access blocked by the operating system" in WSL.
    Fix: in Windows, as administrator: nvidia-smi -dm 0 switches the card to WDDM where card and licence allow it;
        update Windows and its driver; then wsl --shutdown. Do not put a Linux driver into WSL. Data-center cards that
        know TCC only want Linux on the machine itself.
    Source: https://docs.nvidia.com/cuda/wsl-user-guide/; https://github.com/microsoft/WSL/issues/11865
    """
    yield from _told(symptoms, "driver.wsl-gpu-blocked")


@check("driver.windows-installer-error", Severity.WARN, layer="driver")
def windows_installer_error(symptoms: Symptoms) -> Iterator[Finding]:
    """The driver's installer for Windows stops with an error.

    Why: 0xe6000000 is what it says when rests of the old driver, a security program or a display that is in use keep it
        from replacing files.
    Fix: remove the old driver completely (in safe mode), pull the network so that Windows Update installs none, install
        the package that you downloaded before, reboot, and compare the version that nvidia-smi shows.
    Source: https://nvidia.custhelp.com/app/answers/detail/a_id/2900
    """
    yield from _told(symptoms, "driver.windows-installer-error")


@check("driver.windows-shader-cache", Severity.INFO, layer="driver")
def windows_shader_cache(symptoms: Symptoms) -> Iterator[Finding]:
    r"""The shader cache of a Windows user is blamed.

    Why: AppData\\Local\\NVIDIA\\DXCache keeps compiled shaders of DirectX programs. A broken file in it makes a control
        panel or a game slow; CUDA does not use it.
    Fix: as an emergency clean-up close the programs, empty the directory and start them again. It is no cure: when it
        comes back, look at the driver's version.
    Source: https://nvidia.custhelp.com/app/answers/detail/a_id/5735
    """
    yield from _told(symptoms, "driver.windows-shader-cache")


@check("driver.windows-d3d11-warning", Severity.INFO, layer="driver")
def windows_d3d11_warning(symptoms: Symptoms) -> Iterator[Finding]:
    """A Windows program warns of known issues of this driver in D3D11.

    Why: the program keeps a list of driver versions that it had trouble with. It says nothing about CUDA.
    Fix: look on the vendor's page which version is recommended and take that stable one, not the newest.
    Source: https://www.nvidia.com/en-us/drivers/
    """
    yield from _told(symptoms, "driver.windows-d3d11-warning")


@check("driver.vgpu-unlicensed", Severity.WARN, layer="driver")
def vgpu_unlicensed(symptoms: Symptoms) -> Iterator[Finding]:
    """A virtual GPU has no licence.

    Why: without one a vGPU is slowed down after some minutes, and some kinds refuse CUDA altogether.
    Fix: give nvidia-gridd its token (/etc/nvidia/ClientConfigToken) and a way to the licence server, then systemctl
        restart nvidia-gridd; nvidia-smi -q | grep -i license must say Licensed.
    Source: https://docs.nvidia.com/vgpu/latest/grid-licensing-user-guide/
    """
    yield from _told(symptoms, "driver.vgpu-unlicensed")


@check("driver.repository-key-missing", Severity.WARN, layer="driver")
def repository_key_missing(symptoms: Symptoms) -> Iterator[Finding]:
    """The package manager does not trust NVIDIA's repository.

    Why: NVIDIA changed the keys of its repositories, and a source that was set up before knows the old one. Nothing
        from it is installed or upgraded, so driver, Fabric Manager and libraries drift apart.
    Fix: install the keyring package of the repository (cuda-keyring on Debian and Ubuntu) and remove the old key and
        any second source of the same repository; rpm --import of the new key on RHEL.
    Source: https://developer.nvidia.com/blog/updating-the-cuda-linux-gpg-repository-key/
    """
    yield from _told(symptoms, "driver.repository-key-missing")


@check("driver.installer-held-up", Severity.WARN, layer="driver")
def installer_held_up(symptoms: Symptoms) -> Iterator[Finding]:
    """A driver that is in use, or belongs to packages, was not replaced.

    Why: NVIDIA's installer and modprobe do not replace a module that a graphical session, persistenced or an engine
        has in use, and the installer none that packages of the distribution put there.
    Fix: prefer the distribution's packages. Else stop what uses the GPUs (sudo systemctl isolate multi-user.target,
        nvidia-persistenced, containers), unload the module (rmmod nvidia_drm nvidia_modeset nvidia_uvm nvidia), or
        remove the packages first, and run it again.
    Source: https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/
    """
    yield from _told(symptoms, "driver.installer-held-up")
