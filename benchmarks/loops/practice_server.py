"""The practice server alone in a process; prints its base URL and serves until it is stopped."""

import signal

from whet_lab.practice.server import PracticeServer

if __name__ == "__main__":
    with PracticeServer() as server:
        print(server.base_url, flush=True)
        signal.sigwait({signal.SIGTERM, signal.SIGINT})
