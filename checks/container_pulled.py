"""What people tell of a pull that failed in; what keeps an image from this host, as advice, out."""

from collections.abc import Iterator

from lpxdoctor.check import Finding, Seen, Severity, check
from lpxdoctor.facts.symptoms import Symptoms


@check("container.image-not-pulled", Severity.WARN, layer="deployment")
def image_not_pulled(symptoms: Symptoms) -> Iterator[Finding]:
    """An image cannot be pulled.

    Why: the registry cannot be reached from this host, wants a log-in, has a limit of pulls, or does not have this tag.
        An image of a dozen gigabytes also runs into time-outs of proxies.
    Fix: name the digest or tag as the registry shows it; docker login; give dockerd the proxy (systemctl edit docker,
        Environment=HTTPS_PROXY=...), a mirror (registry-mirrors in daemon.json), or bring the image by docker save and
        docker load.
    Source: https://docs.docker.com/docker-hub/usage/; https://docs.docker.com/engine/daemon/proxy/
    """
    for symptom in symptoms.of("container.image-not-pulled"):
        yield Finding(symptom.meaning, seen=(Seen("told", symptom.words),), confirm=symptom.ask)
