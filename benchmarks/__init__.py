"""ASV's benchmarks. Thin: they declare, set up, and call llgbench.suite.

Discovery imports every module here, so nothing heavy is imported at the top.
"""

import os
from pathlib import Path

# The inputs are this checkout's at every commit, so that history keeps its meaning.
os.environ.setdefault("LLGBENCH_ROOT", str(Path(__file__).resolve().parent.parent))
