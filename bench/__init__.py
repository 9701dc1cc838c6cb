"""Side by side in one run: bare loops, tierd, and a real Kafka. `make bench`, or `python -m bench --help`."""

import sys
from pathlib import Path

_KIT = str(Path(__file__).parents[1] / "tests")
if _KIT not in sys.path:
    sys.path.append(_KIT)  # the daemons are started as the tests start them
