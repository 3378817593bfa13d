"""The faces of an API server that does not work: it refuses, swallows, is gone, or is silent.

Owns putting each on and taking it off again. A node that boots meanwhile must not notice the difference.
"""

import contextlib
import socket


@contextlib.contextmanager
def up(_cluster, _lan):
    """It works."""
    yield


@contextlib.contextmanager
def refusing(cluster, _lan):
    """Its port is closed."""
    cluster.stop("api")
    try:
        yield
    finally:
        cluster.start_api()


@contextlib.contextmanager
def swallowing(cluster, lan):
    """What is sent to its port is dropped."""
    lan.swallow(cluster.PORT)
    try:
        yield
    finally:
        lan.answer()


@contextlib.contextmanager
def gone(cluster, lan):
    """Its host does not exist: no host answers for its address."""
    cluster.stop("api")
    lan.leave()
    try:
        yield
    finally:
        lan.come_back()
        cluster.start_api()


@contextlib.contextmanager
def silent(cluster, _lan):
    """A load balancer with dead back ends stands for it: it takes connections and says nothing."""
    cluster.stop("api")
    try:
        with socket.create_server((cluster.address, cluster.PORT), backlog=1024):
            yield
    finally:
        cluster.start_api()


# What people say of it, and how it is put on.
ALL = {"up": up, "refusing": refusing, "swallowing packets": swallowing, "gone": gone, "silent after accepting": silent}
