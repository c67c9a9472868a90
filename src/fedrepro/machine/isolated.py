"""A process without network, which sees the folders that it needs and no others: for the code of
strangers.

On Linux the kernel gives that to anybody where it is not switched off: namespaces, which bubblewrap
sets up, or else programs of util-linux. What they do not keep a process from is using the processor
and memory, for which there are limits, and lying in what it writes.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from fedrepro.core import sources
from fedrepro.core.errors import printable
from fedrepro.core.temporary import temporary_folder

BUBBLEWRAP, UNSHARE = "bubblewrap", "unshare"
PROGRAMS = {
    BUBBLEWRAP: ("bwrap",),
    UNSHARE: ("unshare", "setpriv", "pivot_root", "mount", "umount"),
}
SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/etc/ld.so.cache", "/etc/alternatives")
PACKAGES = "-packages"  # ends the names of folders in which packages are installed
PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
SAID = "fedrepro: "  # begins the sentences of commands
LARGEST_FILE = 2**31  # bytes
MEMORY = 2**35  # bytes of addresses, of which torch alone names some
TRIED = 60  # seconds that an attempt to isolate nothing may take


def isolation() -> str:
    """What isolates processes here: bubblewrap or unshare; empty where neither can."""
    return next(filter(can, PROGRAMS), "")


@cache
def can(by: str) -> bool:
    """Whether this isolates a process here."""
    installed = all(shutil.which(program, path=PATH) for program in PROGRAMS[by])
    if not installed or sys.platform != "linux":
        return False
    with temporary_folder() as folder:
        nothing = [sys.executable, "-I", "-c", "pass"]
        try:
            return run(nothing, by=by, folder=folder, seconds=TRIED).returncode == 0
        except (OSError, subprocess.TimeoutExpired):
            return False


def run(
    command: Sequence[str],
    *,
    by: str,
    folder: Path,
    seconds: int,
    read: Iterable[Path] = (),
    write: Iterable[Path] = (),
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command in `folder`, which it may read as all of `read`, and end it after a time.

    by: what isolates it; empty for nothing but limits. write: folders that it may write into; what
    it writes elsewhere is gone with it, where it is isolated. env: variables that it has beside a
    PATH, a HOME and what makes libraries use one thread. Errors: subprocess.TimeoutExpired.
    """
    shown = [*map(Path, SYSTEM), *_of_python(), folder, *read]
    package = os.path.dirname(sources.PACKAGE)
    variables = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "MKL", "OPENBLAS")}
    # a file of the folder must not stand in for a package of its name
    variables |= {"PATH": PATH, "HOME": "/tmp", "LC_ALL": "C.UTF-8", "PYTHONSAFEPATH": "1"}
    variables |= {} if package.endswith(PACKAGES) else {"PYTHONPATH": package}
    with temporary_folder() as root:
        whole = list(command)
        if by == BUBBLEWRAP:
            whole = _by_bubblewrap(whole, shown, list(write), folder)
        elif by:
            whole = _by_unshare(whole, shown, list(write), folder, str(root))
        return subprocess.run(
            whole,
            cwd=folder,
            env={**variables, **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=seconds,
            check=False,
            start_new_session=True,
            preexec_fn=lambda: _limit(seconds),
        )


def last_words(ended: subprocess.CompletedProcess[str]) -> str:
    """Why a command of fedrepro failed, in its own sentence, or the last line that it wrote."""
    lines = [line.strip() for line in ended.stderr.splitlines() if line.strip()]
    sentences = [line.removeprefix(SAID) for line in lines if line.startswith(SAID)]
    return printable((sentences or lines or [f"exit status {ended.returncode}"])[-1])[:400]


def _limit(seconds: int) -> None:
    """Of processor time, addresses and files, for a process and those that it starts."""
    limits = {
        # for what outlives its parent: it must not come before the time by the clock, which is told
        resource.RLIMIT_CPU: 2 * seconds + 1,
        resource.RLIMIT_AS: MEMORY,
        resource.RLIMIT_FSIZE: LARGEST_FILE,
        resource.RLIMIT_CORE: 0,
    }
    for kind, most in limits.items():
        hard = resource.getrlimit(kind)[1]
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (least, least))


def _of_python() -> list[Path]:
    """Where this Python, its packages and fedrepro lie."""
    installed = [place for place in sys.path if place.endswith(PACKAGES)]
    places = [sys.prefix, sys.base_prefix, *installed, os.path.dirname(sources.PACKAGE)]
    return [Path(place) for place in dict.fromkeys(places)]


def _there(paths: Iterable[Path]) -> list[str]:
    """Those that exist, each once, those that others lie in first."""
    return sorted({os.path.abspath(path) for path in paths if path.exists()})


def _by_bubblewrap(
    command: list[str], read: list[Path], write: list[Path], folder: Path
) -> list[str]:
    prefix = ["bwrap", "--unshare-all", "--unshare-user", "--disable-userns", "--cap-drop", "ALL"]
    prefix += ["--die-with-parent", "--new-session"]
    prefix += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
    for place in _there(read):
        prefix += ["--ro-bind", place, place]
    for place in _there(write):
        prefix += ["--bind", place, place]
    return [*prefix, "--chdir", str(folder), "--", *command]


# In namespaces of its own: a new root on which nothing lies but what is named (a letter, r or w,
# and a path), then the command, without any of the rights that it took to come there.
SCRIPT = """
root=$1; folder=$2; shift 2
mount -t tmpfs -o size=1g,mode=755 none "$root"
while [ "$1" != -- ]; do
  mkdir -p "$root$2"
  [ -d "$2" ] || { rmdir "$root$2"; touch "$root$2"; }
  mount --rbind "$2" "$root$2"
  [ "$1" = w ] || mount -o remount,bind,ro,nosuid,nodev "$root$2"
  shift 2
done
shift
mkdir -p "$root/proc" "$root/dev" "$root/tmp" "$root/.old"
mount -t proc none "$root/proc"
echo 0 > "$root/proc/sys/user/max_user_namespaces"
for one in null zero random urandom; do
  touch "$root/dev/$one"
  mount --bind "/dev/$one" "$root/dev/$one"
done
cd "$root"
pivot_root . .old
umount -l /.old
cd "$folder"
exec setpriv --no-new-privs --bounding-set=-all --inh-caps=-all "$@"
"""


def _by_unshare(
    command: list[str], read: list[Path], write: list[Path], folder: Path, root: str
) -> list[str]:
    """The same by a shell. root: an empty folder, on which that of its mounts begins."""
    prefix = ["unshare", "--user", "--map-root-user", "--net", "--mount", "--pid", "--ipc", "--uts"]
    prefix += ["--fork", "--kill-child", "sh", "-ec", SCRIPT, "sh", root, str(folder)]
    for letter, places in (("r", read), ("w", write)):
        for place in _there(places):
            prefix += [letter, place]
    return [*prefix, "--", *command]
