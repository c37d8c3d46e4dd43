"""Managed SageMaker multi-turn RL jobs: plan, launch, watch, evaluate, account for, rehearse.

Nothing is imported here; take what you need from the modules.
"""
