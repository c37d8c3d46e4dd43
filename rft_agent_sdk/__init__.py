"""Write an agent and its reward once; train it with SageMaker multi-turn RL or your own loop."""
