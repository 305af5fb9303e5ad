"""Which addresses lead to nobody's own network."""

from __future__ import annotations

from tests.support import each
from whet.internet import is_other_machine, is_public

PUBLIC = "8.8.8.8 2606:4700::1111 ::ffff:8.8.8.8 64:ff9b::808:808"
NOT_PUBLIC = """
10.0.0.1 172.31.0.1 192.168.1.1 100.100.100.200 0.0.0.0 169.254.169.254 192.0.0.192 198.18.0.1 224.0.0.1
240.0.0.1 255.255.255.255 168.63.129.16 ::ffff:168.63.129.16 64:ff9b::a83f:8110 :: ::1 fe80::1 fe80::1%eth0
fc00::1 fd00:ec2::254 ff02::1 2001:db8::1 2002:7f00:1:: 2001:0:1::1 fec0::1 ::127.0.0.1 ::ffff:10.0.0.1
64:ff9b::a00:1 64:ff9b:1::1 203.0.113.9 192.88.99.1 5f00::1 3fff::1 nonsense
"""
OTHER_MACHINES = "8.8.8.8 10.0.0.1 192.168.1.1 203.0.113.7 fc00::1"
NO_OTHER_MACHINES = """
127.0.0.1 127.8.8.8 ::1 ::ffff:127.0.0.1 0.0.0.0 :: 169.254.169.254 fe80::1 224.0.0.1 240.0.0.1 0.1.2.3
168.63.129.16 100.100.100.200 192.0.0.192 fd00:ec2::254 64:ff9b::7f00:1 64:ff9b::a9fe:a9fe nonsense
"""


@each(("addresses", "expected"), [(PUBLIC, True), (NOT_PUBLIC, False)])
def test_which_addresses_are_public(addresses: str, expected: bool) -> None:
    assert [address for address in addresses.split() if is_public(address) is not expected] == []


@each(("addresses", "expected"), [(OTHER_MACHINES, True), (NO_OTHER_MACHINES, False)])
def test_another_machine_is_neither_this_one_nor_where_clouds_keep_credentials(
    addresses: str, expected: bool
) -> None:
    assert [address for address in addresses.split() if is_other_machine(address) is not expected] == []
    assert not is_other_machine("")
