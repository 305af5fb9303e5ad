"""The practice server, by the name that programs import. Its code is `whet_lab.practice`."""
