"""Waiting: always with a bound, always saying what for."""

import time


class TooLong(AssertionError):
    """What was waited for did not come in time."""


def until(check, seconds, what, pause=0.02):
    """Calls `check` until it gives something true, and returns that; `TooLong` after `seconds`.

    For what has no event to wait on (a file in another mount namespace, a peer that does not
    answer yet). Errors of `check` count as "not yet", and the last is told.
    """
    deadline = time.monotonic() + seconds
    last = None
    while True:
        try:
            value = check()
            if value:
                return value
            last = value
        except Exception as error:  # noqa: BLE001  (whatever it is, it is told below)
            last = error
        if time.monotonic() > deadline:
            raise TooLong(f"not within {seconds} s: {what} (last: {last!r})")
        time.sleep(pause)


def never(check, seconds, what, pause=0.05):
    """Asserts that `check` stays false for `seconds`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = check()
        if value:
            raise AssertionError(f"happened, but must not: {what} ({value!r})")
        time.sleep(pause)
