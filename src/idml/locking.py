"""Locks on open files, so that two processes do not write to one; where a system has none, nothing holds them apart."""


def lock(file: int, *, wait: bool) -> bool:
    """Hold this open file until it is closed; False if another process holds it, and there is no waiting."""
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):  # not on this system, or not on this file system
        return True
    return True
