"""The one place that configures logs: JSON lines that carry the execution they belong to."""

from aws_lambda_powertools import Logger

logger = Logger(service="volumetry")
