"""A folder that hangs whoever looks into it, as a network file system does whose server is gone."""

import ctypes
import os


class HangingFolder:
    """Mounts a FUSE file system that never answers over `path`, which must exist."""

    def __init__(self, path):
        self.path = path
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._server = None

    def __enter__(self):
        self._server = os.open("/dev/fuse", os.O_RDWR)
        options = f"fd={self._server},rootmode=40000,user_id=0,group_id=0,allow_other"
        if self._libc.mount(b"hang", os.fsencode(self.path), b"fuse.hang", 0, options.encode()):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(self.path))
        return self

    def __exit__(self, *_):
        """Closing the server's end fails every request that hangs."""
        os.close(self._server)
        self._libc.umount2(os.fsencode(self.path), 2)
