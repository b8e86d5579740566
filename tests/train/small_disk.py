# SPDX-License-Identifier: BSD-3-Clause
"""A file system that is too small, or turns read-only, and that nobody else sees."""
import contextlib
import pathlib
import subprocess
from collections.abc import Iterator

from trial_run import require


@contextlib.contextmanager
def small_disk(folder: pathlib.Path, kib: int) -> Iterator[subprocess.Popen[str]]:
    """A file system at `folder`, for those who enter the mount namespace of the process; it obeys lines of options."""
    folder.mkdir()
    script = ('mount -t tmpfs -o size="$2"k none "$1" && echo mounted && '
              'while read -r options; do mount -o "remount,$options" "$1"; echo "$options"; done')
    holder = subprocess.Popen(["unshare", "--mount", "sh", "-c", script, "sh", folder, str(kib)], text=True,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        require(holder.stdout.readline() == "mounted\n", "only root can mount a small disk")
        yield holder
    finally:
        holder.stdin.close()
        holder.wait()
        holder.stdout.close()


def remount(disk: subprocess.Popen[str], options: str) -> None:
    print(options, file=disk.stdin, flush=True)
    require(disk.stdout.readline() == options + "\n", f"cannot remount with {options}")
