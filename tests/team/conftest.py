from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.team.cluster import NO_SERVER, Cluster, shared
from whet.store.team import TeamDatabase


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a server where its programs are missing."""
    for item in items:
        if NO_SERVER and "tests/team/" in item.path.as_posix():
            item.add_marker(pytest.mark.skip(reason=NO_SERVER))


@pytest.fixture
def cluster() -> Cluster:
    return shared()


@pytest.fixture
def url(cluster: Cluster) -> Iterator[str]:
    """The address of a team's database of this test's own."""
    text = cluster.database()
    yield text
    cluster.drop(text)


@pytest.fixture
def db(url: str) -> Iterator[TeamDatabase]:
    """A team's database of this test's own, open."""
    with closing(TeamDatabase.open_url(url)) as database:
        yield database
