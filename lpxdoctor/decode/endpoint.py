"""A server's URL and key in, its address and the head of requests to it out."""

import ipaddress
import os
import socket
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from lpxdoctor import __version__
from lpxdoctor.decode.proxy import Proxy, proxy_for
from lpxdoctor.errors import MeasureError, UsageError

_PROBE_TIMEOUT_S = 3


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """Where an OpenAI-compatible server answers; prefix is the path before /v1, "" mostly.

    family and address are what is connected to: the proxy's where there is one.
    """

    scheme: str
    host: str
    port: int
    prefix: str
    family: socket.AddressFamily
    address: str
    api_key: str = field(default="", repr=False)
    proxy: Proxy | None = None

    @property
    def connects_to(self) -> tuple[str, int]:
        """Address and port of the other end of each connection."""
        return self.address, self.proxy.port if self.proxy else self.port

    @property
    def url(self) -> str:
        """The server's URL, without /v1."""
        return f"{self.scheme}://{self.netloc}{self.prefix}"

    @property
    def netloc(self) -> str:
        """Host and port as a URL and a Host header write them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether the server is reached without leaving this machine."""
        return self.proxy is None and ipaddress.ip_address(self.address.partition("%")[0]).is_loopback

    def request(self, method: str, path: str, body: bytes = b"") -> bytes:
        """Return a whole request."""
        passed_on = self.proxy if self.scheme == "http" else None  # a tunnel's proxy sees none of this
        target = f"{self.url if passed_on else self.prefix}{path}"
        lines = [
            f"{method} {target} HTTP/1.1",
            f"Host: {self.netloc}",
            f"User-Agent: lpxdoctor/{__version__}",
        ]
        if passed_on and passed_on.authorization:
            lines.append(f"Proxy-Authorization: {passed_on.authorization}")
        if self.api_key:
            lines.append(f"Authorization: Bearer {self.api_key}")
        if body:
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def endpoint(url: str, api_key: str = "") -> Endpoint:
    """Read a URL and look its host up, or the proxy's that the environment names for it.

    Raises:
        UsageError: it is no http or https URL, the key cannot stand in a header, or the proxy is of an unknown kind.
        MeasureError: its host, or the proxy's, has no address.
    """
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError as error:
        raise UsageError(f"{url} is no URL: {error}.") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"{url} is no URL of a server; write it like http://127.0.0.1:8000.")
    if parts.username or parts.password or parts.query or parts.fragment:
        shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"  # a password is not repeated
        raise UsageError(f"{shown}: only scheme, host, port and path are used; the API key comes from --api-key-file.")
    if not all(text.isascii() and text.isprintable() for text in (api_key, parts.path, parts.hostname)):
        raise UsageError("The API key and the URL must be printable ASCII on one line.")
    proxy = proxy_for(parts.scheme, parts.hostname, port, os.environ)
    family, address = _address(proxy.host, proxy.port) if proxy else _address(parts.hostname, port)
    return Endpoint(
        scheme=parts.scheme,
        host=parts.hostname,
        port=port,
        prefix=parts.path.rstrip("/").removesuffix("/v1"),
        family=family,
        address=address,
        api_key=api_key,
        proxy=proxy,
    )


def _address(host: str, port: int) -> tuple[socket.AddressFamily, str]:
    """Return the first address that accepts a connection, the first of all when none does."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise MeasureError(f"{host} has no address ({reason}); check the URL.") from None
    for family, _, _, _, address in found if len(found) > 1 else ():  # localhost is ::1 first, and few listen there
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.settimeout(_PROBE_TIMEOUT_S)
            if probe.connect_ex(address) == 0:
                return family, str(address[0])
    return found[0][0], str(found[0][4][0])
