"""A siege of the record: commands are killed, starved and given damaged files, and no run may be lost.

`make test-faults` runs 208 rounds; `python -m tests.faults --round 17` repeats one of them. `docs/faults.md` says what
is done to the commands and what must hold afterwards.
"""
