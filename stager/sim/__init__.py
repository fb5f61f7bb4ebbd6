"""A world that is not there: virtual clock, links that share, nodes that can be full, faults from a seed, checkers that watch.

May know: everything below its layer. One rule: the Machine cannot tell it from the live one; nothing here decides what a scheduler should
do.
"""
