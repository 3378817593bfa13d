"""Following: what is looked at again and again is kept up to date by a watch, and not asked for each time.

Owns the watches of whoever waits (`wait.until`, `wait.never`) or checks beside a story (`truth`). What is asked for once is
a request; from the second look on it is what the watch has delivered, until the watch breaks. Outside of it each look is a request.
"""

import contextlib
import http.client
import json
import socket
import threading

# So long one watch lasts, in seconds; then the next look is a request again.
_LASTS = 600
_BROKEN = (OSError, ValueError, http.client.HTTPException)
_here = threading.local()


def current():
    """The following that this thread's looks belong to, None outside of one."""
    return getattr(_here, "following", None)


class Following:
    """`with following.here():` makes the looks of this thread its own; `end` ends its watches. Threads may share it."""

    def __init__(self):
        self._kinds = {}
        self._turn = threading.Lock()

    @contextlib.contextmanager
    def here(self):
        """The looks of this thread are this one's."""
        outer, _here.following = current(), self
        try:
            yield
        finally:
            _here.following = outer

    def look(self, ask, api, *what):
        """The objects that `ask` gives; `what` is what a watch of the same is asked for: kind, namespace, labels, fields."""
        with self._turn:
            return self._kinds.setdefault((api, *what), _Kind(api, what)).look(ask)

    def end(self):
        """Ends the watches."""
        for kind in self._kinds.values():
            kind.end()
        self._kinds.clear()


class _Kind:
    """The objects of one kind that one selection has."""

    def __init__(self, api, what):
        self._api, self._what = api, what
        self._lock = threading.Lock()
        self._looks, self._objects, self._connection = 0, None, None
        self._is_refused = False

    def look(self, ask):
        """What the watch has delivered, while there is one; else what `ask` gives."""
        with self._lock:
            if self._objects is not None:
                return list(self._objects.values())
        self._looks += 1
        if self._looks == 1 or self._is_refused:
            return ask()
        try:
            listed = self._api.listed(*self._what)
            self._connection, answer = self._api.open_watch(*self._what, seconds=_LASTS, since=listed["metadata"]["resourceVersion"])
        except AssertionError:
            # Who may get one by name may not list all.
            self._is_refused = True
            return ask()
        self._objects = {item["metadata"]["uid"]: item for item in listed["items"]}
        threading.Thread(target=self._follow, args=(self._connection, answer), daemon=True).start()
        return listed["items"]

    def _follow(self, connection, answer):
        with contextlib.suppress(*_BROKEN), contextlib.closing(connection):
            while line := answer.readline():
                event = json.loads(line)
                if event["type"] == "ERROR":
                    break
                self._take(event["type"], event["object"])
        with self._lock:
            self._objects = None

    def _take(self, event, item):
        with self._lock:
            if event == "DELETED":
                self._objects.pop(item["metadata"]["uid"], None)
            else:
                self._objects[item["metadata"]["uid"]] = item

    def end(self):
        """Ends the watch, if there is one."""
        sock = self._connection and self._connection.sock
        if sock:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
