"""Peak memory of a process of its own: source text that defines `peak()`, in bytes.

On Linux from /proc, because getrusage also counts what the process that started it had in use.
"""

PEAK = """
import resource, sys

def peak():
    try:
        with open("/proc/self/status") as file:
            return next(int(x.split()[1]) * 1024 for x in file if x.startswith("VmHWM"))
    except OSError:
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
"""
