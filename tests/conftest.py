"""One thread for each test process: several of them share the cores, and small matrices gain nothing from more."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported
