"""What the operating system refused, in a line for people: cause and remedy."""

import errno

MEMORY_REMEDY = (
    "lower --cpu-memory, --max-num-batched-tokens or --max-model-len, or end what else runs here"
)
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_ELSEWHERE = "change its permissions, or name another"
_REMEDIES = {
    errno.ENOENT: "check the path",
    errno.ENOTDIR: "check the path",
    errno.EISDIR: "name a file in it",
    errno.EACCES: _ELSEWHERE,
    errno.EPERM: _ELSEWHERE,
    errno.EROFS: "name a place that can be written",
    errno.EIO: "check the disk (dmesg), or copy the file elsewhere",
    errno.ESTALE: "mount its file system again",
    errno.EMFILE: "raise the limit on open files (ulimit -n)",
    errno.ENFILE: "close files of other programs: the whole system has none left",
    errno.ENOMEM: MEMORY_REMEDY,
    errno.EAGAIN: "raise the limit on processes and threads (ulimit -u)",
    **dict.fromkeys(NO_ROOM, "free some space, or write elsewhere"),
}


def describe(error: OSError) -> str:
    """What failed, why, and what to do about it."""
    reason = error.strerror or str(error) or type(error).__name__
    what = "the system refused" if error.filename is None else f"cannot use {error.filename}"
    remedy = _REMEDIES.get(error.errno or 0, "mend that and try again")
    return f"{what}: {reason}; {remedy}"
