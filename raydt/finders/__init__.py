"""Finders of the best split over sparse binary features with two classes, behind one small interface.

Source: N. Tatti, *Approximating splits for decision trees quickly in sparse data streams*. ``structure`` keeps, per
node and feature group, what UPDENT and UPDGINI need to answer within (1 + alpha) of the optimum after any insertion
or deletion, in time that follows the ones of a row; ``scan`` looks at every seen feature and is exact.
"""
