"""Local servers that speak an AWS service's wire, for rehearsal and tests.

Real clients drive them: what is tested against a twin is the request that would have gone out.
"""
