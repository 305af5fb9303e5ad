"""What the client makes of addresses, tokens and texts that can't be sent, and of a wait that ends early."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import forked
from whet_confirm.client import BlockingClient
from whet_confirm.tickets import ConfirmationRefused, ConfirmOptions


def list_requests(folder: Path, **variables: str) -> forked.Done:
    return forked.run(("confirm", "list"), folder, environ={"WHET_HOME": str(folder), **variables})


@pytest.mark.parametrize(
    "address", ["127.0.0.1:6000", "localhost", "http//127.0.0.1:6000", "http:", "http://127.0.0.1:x"]
)
def test_an_address_without_its_scheme_host_or_port_is_named(tmp_path, address):
    done = list_requests(tmp_path, WHET_CONFIRM_URL=address)
    done.assert_error(f"{address} is not an address", "for example http://127.0.0.1:6000")
    with (
        pytest.raises(ConfirmationRefused, match="is not an address"),
        BlockingClient(address, "x") as client,
    ):
        client.confirm("deploy", "Deploy")


def test_a_token_that_was_copied_badly_is_named_and_a_line_end_after_it_does_no_harm(server, tmp_path):
    url, secret = server.url, server.token("approve", "ann")
    done = list_requests(tmp_path, WHET_CONFIRM_URL=f" {url}/\n", CONFIRMATION_TOKEN=f"{secret}\r\n")
    assert done.code == 0, done.err
    for copied in (f"{secret[:9]}\n{secret[9:]}", f"{secret}\u2026"):
        done = list_requests(tmp_path, WHET_CONFIRM_URL=url, CONFIRMATION_TOKEN=copied)
        done.assert_error("the token holds a character that can't be sent", "copy the token again")


def test_half_a_character_in_a_request_is_named(server):
    client = BlockingClient(server.url, server.token("submit", "agent"))
    with client, pytest.raises(ConfirmationRefused, match="its text holds half a character"):
        client.confirm("deploy", "Deploy \ud800")


def test_a_request_whose_wait_ended_early_is_refused_as_withdrawn(server):
    client = BlockingClient(server.url, server.token("submit", "agent"))
    words = "cancelled by agent: the caller stopped waiting"
    with client, pytest.raises(ConfirmationRefused, match=words) as refusal:
        client.confirm("deploy", "Deploy", ask=ConfirmOptions(timeout_s=-10))  # no time to wait
    assert refusal.value.status == "cancelled"
    assert server.stored(refusal.value.request_id).status == "cancelled"
