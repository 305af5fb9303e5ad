"""The platforms' own protocols: calls, sockets, polling, signatures, refusals. Knows no product."""
