"""AWS's wire formats, driven by botocore's service models: requests to parameters, answers to responses.

Services above this layer see what a user of boto3 sees: parameters in, an answer out, both as dicts.
"""
