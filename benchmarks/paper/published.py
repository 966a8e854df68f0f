"""What the paper prints: Bressan, Damay, Sozio, Fully-Dynamic Decision Trees (December 2022), Tables 1 to 5.

Keys are the names the paper uses; data sets that are not at hand are left out. F1 in per cent, times in seconds.
"""

from __future__ import annotations

#: Table 1: features, examples, positive class.
TABLE_1 = {
    "Electricity": (8, 45_311, "UP"),
    "Forest Covertypes": (54, 581_011, "2"),
    "KDDCUP99": (41, 494_021, "smurf"),
    "Poker": (10, 829_201, "0"),
}

#: Table 2: seconds and F1 of EFDT, seconds and F1 of FuDyADT, its epsilon.
TABLE_2 = {
    "Electricity": (1.65, 83.64, 1.53, 90.33, 0.15),
    "Forest Covertypes": (42.47, 83.64, 42.37, 90.33, 0.29),
    "KDDCUP99": (17.72, 97.98, 17.43, 99.91, 0.17),
    "Poker": (16.26, 79.69, 16.14, 86.07, 1.03),
}

#: Table 3: grace period of best F1 of HAT and of EFDT.
TABLE_3 = {
    "Electricity": (1000, 500),
    "Forest Covertypes": (1000, 100),
    "KDDCUP99": (1000, 500),
    "Poker": (500, 100),
}

#: Table 4: seconds of HAT, EFDT and FuDyADT (epsilon 0.5), insert-only.
TABLE_4 = {
    "Electricity": (2.06, 1.65, 0.76),
    "Forest Covertypes": (39.95, 42.47, 30.78),
    "KDDCUP99": (18.28, 17.72, 10.49),
    "Poker": (16.78, 16.26, 36.41),
}

#: Table 5: F1 of HAT, EFDT and FuDyADT (epsilon 0.5), insert-only.
TABLE_5 = {
    "Electricity": (70.81, 72.05, 82.12),
    "Forest Covertypes": (84.30, 83.64, 90.37),
    "KDDCUP99": (99.97, 97.98, 99.91),
    "Poker": (67.93, 79.69, 88.34),
}
