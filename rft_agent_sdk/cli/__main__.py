"""`python -m rft_agent_sdk.cli` is `rft`."""

from rft_agent_sdk.cli import main

main()
