"""The client of the confirmation service, by the name that programs import. Its code is `whet_confirm`."""
