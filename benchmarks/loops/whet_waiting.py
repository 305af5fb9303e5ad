"""Hold many sessions in one process, all waiting on a slow model at once; print memory and who finished.

Run as: python whet_waiting.py BASE_URL SESSIONS
"""

import asyncio
import json
import resource
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.loops.peak import peak_mb
from whet.agent.loop import run_turn
from whet.app.build import App
from whet.config.paths import Home
from whet.config.schema import ModelSettings, Settings
from whet.contract.events import Event
from whet.contract.protocols import NobodyPresent


async def main(base_url: str, count: int, folder: Path) -> None:
    settings = Settings(model=ModelSettings(provider="practice", base_url=base_url, model="practice-echo"))
    app = await App.start(Home(folder / "home"), settings, {}, NobodyPresent(), folder)
    ended: list[float] = []
    began = time.perf_counter()

    def ignore(event: Event) -> None:
        pass

    async def one(number: int) -> bool:
        session = await app.new_session()
        end = await run_turn(session, session.user_message(f"hello {number}"), ignore)
        ended.append(time.perf_counter() - began)
        return end.reason == "answered"

    answered = await asyncio.gather(*(one(number) for number in range(count)))
    usage = resource.getrusage(resource.RUSAGE_SELF)
    print(
        json.dumps(
            {
                "sessions": count,
                "answered": sum(answered),
                "rss_mb": peak_mb(),
                "cpu_s": usage.ru_utime + usage.ru_stime,
                "first_s": min(ended),
                "last_s": max(ended),
            }
        )
    )
    await app.aclose()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(main(sys.argv[1], int(sys.argv[2]), Path(name)))
