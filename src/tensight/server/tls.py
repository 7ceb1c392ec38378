"""TLS for the HTTP API and for gRPC, from the same certificate, with or without client certificates."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

import grpc

from tensight.errors import InputError


@dataclass(frozen=True, slots=True)
class Tls:
    """The TLS credentials of a server, and its requirements for clients.

    Attributes
    ----------
    http : ssl.SSLContext
    grpc : grpc.ServerCredentials
    """

    http: ssl.SSLContext
    grpc: grpc.ServerCredentials


def load_tls(certificate: Path, key: Path, client_ca: Path | None) -> Tls:
    """Load certificate and key.

    Parameters
    ----------
    certificate : Path
        PEM: the server's certificate, then the chain to the authority.
    key : Path
        PEM, not encrypted.
    client_ca : Path, optional
        PEM: clients must present a certificate signed by one of these authorities.

    Raises
    ------
    InputError
        A file is missing, not PEM, encrypted, or the key is another certificate's; the message names option and file.
    """
    certificate_pem = _read("--tls-cert", certificate)
    key_pem = _read("--tls-key", key)
    authorities_pem = None if client_ca is None else _read("--tls-client-ca", client_ca)
    return Tls(
        http=_context(certificate, key, client_ca),
        grpc=grpc.ssl_server_credentials(
            [(key_pem, certificate_pem)],
            root_certificates=authorities_pem,
            require_client_auth=authorities_pem is not None,
        ),
    )


def _read(option: str, file: Path) -> bytes:
    try:
        content = file.read_bytes()
    except OSError as error:
        raise InputError(f"{option} {file}: {error.strerror}") from None
    if b"-----BEGIN " not in content:
        raise InputError(f"{option} {file}: not in PEM form (it has no line -----BEGIN …-----)")
    return content


def _context(certificate: Path, key: Path, client_ca: Path | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key, password=_refuse_to_ask)
    except ssl.SSLError as error:
        reason = (
            "they do not belong together" if error.reason == "KEY_VALUES_MISMATCH" else f"unusable ({error.reason})"
        )
        raise InputError(f"--tls-cert {certificate} and --tls-key {key}: {reason}") from None
    except _EncryptedKeyError:
        raise InputError(f"--tls-key {key}: the key is encrypted; give one that is not, readable only by you") from None
    if client_ca is not None:
        try:
            context.load_verify_locations(client_ca)
        except ssl.SSLError as error:
            raise InputError(f"--tls-client-ca {client_ca}: unusable ({error.reason})") from None
        context.verify_mode = ssl.CERT_REQUIRED
    return context


class _EncryptedKeyError(Exception):
    """OpenSSL would prompt for a password on the terminal."""


def _refuse_to_ask() -> str:
    raise _EncryptedKeyError
