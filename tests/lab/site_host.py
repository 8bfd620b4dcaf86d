"""A server that every playbook of site.yml changes: an image, with a driver whose build is short, out.

NVIDIA's own module takes minutes to compile; test_debian_13.py does that. Here DKMS is told to compile one of the
same name and version that does nothing (standins/short-build). Packages, headers and compiler are Debian's.
"""

from tests.lab.engine import LAB, build, docker

IMAGE = "lpxdoctor-lab/site-host:latest"
DOCKERFILE = """FROM {base}
RUN apt-get update -q && apt-get install -y -q --no-install-recommends dkms gcc linux-headers-amd64 && apt-get clean
COPY short-build /etc/dkms/
RUN echo 'MAKE[0]="sh /etc/dkms/short-build $kernelver"' > /etc/dkms/nvidia-current.conf
"""


def image() -> str:
    """Return the image's name."""
    base = build(LAB / "build", "gpu-host")
    context = LAB / "standins"
    dockerfile = DOCKERFILE.format(base=base).encode()
    docker("build", "--network", "host", "--tag", IMAGE, "--file", "-", context, stdin=dockerfile, timeout_s=900)
    return IMAGE
