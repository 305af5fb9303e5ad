"""How a request reaches people, and how a press of a button comes back as a decision."""
