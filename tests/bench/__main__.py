"""Run every benchmark, one after the other: ``python -m tests.bench [--rounds N] [--quick]``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

for path in sorted(Path(__file__).parent.glob("bench_*.py")):
    print(f"== {path.stem}", flush=True)
    done = subprocess.run([sys.executable, "-m", f"tests.bench.{path.stem}", *sys.argv[1:]], check=False)
    if done.returncode != 0:
        sys.exit(f"{path.stem} ended with exit code {done.returncode}")
