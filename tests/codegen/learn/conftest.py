"""Makes the random layers and machines of the planners' tests importable here, too."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "plan"))
sys.path.insert(0, str(Path(__file__).parents[1] / "plan" / "tiles"))
