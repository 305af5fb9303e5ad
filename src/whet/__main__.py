"""Run `python -m whet` as the command `whet`."""

from whet.cli.main import main

main()
