"""What `rft learn` is made of: a small policy learns an environment on this machine, stage by stage."""
