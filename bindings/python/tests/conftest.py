"""Certificates for the tests."""

import asyncio
import ssl
import subprocess

import pytest

import tautline.tls


def openssl(*arguments):
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory):
    """An authority, and a certificate of it for localhost."""
    path = tmp_path_factory.mktemp("certificates")
    new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    ca, ca_key, key = (str(path / name) for name in ("ca.pem", "ca-key.pem", "key.pem"))
    openssl("req", "-x509", *new, "-keyout", ca_key, "-out", ca, "-days", "30", "-subj", "/CN=tests")
    openssl("req", *new, "-keyout", key, "-out", str(path / "request"), "-subj", "/CN=localhost")
    extensions = path / "extensions"
    extensions.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\nbasicConstraints=CA:FALSE\n")
    sign = ["x509", "-req", "-in", str(path / "request"), "-CA", ca, "-CAkey", ca_key, "-CAcreateserial"]
    openssl(*sign, "-days", "30", "-extfile", str(extensions), "-out", str(path / "cert.pem"))
    return path


@pytest.fixture(scope="session")
def server_tls(certificates):
    context = tautline.tls.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "cert.pem", certificates / "key.pem")
    return context


@pytest.fixture(scope="session")
def client_tls(certificates):
    return tautline.tls.create_default_context(cafile=certificates / "ca.pem")


@pytest.fixture
def run():
    """Runs a coroutine in an event loop of its own, for at most a minute."""

    def run(work):
        async def bounded():
            return await asyncio.wait_for(work, 60)

        return asyncio.run(bounded())

    return run


async def echo(ws):
    async for message in ws:
        await ws.send(message)


def uri(server, scheme="ws"):
    return f"{scheme}://localhost:{server.sockets[0].getsockname()[1]}/"
