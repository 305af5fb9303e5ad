"""Create TLS contexts that trust the certificates of SSL_CERT_FILE and SSL_CERT_DIR, or else the system's.

Those of REQUESTS_CA_BUNDLE and CURL_CA_BUNDLE, by which companies add their own authority, are trusted, too.
"""

from __future__ import annotations

import os
import ssl
import sys

from whet.contract.errors import ConfigError

# System paths that Python's own build does not know.
_FILES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
_BUNDLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR", *_BUNDLES)


def context_for_url(url: str) -> ssl.SSLContext:
    """Return the TLS context for a URL. If the URL is not https, no certificates are loaded, which would take
    time. Raises ConfigError if certificates can't be read."""
    is_https = url.lower().startswith("https:")
    return create_trusted_context() if is_https else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def create_trusted_context() -> ssl.SSLContext:
    """Return a context that checks names and certificates. Raises ConfigError if they can't be read."""
    try:
        return _load_context()
    except OSError as error:
        raise ConfigError(
            f"the certificates can't be read: {error}",
            hint=f"check {', '.join(name for name in _VARIABLES if os.environ.get(name)) or 'SSL_CERT_FILE'}",
        ) from error


def _load_context() -> ssl.SSLContext:
    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    if file or folder:
        context = ssl.create_default_context(cafile=file or None, capath=folder or None)
    else:
        context = _system_context()
    for path in {os.environ.get(name, "") for name in _BUNDLES} - {file, folder}:
        if os.path.isdir(path):
            context.load_verify_locations(capath=path)
        elif os.path.exists(path):  # they are other programs' variables: a wrong path is not an error here
            context.load_verify_locations(path)
    return context


def _system_context() -> ssl.SSLContext:
    if sys.platform in ("darwin", "win32"):
        from truststore import SSLContext  # noqa: PLC0415 the system's own store, there only

        return SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    paths = ssl.get_default_verify_paths()
    candidates = (paths.openssl_cafile, *_FILES)
    file = next((name for name in candidates if name and os.path.isfile(name)), None)
    folder = paths.openssl_capath if os.path.isdir(paths.openssl_capath or "") else None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # without any certificate it refuses every server
    if file or folder:
        context.load_verify_locations(file, folder)
    return context
