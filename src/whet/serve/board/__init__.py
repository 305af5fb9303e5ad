"""The dashboard: the agent's activity, lessons and costs, as pages rendered on the server."""
