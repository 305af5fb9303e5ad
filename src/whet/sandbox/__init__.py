"""Run commands under a policy that the kernel enforces.

`policy` is a value, `engine` finds the best enforcement that this machine offers, `jail` runs commands.
This package doesn't interpret commands and doesn't decide who may open more.
"""
