"""The container recipe starts the service with options that there are, as a user without rights."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click
import yaml

from whet_confirm.commands.confirm import serve

FOLDER = Path(__file__).parents[2] / "deploy" / "confirm"


def test_the_recipe_starts_the_service_as_a_user_of_its_own():
    text = (FOLDER / "Containerfile").read_text()
    entry = json.loads(re.search(r"^ENTRYPOINT (\[.*\])$", text, re.MULTILINE)[1])  # type: ignore[index]
    assert entry[:3] == ["whet", "confirm", "serve"]
    with click.Context(serve) as context:
        serve.parse_args(context, entry[3:])
    assert context.params["no_first_tokens"] and context.params["host"] == "0.0.0.0"
    # What runs after the user was made runs as that user, and writes to the volume only.
    assert re.search(r"^USER whet-confirm$", text, re.MULTILINE) and "USER root" not in text
    home = re.search(r"^ENV WHET_HOME=(\S+)$", text, re.MULTILINE)
    assert home is not None and f"VOLUME {home[1]}\n" in text


def test_the_service_in_the_container_has_no_rights_and_listens_on_this_machine():
    service = yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]["confirm"]
    assert service["read_only"] and service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert (FOLDER / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
