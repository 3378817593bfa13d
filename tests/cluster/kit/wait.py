"""Waiting: always with a bound, always saying what for."""

import contextlib
import time

from .follow import Following

# Between two looks there is so many times what a look took, so that those who wait leave the processors to those who
# work; but no longer than this, in seconds.
_TIMES = 3
_LONGEST = 0.5


class TooLong(AssertionError):
    """What was waited for did not come in time."""


def _rest(began, least):
    """Sleeps after a look that `began` then: `least` seconds, or longer after a look that costs much."""
    time.sleep(max(least, min(_TIMES * (time.monotonic() - began), _LONGEST)))


@contextlib.contextmanager
def _followed(check):
    """`check` with looks that follow what they look at."""
    following = Following()

    def look():
        with following.here():
            return check()

    try:
        yield look
    finally:
        following.end()


def until(check, seconds, what, pause=None):
    """Calls `check` until it gives something true, and returns that; `TooLong` after `seconds`.

    For what has no event to wait on (a file in another mount namespace, a peer that does not
    answer yet). Errors of `check` count as "not yet", and the last is named. With `pause` it looks that often, whatever a
    look costs: for what passes quickly, or is measured.
    """
    with _followed(check) as look:
        return _until(look, seconds, what, pause)


def _until(look, seconds, what, pause):
    deadline = time.monotonic() + seconds
    last = None
    while True:
        began = time.monotonic()
        try:
            value = look()
            if value:
                return value
            last = value
        except Exception as error:  # noqa: BLE001  (whatever it is, it is named below)
            last = error
        if time.monotonic() > deadline:
            raise TooLong(f"not within {seconds} s: {what} (last: {last!r})")
        if pause is None:
            _rest(began, 0.02)
        else:
            time.sleep(pause)


def never(check, seconds, what, pause=None):
    """Asserts that `check` stays false for `seconds`; `pause` as for `until`."""
    with _followed(check) as look:
        _never(look, seconds, what, pause)


def _never(look, seconds, what, pause):
    deadline = time.monotonic() + seconds
    while True:
        began = time.monotonic()
        if began >= deadline:
            return
        value = look()
        if value:
            raise AssertionError(f"happened, but must not: {what} ({value!r})")
        if pause is None:
            _rest(began, 0.05)
        else:
            time.sleep(pause)
