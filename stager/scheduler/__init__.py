"""The scheduler's decisions: `Machine.step(event) -> list[Command]` is the only thing that changes scheduling state.

May know: the model and planning. One rule: no clock, no randomness, no input or output; time arrives on events.
"""
