"""An agent as a program: it asks, prints the request's id, and waits until it is killed."""

import http.client
import json
import sys
import time
from urllib.parse import urlsplit


def main(url: str, token: str, key: str) -> None:
    headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": key}
    body = {"action": "restart", "description": key, "details": {"version": "one"}, "timeout_seconds": 150}
    while True:
        try:
            connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=20)
            connection.request("POST", "/confirm", json.dumps(body), headers)
            answer = json.loads(connection.getresponse().read())
            print(answer["id"], flush=True)
            connection.request("GET", f"/confirm/{answer['id']}?wait=60&attended=1", headers=headers)
            connection.getresponse().read()
            return
        except (OSError, http.client.HTTPException, KeyError):
            time.sleep(0.05)  # the service may be down


main(*sys.argv[1:])
