"""LiveWorld: where the Machine's commands become calls and what happens becomes events.

May know: adapters and below. One rule: journal first, then act; every act is idempotent by its id.
"""
