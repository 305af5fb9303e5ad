"""Web Push: notifications on the devices of people who decide, with an acknowledgement of each."""
