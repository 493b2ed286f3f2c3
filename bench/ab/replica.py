#!/usr/bin/env python3
"""Becomes a replica after a delay, as a machine that must first be had, and an image fetched: writes its start into
a journal, waits, then executes the rest of the command line in its own place.

  replica.py JOURNAL SEED SECONDS -- COMMAND...

The n-th start of a run waits as long in each arm: SECONDS and up to a fifth more or less, by SEED and n."""

import fcntl
import os
import random
import sys
import time


def main():
    journal, seed, seconds, _, *command = sys.argv[1:]
    with open(journal, "a+") as lines:
        fcntl.flock(lines, fcntl.LOCK_EX)
        lines.seek(0)
        number = len(lines.readlines())
        lines.write(f"{time.time()} {os.getpid()}\n")
    time.sleep(float(seconds) * random.Random(f"{seed} {number}").uniform(0.8, 1.2))
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
