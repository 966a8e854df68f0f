"""A tree that can forget as the last step of a pipeline of river.

    python examples/river_pipeline.py        (needs river)

The concept of the stream SEA changes after half of it. River's Hoeffding tree keeps what it has learned; ours deletes
the example of 500 steps ago with every new one.
"""

from __future__ import annotations

from collections import deque
from itertools import chain

from river import compose, datasets, metrics, preprocessing, tree

from raydt import RiverTreeClassifier


def main() -> None:
    """Predict, learn and forget 3,000 examples."""
    stream = list(
        chain(datasets.synth.SEA(variant=0, seed=1).take(1500), datasets.synth.SEA(variant=2, seed=1).take(1500))
    )
    scaled = compose.Pipeline(preprocessing.StandardScaler(), tree.HoeffdingTreeClassifier(grace_period=50))
    ours, window = RiverTreeClassifier(max_depth=6), deque[tuple[dict[str, float], bool]]()
    right, theirs = metrics.Accuracy(), metrics.Accuracy()
    for x, y in stream:
        x = {f"x{name}": value for name, value in x.items()}
        right.update(y, ours.predict_one(x))
        theirs.update(y, scaled.predict_one(x))
        ours.learn_one(x, y)
        scaled.learn_one(x, y)
        window.append((x, y))
        if len(window) > 500:
            ours.forget_one(*window.popleft())
    print("window of 500 ", right)
    print("Hoeffding tree", theirs)


if __name__ == "__main__":
    main()
