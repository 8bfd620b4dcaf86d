"""A server's address and the environment in, the proxy on the way to it out; and how a tunnel through it is opened."""

import base64
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from lpxdoctor.decode.http import ProtocolError, Response
from lpxdoctor.errors import UsageError


@dataclass(frozen=True)
class Proxy:
    """An HTTP proxy; authorization is the value of its header, "" for none."""

    host: str
    port: int
    authorization: str = field(default="", repr=False)

    @property
    def netloc(self) -> str:
        """Host and port as they are written."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def proxy_for(scheme: str, host: str, port: int, environment: Mapping[str, str]) -> Proxy | None:
    """Return the proxy that HTTPS_PROXY, HTTP_PROXY or ALL_PROXY names for a server, None for the direct way.

    Loopback is always reached directly, and what NO_PROXY names.

    Raises:
        UsageError: it is no HTTP proxy.
    """
    names = (f"{scheme}_proxy", f"{scheme.upper()}_PROXY", "all_proxy", "ALL_PROXY")
    name = next((name for name in names if environment.get(name)), None)
    if name is None or _is_loopback(host) or _is_exempt(host, port, environment):
        return None
    value = environment[name].strip()
    try:
        parts = urlsplit(value if "://" in value else f"http://{value}")
        found = Proxy(parts.hostname or "", parts.port or 80, _authorization(parts.username, parts.password))
    except ValueError as error:
        raise UsageError(f"{name} is no address of a proxy: {error}.") from None
    if parts.scheme != "http" or not found.host:
        raise UsageError(
            f"{name} names a proxy of another kind than http://HOST:PORT, which is not used here.\n"
            f"Measure without it: NO_PROXY={host}"
        )
    return found


def _authorization(user: str | None, password: str | None) -> str:
    if user is None:
        return ""
    return "Basic " + base64.b64encode(f"{unquote(user)}:{unquote(password or '')}".encode()).decode()


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _is_exempt(host: str, port: int, environment: Mapping[str, str]) -> bool:
    listed = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
    return any(_covers(entry.strip().lower(), host, port) for entry in listed.split(",") if entry.strip())


def _covers(entry: str, host: str, port: int) -> bool:
    """Tell whether an entry of NO_PROXY means a host: *, a domain with all below it, an address or a network."""
    if entry == "*":
        return True
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False)
    except (ValueError, TypeError):
        pass
    name, colon, only = entry.rpartition(":")
    if colon and only.isdigit():
        return int(only) == port and _covers(name, host, port)
    domain = entry.removeprefix("*").lstrip(".")
    return host == domain or host.endswith(f".{domain}")


class Tunnel:
    """The opening of a tunnel through a proxy: what to send, and when its answer is complete."""

    def __init__(self, proxy: Proxy, netloc: str) -> None:
        self.began = self.is_open = False
        self._proxy, self._netloc = proxy, netloc
        self._response = Response(has_body=False)

    def request(self) -> bytes:
        """Return what asks for it."""
        self.began = True
        lines = [f"CONNECT {self._netloc} HTTP/1.1", f"Host: {self._netloc}"]
        if self._proxy.authorization:
            lines.append(f"Proxy-Authorization: {self._proxy.authorization}")
        return "\r\n".join(lines).encode() + b"\r\n\r\n"

    def take(self, content: bytes) -> None:
        """Take a piece of the proxy's answer, b"" at the connection's end; is_open is true once it is complete.

        Raises:
            OSError: the proxy refuses.
        """
        where = f"the proxy {self._proxy.netloc}"
        if not content:
            raise ConnectionResetError(f"{where} ended the connection")
        try:
            self._response.feed(content)
        except ProtocolError as error:
            raise ConnectionError(f"{where} does not answer as one: {error}") from None
        status = self._response.status
        if status == 407:
            raise PermissionError(f"{where} asks for a user and a password (HTTP 407): write http://USER:PASSWORD@…")
        if status and not 200 <= status < 300:
            raise ConnectionRefusedError(f"{where} does not connect to {self._netloc} (HTTP {status})")
        self.is_open = bool(status)
