"""One replay, from its first update to its summary.

- Before: ``job`` (replay and resume), ``preparing`` and ``sameness`` (refusals), ``past`` (of a resumed run).
- The loop: ``run`` over ``incarnations``; in each, ``intake`` reads ahead and ``feeding`` hands on. ``interruption``
  has it end when a signal says so.
- What is kept: ``tally`` counts and ``recorder`` writes, into ``tables`` made of ``parts``; ``checkpointing`` saves all
  of it now and then, ``restoring`` goes back there, ``recoveries`` notes what that has cost.
- After: ``ending`` writes ``summary`` and report; ``result`` is what the caller gets.
"""
