"""Your own GRPO loop: rollouts, advantages, datums, an engine that owns weights and optimizer.

Nothing here imports the gateway but through `gateway.server`; the command composes the two.
"""
