"""Work at set times: when it is due, and running it while no person is there."""
