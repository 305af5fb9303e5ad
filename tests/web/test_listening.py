"""An address that can't be had is said in words."""

from __future__ import annotations

import pytest

from whet.contract.errors import ConfigError
from whet.web.listening import listen


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 99_999), ("no..such", 0), ("999.1.1.1", 0)])
def test_an_address_that_is_none_is_refused(host: str, port: int) -> None:
    with pytest.raises(ConfigError, match="can't listen"):
        listen(host, port)
