"""Where commands run: what they may reach is decided by a policy and held by the kernel.

`policy` is a value, `engine` finds out what this machine can hold it with, `jail` runs commands in it. What a
command means, and who may open more, is not known here.
"""
