"""A certificate authority for tests, which signs for any host."""

from __future__ import annotations

import datetime
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

_PEM = serialization.Encoding.PEM
_SIGNS = x509.KeyUsage(
    key_cert_sign=True,
    crl_sign=True,
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


class CertificateAuthority:
    """Signs certificates.

    Args:
        folder: The folder of its files.

    Attributes:
        file: The file of its own certificate, for clients to trust.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("an authority of the tests")
        is_authority = x509.BasicConstraints(ca=True, path_length=0)
        own = _certificate(self._name, self._name, self._key.public_key())
        signed = (
            own.add_extension(is_authority, critical=True)
            .add_extension(_SIGNS, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.file = folder / "authority.pem"
        self.file.write_bytes(signed.public_bytes(_PEM))

    def server(self, host: str) -> ssl.SSLContext:
        """Return the TLS context of a server for `host`, with a new certificate."""
        key = ec.generate_private_key(ec.SECP256R1())
        alternative = x509.SubjectAlternativeName([x509.DNSName(host)])
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        signed = (
            _certificate(_name(host), self._name, key.public_key())
            .add_extension(alternative, critical=False)
            .add_extension(issuer, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        private = key.private_bytes(
            _PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        path = self._folder / f"{host}.pem"
        path.write_bytes(private + signed.public_bytes(_PEM))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        return context


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    day = datetime.timedelta(days=1)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - day)
        .not_valid_after(now + day)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )
