"""The certificates that servers are checked against, as the environment names them."""

from __future__ import annotations

from pathlib import Path

import pytest

from whet.contract.errors import ConfigError
from whet.trust import create_trusted_context

AUTHORITY = Path(__file__).with_name("authority.pem")
SYSTEMS_FILE = Path("/etc/ssl/certs/ca-certificates.crt")
VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


@pytest.fixture(autouse=True)
def empty_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("name", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_a_company_s_own_authority_is_trusted_by_each_variable(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = create_trusted_context().get_ca_certs()
    monkeypatch.setenv(name, str(AUTHORITY))
    (own,) = [entry for entry in create_trusted_context().get_ca_certs() if entry not in before]
    assert own["subject"]


def test_the_bundles_of_other_programs_are_added_to_a_named_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not SYSTEMS_FILE.is_file():
        pytest.skip("this machine's certificates are elsewhere")
    monkeypatch.setenv("SSL_CERT_FILE", str(SYSTEMS_FILE))
    count = create_trusted_context().cert_store_stats()["x509_ca"]
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(AUTHORITY))
    assert create_trusted_context().cert_store_stats()["x509_ca"] == count + 1


def test_a_bundle_that_is_missing_changes_nothing_and_one_without_certificates_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = create_trusted_context().get_ca_certs()
    monkeypatch.setenv("CURL_CA_BUNDLE", str(tmp_path / "missing.pem"))
    assert create_trusted_context().get_ca_certs() == before
    monkeypatch.setenv("CURL_CA_BUNDLE", str(tmp_path / "wrong.pem"))
    (tmp_path / "wrong.pem").write_text("no certificate\n")
    with pytest.raises(ConfigError) as caught:
        create_trusted_context()
    assert "CURL_CA_BUNDLE" in caught.value.hint
