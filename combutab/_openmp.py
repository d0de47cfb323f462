"""How long threads of OpenMP spin while they wait, for the libraries that are imported later.

The default of GNU's OpenMP is milliseconds. On a busy machine, a thread that spins keeps the thread
that it waits for from running, and a fit takes many times as long. Results do not change.
"""

import os

if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")  # some 30 microseconds
