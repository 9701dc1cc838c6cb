"""A daemon of a test starts as an installed one does, without hypothesis.

kio imports it where it finds it, for a third of a second, and leaves a `.hypothesis/` in the current directory.
"""

import sys

sys.modules["hypothesis"] = None  # type: ignore[assignment]
