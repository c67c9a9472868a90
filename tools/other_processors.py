"""Run tests as if on other processors, which QEMU plays: what holds here may not hold there.

    .venv/bin/python tools/other_processors.py                      # tests that failed somewhere
    .venv/bin/python tools/other_processors.py tests/unit -m bytes  # all that compare bytes

Words are pytest's own. Needs `qemu-x86_64` (Debian's qemu-user) on a machine with an x86-64
processor; programs that a test starts run on the real processor. Each processor has a folder of its
own for what Numba compiles, and for /proc/cpuinfo, which QEMU would show as it is on this machine.
Exit status 1 if a test fails on any of them, 2 if they cannot be played.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

QEMU = "qemu-x86_64"
TESTS = Path("tests/unit")
SAID = "output"
# what QEMU calls them, and those flags that our own code and libraries read from the kernel; it
# plays no AVX-512
PROCESSORS = {"Haswell-noTSX": "avx avx2 fma", "EPYC": "avx avx2 fma"}
# Half a minute. Training is left to be named: the loop is compiled anew there, which takes minutes.
CHOSEN = tuple(
    f"test_golden_bytes.py::test_bytes_of_inputs[{name}]"
    for name in ("images", "functions", "operators")
)
# oneDNN's LSTM and NumPy's sorting for AVX2 end in a segmentation fault under QEMU 7.2, not on a
# processor; a -k of
# one's own takes the place of this one
UNPLAYED = ("-k", "not lstm and not sorting")
# by these a library takes another branch than the processor's
STEERING = ("MKL_", "ONEDNN_", "DNNL_", "ATEN_", "OPENBLAS_CORETYPE", "NUMBA_", "NPY_")


def main(words: list[str]) -> int:
    """Run pytest with these words on every processor, all at once; return the exit status."""
    if platform.machine() not in ("x86_64", "AMD64") or not shutil.which(QEMU):
        print(
            f"other processors cannot be played: that takes {QEMU}, of Debian's qemu-user, on a "
            "machine with an x86-64 processor",
            file=sys.stderr,
        )
        return 2
    with tempfile.TemporaryDirectory(prefix="fedrepro-processors-") as place:
        folders = {name: Path(place) / name for name in PROCESSORS}
        runs = {name: started(name, folder, words) for name, folder in folders.items()}
        failed = 0
        try:
            for name, run in runs.items():
                failed |= run.wait() != 0
                print(f"== {name}", *said(folders[name]), sep="\n", flush=True)
        finally:
            for run in runs.values():
                run.kill()
                run.wait()
    return int(failed)


def started(name: str, folder: Path, words: list[str]) -> subprocess.Popen[bytes]:
    """Begin the tests on one processor."""
    cpuinfo = folder / "root/proc/cpuinfo"
    cpuinfo.parent.mkdir(parents=True)
    cpuinfo.write_text(
        f"model name\t: {name}, played by QEMU\nflags\t\t: {PROCESSORS[name]}\n", encoding="utf-8"
    )
    own = {key: value for key, value in os.environ.items() if not key.startswith(STEERING)}
    tests = words or [str(TESTS / test) for test in CHOSEN]
    command = [QEMU, "-L", str(folder / "root"), sys.executable, "-P", "-m", "pytest"]
    # without plugins: workers of pytest-xdist would run on the real processor
    chosen = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "NUMBA_CACHE_DIR": str(folder / "numba")}
    with (folder / SAID).open("wb") as out:
        return subprocess.Popen(
            [*command, "-p", "no:cacheprovider", *UNPLAYED, *tests],
            env=own | chosen | {"QEMU_CPU": name},
            stdout=out,
            stderr=subprocess.STDOUT,
        )


def said(folder: Path) -> list[str]:
    """What pytest printed, without what QEMU says of flags that it does not know."""
    lines = (folder / SAID).read_text(encoding="utf-8", errors="replace").splitlines()
    return [line for line in lines if not line.startswith(f"{QEMU}: warning:")]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
