"""Planning: from a workflow, profiles and a topology to a plan, a value.

May know: the model. One rule: the same inputs give the same plan, byte for byte, under any hash seed.
"""
