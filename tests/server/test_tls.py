"""TLS for HTTP and gRPC, with and without certificates of the clients; errors that say which file is wrong."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import NamedTuple

import grpc
import httpx
import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from tensight.errors import InputError
from tensight.server.tls import load_tls
from tensight.wire.debugger_pb2 import Metadata
from tests.server.calling import calling, refused
from tests.server.running import RunningServer, running_server

HELLO = Metadata(device_name=b"0:0", ms_version=b"2.0.0", graph_num=1).SerializeToString()


class Files(NamedTuple):
    authority: Path
    certificate: Path
    key: Path


class Trust:
    """An authority with a certificate for the server and one for a client, as files."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.authority = trustme.CA()
        self._folder = folder
        self.ca = folder / "ca.pem"
        self.authority.cert_pem.write_to_path(self.ca)
        self.server = self._issue("server", "127.0.0.1", "localhost")
        self.client = self._issue("client", "client.example")

    def _issue(self, name: str, *identities: str) -> Files:
        issued = self.authority.issue_cert(*identities)
        files = Files(self.ca, self._folder / f"{name}.pem", self._folder / f"{name}-key.pem")
        issued.cert_chain_pems[0].write_to_path(files.certificate)
        issued.private_key_pem.write_to_path(files.key)
        return files

    @property
    def options(self) -> list[str]:
        return [f"--tls-cert={self.server.certificate}", f"--tls-key={self.server.key}"]

    def context(self, client: Files | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.ca))
        if client is not None:
            context.load_cert_chain(client.certificate, client.key)
        return context

    def credentials(self, client: Files | None = None) -> grpc.ChannelCredentials:
        key = None if client is None else client.key.read_bytes()
        certificate = None if client is None else client.certificate.read_bytes()
        return grpc.ssl_channel_credentials(self.ca.read_bytes(), key, certificate)


@pytest.fixture(scope="module")
def trust(tmp_path_factory: pytest.TempPathFactory) -> Trust:
    return Trust(tmp_path_factory.mktemp("trust") / "ours")


def sessions(server: RunningServer, context: ssl.SSLContext) -> int:
    return httpx.get(f"{server.url}/api/v1/sessions", verify=context).status_code


def test_with_a_certificate_both_are_encrypted_and_nothing_else_is_answered(trust: Trust, tmp_path: Path) -> None:
    with running_server(tmp_path / "w", *trust.options) as server:
        assert server.debugger
        assert server.url.startswith("https://127.0.0.1:")
        assert sessions(server, trust.context()) == 200
        with calling(server.debugger, credentials=trust.credentials()) as caller:
            assert caller.one("SendMetadata", HELLO).version_matched
        with pytest.raises(httpx.ConnectError):
            sessions(server, ssl.create_default_context())
        with pytest.raises(httpx.HTTPError):
            httpx.get(server.url.replace("https", "http"))
        with calling(server.debugger) as caller:
            assert refused(caller.one, "SendMetadata", HELLO).code() == grpc.StatusCode.UNAVAILABLE


def test_old_versions_of_tls_are_refused(trust: Trust) -> None:
    tls = load_tls(trust.server.certificate, trust.server.key, None)
    assert tls.http.minimum_version == ssl.TLSVersion.TLSv1_2


def test_with_an_authority_clients_have_to_show_its_certificate(trust: Trust, tmp_path: Path) -> None:
    others = Trust(tmp_path / "others")
    with running_server(tmp_path / "w", *trust.options, f"--tls-client-ca={trust.ca}") as server:
        assert server.debugger
        assert sessions(server, trust.context(trust.client)) == 200
        with calling(server.debugger, credentials=trust.credentials(trust.client)) as caller:
            assert caller.one("SendMetadata", HELLO).version_matched
        for client in (None, others.client):
            with pytest.raises(httpx.TransportError):
                sessions(server, trust.context(client))
            with calling(server.debugger, credentials=trust.credentials(client)) as caller:
                assert refused(caller.one, "SendMetadata", HELLO).code() == grpc.StatusCode.UNAVAILABLE


def test_a_file_that_is_missing_or_something_else_is_named(trust: Trust, tmp_path: Path) -> None:
    certificate, key = trust.server.certificate, trust.server.key
    (tmp_path / "text").write_text("certificate")
    with pytest.raises(InputError, match=r"^--tls-cert /nowhere: No such file or directory$"):
        load_tls(Path("/nowhere"), key, None)
    with pytest.raises(InputError, match=r"^--tls-key .*/text: not in PEM form"):
        load_tls(certificate, tmp_path / "text", None)
    with pytest.raises(InputError, match=r"^--tls-client-ca .*/text: not in PEM form"):
        load_tls(certificate, key, tmp_path / "text")


def test_what_does_not_belong_together_or_is_damaged_is_refused(trust: Trust, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.pem"
    damaged.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    with pytest.raises(InputError, match="they do not belong together"):
        load_tls(trust.server.certificate, trust.client.key, None)
    with pytest.raises(InputError, match="unusable"):
        load_tls(damaged, trust.server.key, None)
    with pytest.raises(InputError, match=r"^--tls-client-ca .*damaged.pem: unusable"):
        load_tls(trust.server.certificate, trust.server.key, damaged)


def test_an_encrypted_key_is_refused_and_not_asked_for(trust: Trust, tmp_path: Path) -> None:
    key = load_pem_private_key(trust.server.key.read_bytes(), None)
    encrypted = tmp_path / "encrypted.pem"
    encrypted.write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, BestAvailableEncryption(b"secret"))
    )
    with pytest.raises(InputError, match=r"^--tls-key .*: the key is encrypted; give one that is not"):
        load_tls(trust.server.certificate, encrypted, None)
