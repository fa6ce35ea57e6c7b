"""The errors that cross packages.

LLMServiceError
├── InvalidInputError     the user's own words are wrong: field, value, limit and mend are in the message
└── UnavailableError      something outside did not answer; trying again may help
"""


class LLMServiceError(Exception):
    """Base of the project's errors."""


class InvalidInputError(LLMServiceError):
    """What was given cannot be used. Trying again without a change is useless."""


class UnavailableError(LLMServiceError):
    """Something outside did not answer as it should. Trying again may help."""
