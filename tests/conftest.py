"""One thread for all tests, and for the processes that they start.

Their tensors are tiny: threads that wait for each other cost several times what they save.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
