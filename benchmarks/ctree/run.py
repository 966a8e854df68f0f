"""Confidence trees: the paper's figures, and accuracy and time beside river.

    python benchmarks/ctree/run.py TABLE [OPTIONS]

    figure2   accuracy against number of leaves on the streams of random trees (Figure 2)
    figure3   performance against number of leaves on real data, in random orders (Figure 3)
    defaults  accuracy and time of the defaults beside river's Hoeffding trees, on ten streams
    choice    accuracy of the settings among which the defaults were chosen, on ten streams
    drift     accuracy where drift is followed, and over windows of the last examples
    whole     time of a whole replay beside the session's, by length of the stream
    river     time and accuracy beside river's HoeffdingTreeClassifier on Electricity

``--seeds`` is the number of trials, or of rounds of a timing; ``--plot`` writes the figure beside the page of results.
"""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1])  # where the harness and this folder, as ``ctree``, are found

from harness import commands  # noqa: E402 (needs the path)

#: Name of each table, and the function that prints it.
TABLES = {
    "figure2": "ctree.trials:figure2", "figure3": "ctree.trials:figure3", "defaults": "ctree.prequential:defaults",
    "choice": "ctree.prequential:choice", "drift": "ctree.prequential:drift", "whole": "ctree.prequential:whole",
    "river": "ctree.prequential:river",
}  # fmt: skip

if __name__ == "__main__":  # not in the processes of --jobs
    commands(__doc__, TABLES, "river", "scipy", data=[], trees=50, examples=500_000, settings=12, rows=50_000, jobs=1)
