"""Speed and verification of the in-place online GBDT, beside LightGBM and XGBoost with the same settings.

    python benchmarks/gbdt/run.py TABLE [OPTIONS]

    training     training time and test accuracy beside LightGBM and XGBoost
    streams      sliding windows and deletions with default options beside retraining at each step
    windows      small windows, wall time beside LightGBM trained at each step, with one thread and all
    batch-sizes  sizes of a batch on streams, the forest, and LightGBM trained after every 25 rows
    updates      retrain time of LightGBM and XGBoost over our update time, by mode
    memory       stored arrays and process peak beside the paper's Table 2
    backdoor     inject and remove a backdoor (appendix J, Table 4)
    membership   membership inference (appendix K, Table 9)
    poisoning    6,000 label-flipped rows inserted and deleted
    leaf-scores  error of leaf scores on the same structure (appendix N, Table 13)
    batches      5 % -> 100 % -> 5 % and back (Figure 3)
    tenths       chronological tenths added, then removed in reverse (Table 7)
    ablations    error and time of updates by design choice, beside training (appendix O)
    classes      classes added one after another, beside training (appendix M, Figure 5)

``--seeds`` is the number of trials, or of rounds of a timing; ``--plot`` writes the figure beside the page of results.
"""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1])  # where the harness and this folder, as ``gbdt``, are found

from harness import commands  # noqa: E402 (needs the path)

#: Name of each table, and the function that prints it.
TABLES = {
    "training": "gbdt.speed:training_times", "streams": "gbdt.streams:run", "updates": "gbdt.speed:update_times",
    "windows": "gbdt.windows:run", "batch-sizes": "gbdt.windows:sizes",
    "memory": "gbdt.speed:memory", "backdoor": "gbdt.removal:backdoor", "membership": "gbdt.removal:membership",
    "poisoning": "gbdt.removal:poisoning", "leaf-scores": "gbdt.leaf_scores:leaf_scores",
    "batches": "gbdt.removal:batches", "tenths": "gbdt.removal:tenths",
    "ablations": "gbdt.ablations:ablations", "classes": "gbdt.ablations:classes",
}  # fmt: skip

if __name__ == "__main__":
    peers = "lightgbm", "xgboost", "xgboost-cpu", "scikit-learn", "scipy", "ray"
    commands(__doc__, TABLES, *peers, data=[], derivatives=[])
