"""The dashboard: what the agent did, learned and cost, as pages made on the server."""
